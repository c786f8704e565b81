"""A tiny board of real rows, a results folder, and a valid submission to it."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.runner.execute import FederationCache, execute
from fglbench.benchmark.store import Store, row_file
from fglbench.benchmark.store.provenance import environment
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.submission import validate as checks
from fglbench.benchmark.suites import suite as suite_module
from fglbench.benchmark.suites.cell import Cell
from fglbench.benchmark.suites.select import Request, select

SUITE = """
description: a tiny synthetic board
leaderboard: true
training: {rounds: 8, local_epochs: 1}
cross:
  datasets:
    - {name: csbm, params: {nodes: 60, classes: 2, features: 8, signal: 0.4}}
    - {name: csbm, params: {nodes: 80, classes: 2, features: 8, signal: 0.4}}
  partitions: uniform
  clients: 3
  splits: {name: ratio, params: {train: 0.4, val: 0.3, test: 0.3}}
  backbones: {name: gcn, params: {hidden: 4}}
  methods: [fedavg, local]
  seeds: 2
"""
META = {
    "paper": "unpublished",
    "code": "https://example.org/code",
    "licence": "MIT",
    "hardware": "2 cores",
    "contact": "someone@example.org",
}
OPTIONS = [part for name, value in META.items() for part in (f"--{name}", value)]


@pytest.fixture(autouse=True)
def suites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of suites that holds `tiny` only."""
    folder = tmp_path_factory.mktemp("suites")
    (folder / "tiny.yaml").write_text(SUITE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite_module, "FOLDER", folder)
        patch.setenv("FGLBENCH_CACHE", str(folder / "cache"))  # checks do not depend on data of this machine
        checks.cells_of.cache_clear()
        yield folder
        checks.cells_of.cache_clear()


COMMIT = "a" * 40  # of the rows of these tests


@pytest.fixture(scope="session")
def ran(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """(a results folder with the board's methods, one with rows of a third method), run once."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "tiny.yaml").write_text(SUITE)
    federations = FederationCache()
    folders = SimpleNamespace(results=folder / "results", mine=folder / "mine")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(suite_module, "FOLDER", folder)
        for root, methods, submitter in (
            (folders.results, ("fedavg", "local"), "fglbench"),
            (folders.mine, ("fedprox",), "someone"),
        ):
            store = Store(root)
            digest, about = environment(1)
            store.write_environment(digest, about)
            stamp = {"environment": digest, "git_sha": COMMIT, "git_dirty": False, "submitter": submitter}
            for suite, cell in select(Request(suites=("tiny",), methods=methods)):
                store.append_row(execute(cell, suite, store, federations, stamp))
            shutil.rmtree(root / ".locks")
    return folders


@pytest.fixture
def results(ran: SimpleNamespace, tmp_path: Path) -> Path:
    return Path(shutil.copytree(ran.results, tmp_path / "results"))


@pytest.fixture
def base(workdir: Path, results: Path) -> Path:
    """A copy of `results` before the change."""
    return Path(shutil.copytree(results, workdir / "base"))


@pytest.fixture
def mine(ran: SimpleNamespace, tmp_path: Path) -> Path:
    """The results folder of a user who has run fedprox."""
    return Path(shutil.copytree(ran.mine, tmp_path / "mine"))


@pytest.fixture
def workdir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the commands."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def submission(workdir: Path, results: Path, mine: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """fedprox, packed by the command."""
    assert main(["submit", "fedprox", "--results", "mine", "--out", "packed", *OPTIONS]) == 0
    capsys.readouterr()
    return workdir / "packed"


def edit(path: Path, line: int | None = None, /, rekey: bool = False, **changes: Any) -> None:
    """Change columns of one line of a file (2 is the first row; None: all rows); `rekey`: the key follows."""
    rows = list(csv.reader(path.open(newline="")))
    for number, fields in enumerate(rows[1:], start=2):
        if line in (None, number):
            for column, value in changes.items():
                fields[row_file.COLUMNS.index(column)] = value
            if rekey:
                values = {c: v for c, v in zip(row_file.COLUMNS, fields, strict=False) if v != ""}
                fields[row_file.COLUMNS.index("key")] = Cell.of(Row.model_validate(values)).key
    with path.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows(rows)


def edit_curves(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    stored = json.loads(gzip.decompress(path.read_bytes()))
    change(stored)
    path.write_bytes(gzip.compress(json.dumps(stored, separators=(",", ":")).encode(), mtime=0))
