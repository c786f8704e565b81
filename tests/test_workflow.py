"""The workflow that pull requests of strangers start: it must not be able to leak or change anything."""

from __future__ import annotations

import re
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
                assert re.fullmatch(r"actions/[a-z-]+@v\d+", step["uses"])
            else:  # nothing that a stranger writes becomes part of a command
                assert "${{" not in step["run"]
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_pull_requests_run_the_tests_and_check_results() -> None:
    jobs = yaml.safe_load((FOLDER / "ci.yml").read_text())["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == ["3.10", "3.11"]
    commands = [step["run"] for step in jobs["results"]["steps"] if "run" in step]
    assert commands[1:] == [
        '.venv/bin/fglbench validate results --base "$BASE"',
        ".venv/bin/fglbench report --check",
    ]
    (checkout,) = [step for step in jobs["results"]["steps"] if "checkout" in step.get("uses", "")]
    assert checkout["with"]["fetch-depth"] == 0  # the base commit is there to compare with
    assert [step["run"] for step in jobs["test"]["steps"] if "run" in step] == ["make test PYTHON=python"]
