"""How rows become tasks, entries, coverage and rankings; the maintainers' marks; the order of boards."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fglbench.benchmark.store import Store, verified
from fglbench.benchmark.store.verified import Verified
from fglbench.benchmark.suites import catalogue, suitefile
from fglbench.registry import UserError
from fglbench.report import build, leaderboard, tables
from fglbench.report.compare import as_text, compare
from fglbench.report.loading import load_boards
from fglbench.report.provenance import missing
from fglbench.report.ranking import Ranking
from fglbench.report.text import literal


def test_the_demo_by_hand(made: SimpleNamespace) -> None:
    board = made.board(made.demo())
    assert board.tasks == ["cora", "pubmed", "wiki"]
    assert board.complete == ["alpha", "beta", "gamma", "global"]
    assert board.ranked == ["alpha", "beta", "gamma"]
    table = Ranking(board).table
    assert table["mean_rank"].round(4).to_dict() == {"alpha": 1.3333, "gamma": 2.3333, "beta": 2.3333}
    assert table["group"].to_dict() == {"alpha": "", "beta": "", "gamma": ""}  # two seeds compare nothing
    assert table["wins"].to_dict() == {"alpha": 2, "beta": 0, "gamma": 1}
    assert table.loc["alpha", "score"] == pytest.approx((0.805 + 0.855 + 0.505) / 3)
    assert table.loc["alpha", "traffic"] == 8_000_000
    assert (table["low"] <= table["mean_rank"]).all()
    assert (table["mean_rank"] <= table["high"]).all()
    assert board.counts.loc["cora", "delta"] == 1
    assert np.isnan(board.scores.loc["cora", "delta"])


def test_what_is_missing_is_said(made: SimpleNamespace) -> None:
    lines = [literal(line) for line in missing(made.board(made.demo()), "delta")]
    assert lines == ["cora: failed (seed 1): loss is nan \\| round 3", "wiki: skipped: needs features"]


def test_seeds_not_run_are_missing(made: SimpleNamespace) -> None:
    rows = [made.row("cora", "a", s, 0.5) for s in range(4)] + [made.row("cora", "b", 0, 0.6)]
    rows += [made.row("wiki", "a", 0, 0.5)]
    board = made.board(rows)
    assert missing(board, "b") == ["cora: seed 1\N{EN DASH}3 not run", "wiki: not run"]
    assert board.ranked == ["a"]


def test_a_task_that_nobody_solved_does_not_unrank_everybody(made: SimpleNamespace) -> None:
    rows = made.demo() + [made.row("arxiv", m, 0, error="no features") for m in ("alpha", "beta")]
    board = made.board(rows)
    assert board.dead_tasks == ["arxiv"]
    assert board.ranked == ["alpha", "beta", "gamma"]


def test_a_board_of_failures_only(made: SimpleNamespace) -> None:
    board = made.board([made.row("cora", "a", 0, error="boom")])
    assert board.tasks == []
    assert board.ranked == []
    assert board.dead_tasks == ["cora"]


def test_one_dataset_with_two_partitions_is_two_tasks_and_one_unit(made: SimpleNamespace) -> None:
    rows = []
    for method, scores in {"a": (0.9, 0.5), "b": (0.8, 0.4)}.items():
        rows.append(made.row("cora", method, 0, scores[0]))
        rows.append(made.row("cora", method, 0, scores[1], partition="metis", partition_params="{}", clients=5))
    board = made.board(rows)
    assert board.tasks == ["cora (louvain, 10 clients)", "cora (metis, 5 clients)"]
    assert board.by_dataset.loc["cora", "a"] == pytest.approx(0.7)


def test_a_method_against_itself_is_several_entrants(made: SimpleNamespace) -> None:
    rows = [made.row("cora", "fedprox", 0, 0.5 + mu, method_params=f'{{"mu":{mu},"x":1}}') for mu in (0.01, 0.1)]
    assert made.board(rows).entrants == ["fedprox (mu=0.01)", "fedprox (mu=0.1)"]


def test_a_backbone_that_changes_with_the_task_does_not_split_a_method(made: SimpleNamespace) -> None:
    rows = [made.row("cora", "a", 0, 0.5), made.row("enzymes", "a", 0, 0.5, task="graph", backbone="gin")]
    assert made.board(rows).entrants == ["a"]


def test_leaders_use_paired_seeds(made: SimpleNamespace) -> None:
    """Seeds differ a lot, methods by a constant hair: pairing tells b apart; c is noise about a."""
    rows = []
    for seed, level in enumerate((0.5, 0.7, 0.6, 0.9, 0.8)):
        rows.append(made.row("cora", "a", seed, level))
        rows.append(made.row("cora", "b", seed, level - 0.01 - 0.0001 * seed))
        rows.append(made.row("cora", "c", seed, level + (0.05 if seed % 2 else -0.04)))
    best, equal = Ranking(made.board(rows)).leaders["cora"]
    assert (set(best), set(equal)) == ({"a"}, {"c"})


def test_references_neither_lead_nor_rank(made: SimpleNamespace) -> None:
    best, equal = Ranking(made.board(made.demo())).leaders["cora"]
    assert best == {"alpha"}
    assert "global" not in equal


def test_what_is_a_reference_is_said_by_its_rows(made: SimpleNamespace) -> None:
    """By any of them: rows of an older schema know one reference only."""
    rows = [made.row("cora", "central", s, 0.9, reference=s == 1) for s in (0, 1)]
    board = made.board(made.demo() + rows)
    assert board.references == {"central", "global"}
    assert Ranking(board).leaders["cora"][0] == {"alpha"}


def test_compare_by_hand(made: SimpleNamespace) -> None:
    duel = compare(made.board(made.demo()), "gamma", "delta")
    assert duel is not None
    assert duel.tasks["task"].tolist() == ["cora", "pubmed"]
    assert duel.tasks["n"].tolist() == [1, 2]
    assert duel.tasks["difference"].round(6).tolist() == [0.1, 0.104]
    assert duel.mean == pytest.approx(0.102)
    assert "Too few datasets and seeds" in duel.verdict
    assert "+10.20" in as_text(duel)


def test_compare_tests_six_datasets(made: SimpleNamespace) -> None:
    rows = []
    for i, name in enumerate("uvwxyz"):
        rows += [made.row(name, "a", s, 0.6 + 0.01 * i) for s in (0, 1)] + [made.row(name, "b", s, 0.5) for s in (0, 1)]
    duel = compare(made.board(rows), "a", "b")
    assert duel is not None
    assert (duel.low, duel.high) > (0.01, 0.01)
    assert "Over datasets, a is better than b" in duel.verdict
    assert "equivalent 0.00, better 1.00" in duel.verdict


def test_compare_refuses_unknown_names(made: SimpleNamespace) -> None:
    with pytest.raises(UserError, match="did you mean 'alpha'"):
        compare(made.board(made.demo()), "alhpa", "beta")


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
    assert "- ✓n: the maintainers ran n rows" in text


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
