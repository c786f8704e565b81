"""Runs without workers: the rows of workers, methods of the session, and refusals."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import fglbench
from fglbench.registry import UserError

NOTEBOOK = """
import fglbench
from fglbench.methods.fedavg import FedAvg

@fglbench.register("in-a-cell")
class InACell(FedAvg):
    "FedAvg, from a notebook. Messages as FedAvg."

asked = dict(suites=["quick"], methods=["in-a-cell"], datasets=["csbm"], seeds=[0], results="out")
try:
    fglbench.run(**asked)
except fglbench.UserError as error:
    print("REFUSED", error)
print("SCORES", fglbench.run(**asked, in_process=True)["status"].tolist())
"""


def test_a_method_of_the_session_runs_here_and_workers_say_how(tmp_path: Path) -> None:
    """As in a notebook: code that is in no file."""
    done = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, text=True, cwd=tmp_path)
    assert "REFUSED method 'in-a-cell' is defined in this session" in done.stdout, done.stderr
    assert "in_process=True" in done.stdout
    assert "SCORES ['ok']" in done.stdout


def test_it_is_of_no_other_backend(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="in_process runs everything here, and backend is 'ray'"):
        fglbench.run(quick=True, methods=["local"], datasets=["csbm"], results=tmp_path, backend="ray", in_process=True)
