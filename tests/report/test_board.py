"""Tasks, entries, coverage and rankings of rows; verification marks; the order of boards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fglbench.benchmark.cli.run import _tables
from fglbench.benchmark.store import Store, verified
from fglbench.benchmark.store.verified import Verified
from fglbench.benchmark.suites import catalogue
from fglbench.benchmark.suites.suite import load_suite, suite_names
from fglbench.metrics import FALLING
from fglbench.registry import UserError
from fglbench.report import build, leaderboard, tables
from fglbench.report.compare import as_text, compare, comparisons
from fglbench.report.display_names import _short_names
from fglbench.report.loading import load_boards
from fglbench.report.provenance import missing
from fglbench.report.ranking import Ranking

from . import samples


def test_demo_board_by_hand() -> None:
    board = samples.board(samples.demo())
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


def test_seeds_not_run_are_missing() -> None:
    rows = [samples.row("cora", "a", s, 0.5) for s in range(4)] + [samples.row("cora", "b", 0, 0.6)]
    rows += [samples.row("wiki", "a", 0, 0.5)]
    board = samples.board(rows)
    assert missing(board, "b") == ["cora: seed 1\N{EN DASH}3 not run", "wiki: not run"]
    assert board.ranked == ["a"]


def test_tasks_without_scores_do_not_change_the_ranking() -> None:
    rows = samples.demo() + [samples.row("arxiv", m, 0, error="no features") for m in ("alpha", "beta")]
    board = samples.board(rows)
    assert board.dead_tasks == ["arxiv"]
    assert board.ranked == ["alpha", "beta", "gamma"]


def test_one_dataset_with_two_partitions_is_two_tasks_and_one_unit() -> None:
    rows = [samples.row("cora", name, 0, score) for name, score in (("a", 0.9), ("b", 0.8))]
    metis = {"partition": "metis", "partition_params": "{}", "clients": 5}
    rows += [samples.row("cora", name, 0, score, **metis) for name, score in (("a", 0.5), ("b", 0.4))]
    board = samples.board(rows)
    assert board.tasks == ["cora (louvain, 10 clients)", "cora (metis, 5 clients)"]
    assert board.by_dataset.loc["cora", "a"] == pytest.approx(0.7)


def test_a_federation_of_graph_sets_has_a_short_name_if_it_is_unique() -> None:
    names = ["cora", "domains:mutag+bzr+nci1", "domains:mutag+nci1"]
    assert list(_short_names(names).values()) == ["cora", "3 sets, mutag to nci1", "2 sets, mutag to nci1"]
    same = ["domains:mutag+bzr+nci1", "domains:mutag+dhfr+nci1"]
    assert _short_names(same) == {name: name for name in same}


def test_settings_of_a_method_are_separate_entries() -> None:
    rows = [samples.row("cora", "fedprox", 0, 0.5 + mu, method_params=f'{{"mu":{mu},"x":1}}') for mu in (0.01, 0.1)]
    assert samples.board(rows).entrants == ["fedprox (mu=0.01)", "fedprox (mu=0.1)"]
    other_task = [samples.row("cora", "a", 0, 0.5), samples.row("enzymes", "a", 0, 0.5, task="graph", backbone="gin")]
    assert samples.board(other_task).entrants == ["a"]  # the backbone changes with the task only


def test_leaders_use_paired_seeds() -> None:
    """Seeds differ much more than methods: b is worse than a by pairs, c is a with noise."""
    rows = []
    for seed, level in enumerate((0.5, 0.7, 0.6, 0.9, 0.8)):
        scores = {"a": level, "b": level - 0.01 - 0.0001 * seed, "c": level + (0.05 if seed % 2 else -0.04)}
        rows += [samples.row("cora", name, seed, score) for name, score in scores.items()]
    best, equal = samples.ranking(rows).leaders["cora"]
    assert (set(best), set(equal)) == ({"a"}, {"c"})


def test_any_row_can_mark_a_reference() -> None:
    """One row is enough: rows of older schemas know only one reference."""
    rows = [samples.row("cora", "central", s, 0.9, reference=s == 1) for s in (0, 1)]
    board = samples.board(samples.demo() + rows)
    assert board.references == {"central", "global"}
    best, equal = Ranking(board).leaders["cora"]
    assert best == {"alpha"} and not equal & board.references


def test_compare_by_hand() -> None:
    duel = compare(samples.board(samples.demo()), "gamma", "delta")
    assert duel.tasks["task"].tolist() == ["cora", "pubmed"]
    assert duel.tasks["n"].tolist() == [1, 2]
    assert duel.tasks["difference"].round(6).tolist() == [0.1, 0.104]
    assert duel.mean == pytest.approx(0.102)
    assert "Too few datasets and seeds" in duel.verdict
    assert "+10.20" in as_text(duel)


def test_scores_of_two_metrics_on_one_dataset_are_averaged_apart() -> None:
    """As after `run --data FOLDER`, then the same with --metric roc-auc: a mean per metric, none of both."""
    rows = [
        samples.row("own:x", name, seed, score + seed / 100, dataset_params=f'{{"metric":"{metric}"}}',
                    score_metric=f"{title}, global model, local test, mean over clients")
        for metric, title, scores in (("accuracy", "accuracy", (0.5, 0.4)), ("roc-auc", "ROC AUC", (0.9, 0.7)))
        for name, score in zip(("a", "b"), scores, strict=True)
        for seed in range(3)
    ]  # fmt: skip
    board = samples.board(rows)
    assert board.dataset_of == {
        "own:x (metric=accuracy)": "own:x (accuracy)", "own:x (metric=roc-auc)": "own:x (ROC AUC)"
    }  # fmt: skip
    ranking = Ranking(board)
    assert ranking.table.loc["a", ["score", "other"]].tolist() == pytest.approx([0.51, 0.91])
    assert ranking.inference.difference("a", "b").mean == pytest.approx(0.1)
    assert compare(board, "a", "b").mean == pytest.approx(0.1)
    shown = [str(table.columns[1].header) for table in _tables(board)]
    assert shown == ["accuracy, % (mean ± sd)", "ROC AUC, % (mean ± sd)"]


def test_errors_in_the_units_of_datasets_are_never_averaged() -> None:
    """Scaled errors of two datasets have a mean; errors in the unit of a dataset (scaled=false) stay apart."""
    kind = f"RMSE {FALLING}, global model, local test, mean over clients"
    errors = {("esol", "true"): 0.5, ("freesolv", "true"): 0.7, ("esol", "false"): 1.1, ("freesolv", "false"): 3.5}
    rows = [
        samples.row(dataset, name, seed, error + 0.1 * (name == "b") + seed / 100, score_metric=kind,
                    macro_f1=None, dataset_params=f'{{"scaled":{scaled},"score":"rmse"}}')
        for (dataset, scaled), error in errors.items() for name in ("a", "b") for seed in range(3)
    ]  # fmt: skip
    board = samples.board(rows)
    assert sorted(set(board.metrics.values())) == [
        f"RMSE {FALLING}", f"RMSE {FALLING}, unscaled esol", f"RMSE {FALLING}, unscaled freesolv"
    ]  # fmt: skip
    assert board.metric == f"RMSE {FALLING}"
    assert abs(Ranking(board).table.loc["a", "score"]) == pytest.approx(0.61)
    duel = compare(board, "a", "b")
    assert duel.mean == pytest.approx(0.1) and duel.scope == "2 datasets of one metric"


def test_compare_names_the_settings_of_a_method_with_several(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [samples.row("cora", "a", 0, 0.5)]
    rows += [samples.row("cora", "b", 0, mu, method_params=f'{{"mu":{mu}}}') for mu in (0.1, 0.5)]
    monkeypatch.setattr("fglbench.report.compare.load_boards", lambda results: [samples.board(rows)])
    with pytest.raises(UserError, match=r"'b' has results with several settings; name one: 'b \(mu=0.1\)'"):
        comparisons("a", "b", None, tmp_path)
    assert comparisons("a", "b (mu=0.5)", None, tmp_path)[0].mean == pytest.approx(0)


def test_compare_names_the_datasets_of_the_mean() -> None:
    """Two seeds on one dataset are too few for the mean over seeds, so it is over the other dataset."""
    rows = [
        samples.row(dataset, name, seed, score + seed / 100)
        for dataset, seeds in (("cora", 2), ("pubmed", 3))
        for name, score in (("a", 0.5), ("b", 0.4 if dataset == "cora" else 0.45))
        for seed in range(seeds)
    ]
    text = as_text(compare(samples.board(rows), "a", "b"))
    assert "Mean over 1 dataset with at least 3 common seeds: +5.00" in text
    assert "The mean of a is better on 2 of 2 datasets, equal on 0, worse on 0." in text


def test_compare_says_which_error_is_better() -> None:
    rows = [
        samples.row(
            "esol", name, seed, error + seed / 100, score_metric="RMSE (lower is better), global model, local test"
        )
        for name, error in (("a", 0.4), ("b", 0.5))
        for seed in range(3)
    ]
    text = as_text(compare(samples.board(rows), "a", "b"))
    assert "points over common seeds (of errors reversed: positive is better)" in text
    assert "Mean over 1 dataset: +10.00" in text and "The mean of a is better on 1 of 1 dataset, " in text


def test_compare_tests_six_datasets() -> None:
    gaps = {name: 0.1 + 0.01 * i for i, name in enumerate("uvwxyz")}
    rows = [
        samples.row(data, name, s, 0.5 + gaps[data] * (name == "a")) for data in gaps for name in "ab" for s in (0, 1)
    ]
    duel = compare(samples.board(rows), "a", "b")
    assert (duel.low, duel.high) > (0.01, 0.01)
    assert "Over datasets, a is better than b" in duel.verdict
    assert "equivalent 0.00, better 1.00" in duel.verdict


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
    verified.add(results, [verdict(rows["alpha", "cora", 0]), verdict(rows["alpha", "wiki", 1])])
    verified.add(results, [verdict(rows["beta", "cora", 0]), verdict(rows["beta", "cora", 1], passed=False)])
    assert marks(results) == {"alpha": " ✓2", "beta": " ✗1/2"}
    text = build.make(results, None, figures=False).texts[results / "LEADERBOARD.md"]
    for shown in ("| alpha ✓2 ", "| beta ✗1/2 ", "| gamma ", "- ✓n: the maintainers ran n rows"):
        assert shown in text


def test_the_last_verdict_on_a_row_counts_and_is_invalid_after_its_row_changes(results: Path, rows) -> None:
    row = rows["alpha", "cora", 0]
    others = ({"suite": "other"}, {"key": "0" * 16}, {"score": 0.123})
    verified.add(results, [verdict(row, **changes) for changes in others])
    assert marks(results) == {}
    verified.add(results, [verdict(row, passed=False), verdict(row)])
    assert marks(results) == {"alpha": " ✓1"}
    Store(results).append_row(row.model_copy(update={"score": 0.9}))
    assert marks(results) == {}
    Store(results).append_row(row)
    assert marks(results) == {"alpha": " ✓1"}
    Store(results).append_row(row.model_copy(update={"method_version": "f" * 12}))
    assert marks(results) == {}


def test_boards_are_in_the_order_of_their_suites(tmp_path: Path) -> None:
    names = ["quick", "clustering", "zzz", "heterogeneous", "aaa", "overlap", "heterogeneous-depth", "leaderboard"]
    rows = [
        samples.row("cora", method, 0, score, suite=name)
        for name in names
        for method, score in (("a", 0.5), ("b", 0.4))
    ]
    folder = samples.write(tmp_path / "results", rows, curves=False)
    page = tmp_path / "README.md"
    page.write_text(leaderboard.BEGIN + leaderboard.END)
    texts = build.make(folder, page, figures=False).texts
    headings = [line[3:] for line in texts[folder / "LEADERBOARD.md"].splitlines() if line.startswith("## ")]
    official = [
        "Node classification, published defaults", "Mixed architectures, published defaults",
        "Mixed depths, published defaults", "Overlapping clients, published defaults", "Graph clustering",
    ]  # fmt: skip
    assert headings[:-1] == official
    others = "[aaa](aaa/LEADERBOARD.md), [zzz](zzz/LEADERBOARD.md), [quick](quick/LEADERBOARD.md)"
    assert f"- Other suites: {others}\n" in texts[folder / "LEADERBOARD.md"]
    assert all(texts[folder / name / "LEADERBOARD.md"].splitlines()[1].startswith("# ") for name in names)
    shown = [line.split("**")[1] for line in texts[page].splitlines() if line.startswith("**")]
    assert shown == official[:1]  # the README has only the first board


def test_leaderboard_suites_have_distinct_places() -> None:
    suites = [load_suite(name) for name in suite_names()]
    placed = {suite.name: suite.order for suite in suites if suite.order is not None}
    assert set(placed) == {suite.name for suite in suites if suite.leaderboard}
    assert len(set(placed.values())) == len(placed)
    assert all(catalogue.is_board(name) for name in placed)
    assert all(catalogue.board_title(suite.name) == suite.title for suite in suites if suite.name in placed)
    assert sorted(placed, key=catalogue.board_order) == sorted(placed, key=lambda name: placed[name])
