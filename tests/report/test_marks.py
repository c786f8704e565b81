"""The maintainers' marks, and the order of boards."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from fglbench.benchmark.store import Store, verified
from fglbench.benchmark.store.verified import Verified
from fglbench.benchmark.suites import catalogue, suitefile
from fglbench.report import build, leaderboard, tables
from fglbench.report.loading import load_boards


def verdict(row, passed: bool = True, **changes) -> Verified:
    values = {
        "suite": row.suite, "key": row.key, "method": row.method, "method_version": row.method_version,
        "score": row.score, "ours": row.score if passed else 0.1, "bar": 1e-6,
        "verdict": "passed" if passed else "failed", "date": "2026-01-01T00:00:00Z", "git_sha": "a" * 40,
        "environment": "0" * 12, "by": "fglbench",
    }  # fmt: skip
    return Verified(**{**values, **changes})


@pytest.fixture
def rows(results: Path):
    return {(row.method, row.dataset, row.seed): row for row in Store(results).rows("demo")}


def marks(results: Path) -> dict[str, str]:
    (board,) = load_boards(results)
    return {name: tables.mark(board, name) for name in board.entrants if tables.mark(board, name)}


def test_a_mark_counts_the_rows_that_were_run_again(results: Path, rows) -> None:
    assert marks(results) == {}
    verified.add(results, [verdict(rows["alpha", "cora", 0]), verdict(rows["alpha", "wiki", 1])])
    verified.add(results, [verdict(rows["beta", "cora", 0]), verdict(rows["beta", "cora", 1], passed=False)])
    assert marks(results) == {"alpha": " ✓2", "beta": " ✗1/2"}
    text = build.make(results, None, figures=False).texts[results / "LEADERBOARD.md"]
    assert "| alpha ✓2 " in text
    assert "| beta ✗1/2 " in text
    assert "| gamma " in text
    assert "- ✓n: the maintainers drew n rows" in text


def test_the_last_verdict_on_a_row_counts(results: Path, rows) -> None:
    row = rows["alpha", "cora", 0]
    verified.add(results, [verdict(row, passed=False), verdict(row)])
    assert marks(results) == {"alpha": " ✓1"}


def test_a_verdict_dies_with_the_row_that_it_is_about(results: Path, rows) -> None:
    row = rows["alpha", "cora", 0]
    verified.add(results, [verdict(row)])
    Store(results).append(row.model_copy(update={"score": 0.9}))
    assert marks(results) == {}
    Store(results).append(row)
    assert marks(results) == {"alpha": " ✓1"}
    Store(results).append(row.model_copy(update={"method_version": "f" * 12}))
    assert marks(results) == {}


@pytest.mark.parametrize("changes", [{"suite": "other"}, {"key": "0" * 16}, {"score": 0.123}])
def test_a_verdict_on_another_row_gives_no_mark(results: Path, rows, changes: dict) -> None:
    verified.add(results, [verdict(rows["alpha", "cora", 0], **changes)])
    assert marks(results) == {}


def test_verdicts_come_back_as_they_were_written(tmp_path: Path, rows) -> None:
    found = [verdict(rows["alpha", "cora", 0]), verdict(rows["beta", "cora", 0], ours=None, by='a "b", c')]
    verified.add(tmp_path, found[:1])
    verified.add(tmp_path, found[1:])
    assert verified.read(tmp_path) == found


def test_boards_stand_in_the_order_of_their_suites(tmp_path: Path, made: SimpleNamespace) -> None:
    names = ["quick", "clustering", "zzz", "heterogeneous", "aaa", "overlap", "heterogeneous-depth", "leaderboard"]
    rows = [
        made.row("cora", method, 0, score, suite=name) for name in names for method, score in (("a", 0.5), ("b", 0.4))
    ]
    folder = made.write(tmp_path / "results", rows, curves=False)
    page = tmp_path / "README.md"
    page.write_text(leaderboard.BEGIN + leaderboard.END)
    texts = build.make(folder, page, figures=False).texts
    headings = [line[3:] for line in texts[folder / "LEADERBOARD.md"].splitlines() if line.startswith("## ")]
    official = [
        "Node classification, published defaults",
        "Mixed architectures",
        "Mixed depths",
        "Overlapping clients",
        "Graph clustering",
    ]
    assert headings[:-1] == [*official, "aaa", "zzz", "quick"]
    shown = [line.split("**")[1] for line in texts[page].splitlines() if line.startswith("**")]
    assert shown == official[:1]  # the first of the benchmark's boards; the others are in the leaderboard


def test_every_leaderboard_suite_has_a_place_of_its_own() -> None:
    suites = [suitefile.load_suite(name) for name in suitefile.suite_names()]
    placed = {suite.name: suite.order for suite in suites if suite.order is not None}
    assert set(placed) == {suite.name for suite in suites if suite.leaderboard}
    assert len(set(placed.values())) == len(placed)
    assert all(catalogue.is_board(name) for name in placed)
    assert all(catalogue.board_title(suite.name) == suite.title for suite in suites if suite.name in placed)
    assert sorted(placed, key=catalogue.board_order) == sorted(placed, key=lambda name: placed[name])
