"""Whether the code of a row can be looked up: commits, installed packages, methods from outside."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import provenance
from fglbench.benchmark.store.provenance import code_version, known_commits, origin
from fglbench.benchmark.suites.plugins import load_plugins
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

ROWS = Path("tiny/fedprox.csv")
NOWHERE = "b" * 40


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_new_rows_of_an_unknown_commit_are_refused(
    submission: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.edit(submission / ROWS, 2, git_sha=NOWHERE)
    assert main(["validate", "packed"]) == 1
    place = "packed/tiny/fedprox.csv:2"
    assert f"{place}: 1 rows were made at commit bbbbbbbbbbbb, which this repository does not have" in said(capsys)


def test_standing_rows_of_an_unknown_commit_are_a_warning(
    here: Path, results: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.edit(results / "tiny" / "fedavg.csv", None, git_sha=NOWHERE)
    assert main(["validate", "results"]) == 0
    assert "warning: results/tiny/fedavg.csv:2: " in said(capsys)
    base = here / "base"
    base.mkdir()
    assert main(["validate", "results", "--base", "base"]) == 1  # against nothing they are new
    assert "commit bbbbbbbbbbbb" in said(capsys)


def test_where_there_is_no_checkout_it_is_said_that_commits_were_not_checked(
    submission: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fglbench.benchmark.submission.cells.known_commits", lambda wanted: None)
    assert main(["validate", "packed"]) == 0
    assert "was not checked: this fglbench is no git checkout" in said(capsys)


def test_rows_of_an_installed_package_count_when_its_code_is_known(
    submission: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = {"git_sha": "", "git_dirty": ""}
    tools.edit(submission / ROWS, None, **installed, code=code_version())
    assert main(["validate", "packed"]) == 0
    said(capsys)
    tools.edit(submission / ROWS, None, **installed, code="0" * 12)
    assert main(["validate", "packed"]) == 1
    assert f"made by an installed package whose code is 000000000000; here it is {code_version()}" in said(capsys)
    tools.edit(submission / ROWS, None, **installed, code="")
    assert main(["validate", "packed"]) == 1
    assert "not made from a git checkout (git_dirty is empty)" in said(capsys)


def test_a_method_of_a_changed_repository_is_refused(
    submission: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    tools.edit(submission / ROWS, 2, origin='{"commit":"c","dirty":true,"source":"s"}')
    assert main(["validate", "packed"]) == 1
    assert "the method comes from a repository with uncommitted changes (origin)" in said(capsys)
    tools.edit(submission / ROWS, 2, origin="[1]")
    assert main(["validate", "packed"]) == 1
    assert "column 'origin': '[1]' is no JSON object" in said(capsys)


def test_commits_are_looked_up_in_the_repository_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    head, _ = provenance.git_state()
    if not head:
        pytest.skip("not run from a git checkout")
    assert known_commits([head, NOWHERE, "", head]) == {head}
    monkeypatch.setattr(provenance, "git_state", lambda: ("", None))
    assert known_commits([head]) is None


PLUGIN = """
from fglbench.benchmark.engine import METHODS
from fglbench.methods.fedavg import FedAvg

@METHODS.register("from-outside")
class FromOutside(FedAvg):
    '''FedAvg from outside.'''
"""


def test_a_method_from_outside_carries_its_own_identity(tmp_path: Path) -> None:
    assert origin(FedAvg) == ""
    path = tmp_path / "from_outside.py"
    path.write_text(PLUGIN)
    load_plugins([str(path)])
    cls = METHODS.cls("from-outside")
    del METHODS._classes["from-outside"]  # for good: other tests look at all that is registered
    loose = json.loads(origin(cls))
    assert set(loose) == {"source"}

    def git(*words: str) -> str:
        who = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        command = ["git", "-C", str(tmp_path), *who, *words]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "all")
    origin.cache_clear()
    kept = json.loads(origin(cls))
    assert kept == {"commit": git("rev-parse", "HEAD").strip(), "dirty": False, "source": loose["source"]}
    path.write_text(PLUGIN + "# changed\n")
    origin.cache_clear()
    changed = json.loads(origin(cls))
    assert changed["dirty"] is True
    assert changed["source"] != kept["source"]
