"""The workflow that pull requests of strangers start: it must not be able to leak or change anything."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[1] / ".github" / "workflows"
FILES = sorted(FOLDER.glob("*.y*ml"))


def strings(tree: Any) -> list[str]:
    if isinstance(tree, dict):
        return [text for key, value in tree.items() for text in (str(key), *strings(value))]
    return [text for value in tree for text in strings(value)] if isinstance(tree, list) else [str(tree)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_workflow_can_neither_leak_nor_write(path: Path) -> None:
    tree = yaml.safe_load(path.read_text())
    assert tree["permissions"] == {"contents": "read"}
    triggers = tree[True]  # YAML 1.1 reads the key `on` as true
    assert set(triggers) <= {"push", "pull_request"}
    assert not any("secrets" in text for text in strings(tree["jobs"]))
    for job in tree["jobs"].values():
        assert "permissions" not in job
        assert job["timeout-minutes"] <= 60
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"actions/[a-z-]+@[0-9a-f]{40}", step["uses"])  # a tag may be moved
            else:  # nothing that a stranger writes becomes part of a command
                assert "${{" not in step["run"]
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_pull_requests_run_the_tests_and_check_results() -> None:
    jobs = yaml.safe_load((FOLDER / "ci.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.10", "3.11"]
    commands = [step["run"] for step in jobs["results"]["steps"] if "run" in step]
    assert commands[2] == 'base/.venv/bin/fglbench validate head/results --base "$BASE"'
    assert commands[3].endswith(".venv/bin/fglbench report --check\n")
    (checkout,) = [step for step in jobs["results"]["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["fetch-depth"] == 0  # the base commit is there to compare with
    assert [step["run"] for step in jobs["test"]["steps"] if "run" in step] == ["make test PYTHON=python"]


@pytest.fixture
def pull_request(tmp_path: Path):
    """A repository with a base commit, and a function that runs the job's step on a change of it."""

    def git(*words: str, folder: Path = tmp_path / "head") -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        command = ["git", "-C", str(folder), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    (tmp_path / "head").mkdir()
    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "base")
    base = git("rev-parse", "HEAD")
    steps = yaml.safe_load((FOLDER / "ci.yml").read_text())["jobs"]["results"]["steps"]
    (script,) = [step["run"] for step in steps if step.get("name", "").startswith("Rows do not come together")]

    def judged(*paths: str) -> int:
        for path in paths:
            target = tmp_path / "head" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text("changed")
        git("add", "-A")
        git("commit", "-qm", "change")
        environment = {**os.environ, "BASE": base}
        command = ["bash", "-e", "-c", script]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True).returncode

    return judged


@pytest.mark.parametrize(
    ("paths", "code"),
    [
        (["results/quick/mine.csv", "results/LEADERBOARD.md", "methods/mine.py"], 0),
        (["benchmark/suites/quick.yaml", "report/papers/tables.csv"], 0),
        (["results/quick/mine.csv", "benchmark/suites/quick.yaml"], 1),
        (["results/quick/mine.csv", "benchmark/submission/checks.py"], 1),
        (["results/quick/mine.csv", "results/verified.csv"], 1),
        (["results/quick/history/0123456789abcdef.json.gz", ".github/workflows/ci.yml"], 1),
        (["results/versions.csv"], 1),
    ],
)
def test_rows_do_not_come_with_a_change_of_what_they_are_judged_by(pull_request, paths: list[str], code: int) -> None:
    assert pull_request(*paths) == code
