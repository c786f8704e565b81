"""Comparisons of the methods of a board by hand: unit, verdicts, letters, other rankings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fglbench.benchmark.cli.run import show_ranking
from fglbench.benchmark.store import Store
from fglbench.report.cells import difference_cell, to_markdown
from fglbench.report.loading import load_boards
from fglbench.report.ranking import Ranking
from fglbench.report.special_tables import agreement_table, alternatives_table
from fglbench.report.tables import ranking_table

from . import samples

NOISE = {"fedavg": (0, 1, -1), "local": (1, -1, 0), "high": (-1, 0, 1), "level": (-1, 1, 0)}


def rows(datasets: str, seeds: int = 3) -> list:
    """`high` is 5 points above fedavg, `local` 5 below, `level` equal up to a tenth of a point."""
    lift = {"fedavg": 0.0, "local": -0.05, "high": 0.05, "level": 0.0}
    return [
        samples.row(dataset, name, seed, 0.6 + 0.01 * at + lift[name] + 0.001 * (at + 1) * NOISE[name][seed])
        for at, dataset in enumerate(datasets)
        for name in lift
        for seed in range(seeds)
    ]


def test_few_datasets_are_judged_by_their_seeds() -> None:
    ranking = samples.ranking(rows("abc"))
    inference = ranking.inference
    assert ranking.table["mean_rank"].is_monotonic_increasing
    assert (inference.unit, inference.baselines) == ("seed", ["fedavg", "local"])
    verdicts = {name: difference.verdict for name, difference in inference.against["fedavg"].items()}
    assert verdicts == {"high": "better", "level": "equivalent", "local": "worse"}
    assert inference.against["fedavg"]["high"].mean == pytest.approx(0.05)
    assert inference.groups == {"high": "a", "fedavg": "b", "level": "b", "local": "c"}
    assert inference.leaders == ["high"]
    assert "on 3 datasets: results apply to the mean over these tasks only." in inference.text
    assert "0 of the other 3 share one with the first by mean rank" in inference.text
    assert inference.task_counts["fedavg"]["high"] == (3, 0)
    assert inference.task_counts["fedavg"]["level"] == (0, 0)
    assert inference.task_counts["fedavg"]["local"] == inference.task_counts["local"]["fedavg"][::-1]
    assert np.isnan(inference.new_dataset("high", "fedavg")).all()


def test_enough_datasets_are_the_unit() -> None:
    inference = samples.ranking(rows("abcdefgh", seeds=1)).inference
    assert inference.unit == "dataset"
    assert {name: difference.verdict for name, difference in inference.against["local"].items()} == dict.fromkeys(
        ["high", "fedavg", "level"], "better"
    )
    assert inference.groups["high"] == "a"
    assert inference.new_dataset("high", "fedavg")[0] > 0.03
    assert "compared over 8 datasets: results apply to similar datasets." in inference.text
    assert samples.ranking(rows("abcde", seeds=1)).inference.unit == "none"  # the same rule: at least 6


def test_the_terminal_shows_the_differences_of_the_board() -> None:
    ranking = samples.ranking(rows("abcdefgh", seeds=1))
    (table,) = show_ranking(ranking)
    shown = list(table.columns[3].cells)
    assert shown == [
        "baseline" if name == "fedavg" else str(difference_cell(difference).text)
        for name, difference in ((n, ranking.inference.against["fedavg"].get(n)) for n in ranking.table.index)
    ]


def test_an_outlier_against_the_ranks_gives_no_verdict() -> None:
    """Method odd is two points above fedavg on nine datasets and fifty below on one."""
    entries = [samples.row(d, "fedavg", 0, 0.6 + 0.001 * i) for i, d in enumerate("abcdefghij")]
    entries += [samples.row(d, "odd", 0, 0.62 + 0.001 * i if d != "j" else 0.1) for i, d in enumerate("abcdefghij")]
    inference = samples.ranking(entries).inference
    assert inference.against["fedavg"]["odd"].verdict == "undecided"
    assert inference.groups == {"odd": "a", "fedavg": "a"}


def test_two_metrics_are_not_averaged() -> None:
    """Seven datasets by accuracy, and one by ROC AUC with the opposite order and a gap of 40 points."""
    entries = []
    for place, dataset in enumerate("abcdefgz"):
        metric = "ROC AUC" if dataset == "z" else "accuracy"
        for name, score in {"fedavg": 0.5, "high": 0.55 if dataset != "z" else 0.1}.items():
            entries.append(
                samples.row(dataset, name, 0, score + 0.001 * place, score_metric=f"{metric}, global model, local test")
            )
    ranking = samples.ranking(entries)
    assert ranking.board.metric == "accuracy"
    assert ranking.table.loc["high", "score"] == pytest.approx(0.553)
    assert ranking.table.loc["high", "other"] == pytest.approx(0.107)
    assert ranking.inference.against["fedavg"]["high"].mean == pytest.approx(0.05)
    assert ranking.table.loc["high", "mean_rank"] == pytest.approx((7 + 2) / 8)  # ranks are over all
    titles = ranking_table(ranking).titles
    assert {"Mean accuracy, %", "ROC AUC, %"} <= set(titles)
    (shown,) = show_ranking(ranking)
    assert list(shown.columns[0].cells) == list(ranking.table.index) == ["high", "fedavg"]
    assert list(shown.columns[1].cells) == ["1.12", "1.88"]
    assert shown.columns[2].header == "score, % (7 datasets)"


def test_without_seeds_and_datasets_nothing_is_compared() -> None:
    ranking = samples.ranking(rows("abc", seeds=2))
    assert (ranking.inference.unit, ranking.inference.groups) == ("none", {})
    assert set(ranking.table["group"]) == {""}
    assert np.isnan(ranking.inference.difference("high", "local").mean)
    assert "nothing is compared" in ranking.outcome
    alone = samples.ranking([samples.row("cora", "a", seed, 0.5) for seed in range(3)]).inference
    assert alone.unit == "none" and "nothing to compare" in alone.text


def test_tasks_of_one_dataset_are_averaged_for_each_seed() -> None:
    """Cora twice with +2 and +4 points, wiki once with +9: (3 + 9) / 2. Cora's tasks are not independent: 2 + 2 degrees
    of freedom."""
    entries = []
    for dataset, clients, gap in (("cora", 5, 0.02), ("cora", 10, 0.04), ("wiki", 5, 0.09)):
        for seed, noise in enumerate((0.001, -0.001, 0.0)):
            entries += [samples.row(dataset, "a", seed, 0.5, clients=clients)]
            entries += [samples.row(dataset, "b", seed, 0.5 + gap + noise, clients=clients)]
    difference = samples.ranking(entries).inference.difference("b", "a")
    assert difference.mean == pytest.approx(0.06)
    error = (2 * 0.5**2 * 1e-6 / 3) ** 0.5
    below = stats.t.cdf(0.01, 4, loc=0.06, scale=error)
    assert [difference.low, difference.high] == pytest.approx(stats.t.interval(0.95, 4, loc=0.06, scale=error))
    assert 1 - difference.better == pytest.approx(below)


SCORES = {"a": (0.9, 0.1, 0.3), "b": (0.8, 0.2, 0.1), "c": (0.7, 0.3, 0.2)}  # score, macro-F1, own model


def rows_alternative_rankings() -> list:
    return [
        samples.row("cora", name, seed, score, macro_f1=f1, personal_on_local=personal)
        for name, (score, f1, personal) in SCORES.items()
        for seed in (0, 1)
    ]


def test_orders_and_their_agreement_by_hand() -> None:
    ranking = samples.ranking(rows_alternative_rankings())
    assert list(ranking.mean_ranks) == ["Selected round", "Macro-F1", "Own model"]  # no curves: no last round
    assert ranking.mean_ranks["Macro-F1"].to_dict() == {"a": 3, "b": 2, "c": 1}
    tau = ranking.agreement
    assert tau.loc["Selected round", "Macro-F1"] == pytest.approx(-1)
    assert tau.loc["Selected round", "Own model"] == pytest.approx(1 / 3)  # a before b and c; c before b
    assert "1.00" in to_markdown(alternatives_table(ranking))
    assert "-1.00" in to_markdown(agreement_table(ranking))


def test_the_last_round_is_the_end_of_the_curve(tmp_path: Path) -> None:
    """The stored curves end at their score, except that of a, which falls below all others."""
    folder = samples.write(tmp_path / "results", rows_alternative_rankings())
    store = Store(folder)
    for row in store.rows("demo"):
        if row.method == "a":
            store.write_history("demo", row.key, {"history": {"round": [1, 2, 3], "score": [0.9, 0.9, 0.2]}})
    (board,) = load_boards(folder)
    mean_ranks = Ranking(board).mean_ranks
    assert mean_ranks["Last round"].to_dict() == {"a": 3, "b": 1, "c": 2}
    assert mean_ranks["Selected round"].to_dict() == {"a": 1, "b": 2, "c": 3}


def test_methods_with_a_missing_curve_have_no_last_round(tmp_path: Path) -> None:
    more = [samples.row("cora", "d", seed, 0.1) for seed in (0, 1)]
    folder = samples.write(tmp_path / "results", [*rows_alternative_rankings(), *more])
    key = next(row.key for row in Store(folder).rows("demo") if row.method == "b")
    (folder / "demo" / "history" / f"{key}.json.gz").unlink()
    (board,) = load_boards(folder)
    last = Ranking(board).mean_ranks["Last round"]
    assert np.isnan(last["b"])
    assert last.drop("b").to_dict() == {"a": 1, "c": 2, "d": 3}


def test_two_methods_have_no_alternative_rankings() -> None:
    assert samples.ranking([samples.row("cora", name, 0, 0.5) for name in "ab"]).mean_ranks.empty
