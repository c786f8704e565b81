"""Other scores of the same runs: orders and agreement by hand, whole curves only."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fglbench.benchmark.store import Store
from fglbench.report.alternative_rankings import agreement_table, mean_rank_table
from fglbench.report.loading import load_boards
from fglbench.report.ranking import Ranking
from fglbench.report.table import to_markdown

SCORES = {"a": (0.9, 0.1, 0.3), "b": (0.8, 0.2, 0.1), "c": (0.7, 0.3, 0.2)}  # score, macro-F1, own model


def rows(made: SimpleNamespace) -> list:
    return [
        made.row("cora", name, seed, score, macro_f1=f1, personal_on_local=own)
        for name, (score, f1, own) in SCORES.items()
        for seed in (0, 1)
    ]


def test_orders_and_their_agreement_by_hand(made: SimpleNamespace) -> None:
    orders = Ranking(made.board(rows(made))).alternatives
    assert list(orders.mean_ranks) == ["Selected round", "Macro-F1", "Own model"]  # no curves: no last round
    assert orders.mean_ranks["Macro-F1"].to_dict() == {"a": 3, "b": 2, "c": 1}
    tau = orders.agreement
    assert tau.loc["Selected round", "Macro-F1"] == pytest.approx(-1)
    assert tau.loc["Selected round", "Own model"] == pytest.approx(1 / 3)  # a before b and c; c before b
    assert "1.00" in to_markdown(mean_rank_table(orders))
    assert "-1.00" in to_markdown(agreement_table(orders))


def test_the_last_round_is_the_end_of_the_curve(tmp_path: Path, made: SimpleNamespace) -> None:
    """Curves in the files rise to their score except for a's, which falls below all others."""
    folder = made.write(tmp_path / "results", rows(made))
    store = Store(folder)
    for row in store.rows("demo"):
        if row.method == "a":
            store.write_history("demo", row.key, {"history": {"round": [1, 2, 3], "score": [0.9, 0.9, 0.2]}})
    (board,) = load_boards(folder)
    found = Ranking(board).alternatives.mean_ranks
    assert found["Last round"].to_dict() == {"a": 3, "b": 1, "c": 2}
    assert found["Selected round"].to_dict() == {"a": 1, "b": 2, "c": 3}


def test_a_lost_curve_leaves_its_method_out(tmp_path: Path, made: SimpleNamespace) -> None:
    more = [made.row("cora", "d", seed, 0.1) for seed in (0, 1)]
    folder = made.write(tmp_path / "results", [*rows(made), *more])
    key = next(row.key for row in Store(folder).rows("demo") if row.method == "b")
    (folder / "demo" / "history" / f"{key}.json.gz").unlink()
    (board,) = load_boards(folder)
    last = Ranking(board).alternatives.mean_ranks["Last round"]
    assert np.isnan(last["b"])
    assert last.drop("b").to_dict() == {"a": 1, "c": 2, "d": 3}


def test_two_methods_have_no_orders(made: SimpleNamespace) -> None:
    assert Ranking(made.board([made.row("cora", name, 0, 0.5) for name in "ab"])).alternatives.mean_ranks.empty
