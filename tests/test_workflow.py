"""The workflow that pull requests start: it must not be able to leak or change anything."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import git

FOLDER = Path(__file__).resolve().parents[1] / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.y*ml"))


def strings(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        return [text for key, value in tree.items() for text in (str(key), *strings(value))]
    return [text for value in tree for text in strings(value)] if isinstance(tree, list) else [str(tree)]


def publishes(path: Path, job: dict[str, Any], triggers: dict[str, Any]) -> bool:
    """Whether a job with write permission only gives a site to GitHub Pages, from main, without project code."""
    (step,) = job["steps"]
    return (
        path.name == "pages.yml"
        and triggers == {"push": {"branches": ["main"]}}
        and job["permissions"] == {"pages": "write", "id-token": "write"}
        and step["uses"].startswith("actions/deploy-pages@")
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_workflow_can_neither_leak_nor_write(path: Path) -> None:
    tree = yaml.safe_load(path.read_text())
    assert tree["permissions"] == {"contents": "read"}
    triggers = tree[True]  # YAML 1.1 reads the key `on` as true
    assert set(triggers) <= {"push", "pull_request"}
    assert not any("secrets" in text for text in strings(tree["jobs"]))
    for job in tree["jobs"].values():
        assert "permissions" not in job or publishes(path, job, triggers)
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"])  # a tag may be moved
            else:  # no text of a pull request becomes part of a command
                assert "${{" not in step["run"]
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_pull_requests_run_the_tests_and_check_results() -> None:
    jobs = yaml.safe_load((FOLDER / "ci.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.10", "3.11", "3.12"]
    commands = [step["run"] for step in jobs["results"]["steps"] if "run" in step]
    assert commands[2].endswith('base/.venv/bin/fglbench validate head/results --base "$BASE" $flag\n')
    assert commands[3].endswith(".venv/bin/fglbench report --check\n")
    (checkout,) = [step for step in jobs["results"]["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["fetch-depth"] == 0  # the base commit is there to compare with
    browser, tests = (step for step in jobs["test"]["steps"] if "run" in step)
    assert "chromedriver" in browser["run"]
    assert tests["run"] == "make test PYTHON=python"
    assert tests["env"] == {"FGLBENCH_BROWSER": "required"}
    for name, job in (("ci.yml", "site"), ("pages.yml", "build")):
        steps = yaml.safe_load((FOLDER / name).read_text())["jobs"][job]["steps"]
        assert [step["run"] for step in steps if "run" in step] == ["make site PYTHON=python"]


@pytest.fixture
def pull_request(tmp_path: Path):
    """A repository with a base commit, and a function that runs the job's step on a change of it."""

    head = tmp_path / "head"
    head.mkdir()
    git(head, "init", "-q")
    git(head, "commit", "-q", "--allow-empty", "-m", "base")
    base = git(head, "rev-parse", "HEAD")
    steps = yaml.safe_load((FOLDER / "ci.yml").read_text())["jobs"]["results"]["steps"]
    (script,) = [step["run"] for step in steps if step.get("name", "").startswith("Rows come alone")]

    def exit_code(*paths: str) -> int:
        for path in paths:
            target = head / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("changed")
        git(head, "add", "-A")
        git(head, "commit", "-qm", "change")
        environment = {**os.environ, "BASE": base}
        command = ["bash", "-e", "-c", script]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True).returncode

    return exit_code


@pytest.mark.parametrize(
    ("paths", "code"),
    [
        (["results/quick/mine.csv", "results/LEADERBOARD.md", "results/quick/tables/cora.csv", "README.md"], 0),
        (["results/quick/mine.csv", "benchmark/suites/federations.csv"], 0),
        (["benchmark/suites/quick.yaml", "report/papers/tables.csv"], 0),
        (["methods/mine.py", "results/quick/tables/cora.csv"], 0),
        (["results/quick/mine.csv", "methods/mine.py"], 1),
        (["results/quick/mine.csv", "benchmark/suites/quick.yaml"], 1),
        (["results/quick/mine.csv", "benchmark/submission/validate.py"], 1),
        (["results/quick/mine.csv", "metrics.py"], 1),
        (["results/environments/0123456789ab.json", "report/board.py"], 1),
        (["results/submissions/mine/quick/mine.csv", "methods/mine.py"], 0),
        (["results/quick/history/0123456789abcdef.json.gz", ".github/workflows/ci.yml"], 1),
        (["results/quick/embeddings/0123456789abcdef.npz", ".github/MAINTAINERS"], 1),
        (["results/quick/m\u00e9thode.csv", "methods/mine.py"], 1),
        (["results/.logs/0123456789abcdef.txt"], 1),
        (["results/quick/.gitignore"], 1),
    ],
)
def test_rows_do_not_come_with_code_that_judges_them(pull_request, paths: list[str], code: int) -> None:
    assert pull_request(*paths) == code


@pytest.mark.parametrize(
    ("author", "listed", "trusted"),
    [
        ("kim", "kim\n", True),
        ("kim", "# kim\nlee\n", False),
        ("kim", "kimberly\n", False),
        (".*", "kim\n", False),
        ("-e kim", "kim\n", False),
        ("", "kim\n\n", False),
        ("kim", None, False),
    ],
)
def test_maintainers_are_read_from_the_base(tmp_path: Path, author: str, listed: str | None, trusted: bool) -> None:
    """The head lists the author as maintainer."""
    for side, text in (("base", listed), ("head", "kim\n")):
        (tmp_path / side / ".github").mkdir(parents=True)
        if text is not None:
            (tmp_path / side / ".github" / "MAINTAINERS").write_text(text)
    program = tmp_path / "base" / ".venv" / "bin" / "fglbench"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$@"\n')
    program.chmod(0o755)
    steps = yaml.safe_load((FOLDER / "ci.yml").read_text())["jobs"]["results"]["steps"]
    (script,) = [step["run"] for step in steps if step.get("name", "").startswith("Nothing that was there")]
    environment = {**os.environ, "BASE": "b" * 40, "AUTHOR": author}
    done = subprocess.run(["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["validate", "head/results", "--base", "b" * 40, *["--maintainer"] * trusted]


def test_files_of_the_maintainers_have_owners() -> None:
    lines = (FOLDER.parent / "CODEOWNERS").read_text().splitlines()
    owned = {line.split()[0]: line.split()[1:] for line in lines if line and not line.startswith("#")}
    root = FOLDER.parents[1]
    for path, owners in owned.items():
        assert owners
        assert path.startswith("/")
        assert (root / path[1:]).exists() or path == "/results/submissions/", path
    for path in ("/.github/", "/results/verified.csv", "/benchmark/suites/"):
        assert path in owned
