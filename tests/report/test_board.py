"""How rows become tasks, entries, coverage and rankings."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fglbench.registry import UserError
from fglbench.report.compare import as_text, compare
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
