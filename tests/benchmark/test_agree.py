"""`status`, `validate` and `report` look into the same files of a results folder, however odd it is."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from fglbench.benchmark.runner.plan import make_plan
from fglbench.benchmark.store import Store
from fglbench.benchmark.submission import validate as checks
from fglbench.benchmark.suites.select import Request, select
from fglbench.registry import UserError
from fglbench.report.loading import load_boards


@pytest.fixture
def results(tmp_path: Path, suite: str) -> Path:
    store = Store(tmp_path / "results")
    for name, cell in select(Request(suites=(suite,))):
        store.append(cell.row(name, status="ok", score=0.5, started="2026-01-01T00:00:00Z", environment="0" * 12))
    shutil.rmtree(store.root / ".locks")
    return store.root


def nothing(root: Path) -> None:
    pass


def stray(root: Path) -> None:
    for path in ("notes.txt", "tiny/page.html", "tiny/.fedavg.csv.abc.tmp", "tiny/fedavg.csv.damaged", "a.csv"):
        (root / path).write_text("x")
    for folder in ("empty", ".hidden", "environments", "deep/er"):
        (root / folder).mkdir(parents=True)
    for folder in (".hidden", "environments", "deep/er"):
        shutil.copy(root / "tiny" / "fedavg.csv", root / folder / "fedavg.csv")


def copied(root: Path) -> None:
    shutil.copytree(root / "tiny", root / "other")


def swapped(root: Path) -> None:
    (root / "tiny" / "local.csv").rename(root / "tiny" / "else.csv")


def header_only(root: Path) -> None:
    path = root / "tiny" / "local.csv"
    path.write_bytes(path.read_bytes().partition(b"\n")[0] + b"\n")


def linked(root: Path) -> None:
    (root / "tiny" / "nowhere.csv").symlink_to("missing.csv")


@pytest.mark.parametrize(
    ("change", "rows"),
    [(nothing, 4), (stray, 4), (copied, 4), (swapped, 2), (header_only, 2), (linked, 4)],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_all_count_the_same_rows(results: Path, suite: str, change: Callable[[Path], None], rows: int) -> None:
    change(results)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of rows that do not count where they lie
        plan = make_plan(select(Request(suites=(suite,))), Store(results))
        boards = load_boards(results)
    lines = checks.validate(results, "results", None).lines
    assert plan.counts()["done"] == rows
    assert {board.suite: len(board.rows) for board in boards} == {"tiny": rows}
    assert [line.row.suite for line in lines] == ["tiny"] * rows


def test_a_misplaced_row_is_told_by_all(results: Path, suite: str) -> None:
    copied(results)
    told = "rows that belong in tiny/fedavg.csv do not count here; move the file back"
    with pytest.warns(UserWarning, match=told):
        load_boards(results)
    errors = [str(error) for error in checks.validate(results, "results", None).findings.errors]
    assert any(
        "other/fedavg.csv:2: a row of suite 'tiny' and method 'fedavg'; it belongs in" in each for each in errors
    )


def test_a_folder_where_a_file_of_rows_belongs_is_refused_by_all(results: Path, suite: str) -> None:
    (results / "tiny" / "fedprox.csv").mkdir()
    told = r"tiny/fedprox\.csv is a folder, where a file of rows belongs"
    store = Store(results)
    for look in (
        lambda: make_plan(select(Request(suites=(suite,))), store), lambda: load_boards(results),
        lambda: store.prepare(["tiny"]),
    ):  # fmt: skip
        with pytest.raises(UserError, match=told):
            look()
    errors = [str(error) for error in checks.validate(results, "results", None).findings.errors]
    assert any("fedprox.csv: a folder, where a file of rows belongs" in each for each in errors)
