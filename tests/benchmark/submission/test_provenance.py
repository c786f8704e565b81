"""Whether the code of a row can be looked up: commits, installed packages, methods from outside."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.store.provenance import origin
from fglbench.benchmark.suites.plugins import load_plugins
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

ROWS = Path("tiny/fedprox.csv")


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_a_row_names_the_code_that_made_it(
    submission: Path, tools: SimpleNamespace, capsys: pytest.CaptureFixture[str]
) -> None:
    installed = {"git_sha": "", "git_dirty": ""}
    tools.edit(submission / ROWS, None, **installed, code="0" * 12)
    assert main(["validate", "packed"]) == 0
    for values in ({**installed, "code": ""}, {"git_sha": "0" * 40, "git_dirty": "False", "code": ""}):
        tools.edit(submission / ROWS, None, **values)
        assert main(["validate", "packed"]) == 1
        assert "neither a commit nor the code of an installed package is named" in said(capsys)


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
