"""A study: its draws, resumed trials, the choice, and that test labels do not matter."""

from __future__ import annotations

import json
import random

import pytest
import torch

from fglbench.benchmark.runner.execute import FederationCache
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.tune.design import TABLE, TRIALS
from fglbench.benchmark.tune.session import Wanted, studies
from fglbench.registry import UserError


def rows_of(study, value):
    """Rows of the current rung with `value` (of a cell) as validation score."""
    rows = {}
    for cell in study.cells():
        row = cell.row("tiny", status="ok", started="", environment="e")
        rows[cell.key] = row.model_copy(update={"val": value(cell), "rounds": cell.training.rounds})
    return rows


def test_the_budget_equals_a_count_by_hand_for_all_methods() -> None:
    by_dataset = studies(Wanted("leaderboard", methods=("local", "global", "scaffold", "fedomd"), datasets=("cora",)))
    budgets = {
        study.cell.method.name: (study.sizes, study.rungs, study.rounds, study.size) for study in by_dataset["cora"]
    }
    budget = ([16, 4], [33, 100], 16 * 33 + 4 * 100, 20)
    assert budgets == dict.fromkeys(("local", "global", "scaffold", "fedomd"), budget)


def test_the_rounds_run_are_the_rounds_of_the_budget(study, carried_out) -> None:
    search = study(trials=5, seeds=(100, 101))
    rows = carried_out(search)
    assert sum(row.rounds for row in rows) == search.rounds == search.ran == 2 * (5 * 3 + 2 * 9)
    assert len(rows) == search.size == 14
    assert {row.seed for row in rows} == {100, 101}
    assert {row.tuning for row in rows} == {'{"trial":true}'}


def test_a_rung_keeps_the_default_and_the_best_others(study) -> None:
    """Against the obvious: sort them all."""
    draw = random.Random(3)
    search = study("fedprox", trials=14)
    for size in (14, 3):
        assert len(search.alive) == size and search.alive[0].number == 0
        before, worth = search.alive, {trial.number: round(draw.random(), 1) for trial in search.alive}  # with ties
        by_key = {cell.key: worth[trial.number] for trial in search.alive for cell in search._cells(trial)}
        search.tell(rows_of(search, lambda cell, by_key=by_key: by_key[cell.key]))
        best = sorted((trial for trial in before if trial.number), key=lambda t: (-worth[t.number], t.number))
        keep = {14: 3, 3: 0}[size]
        assert [t.number for t in search.alive] == ([0, *sorted(t.number for t in best[: keep - 1])] if keep else [])
    chosen = search.chosen("")
    assert search.trials[chosen.trial].number == max(worth, key=lambda n: (worth[n], -n))
    assert (chosen.default, chosen.val) == (worth[0], max(worth.values()))


def test_all_methods_are_given_the_same_optimiser_settings() -> None:
    names = ("fedavg", "local", "fedprox", "fedsage", "scaffold")
    by_method = {
        study.cell.method.name: study
        for study in studies(Wanted("leaderboard", methods=names, datasets=("cora",)))["cora"]
    }
    shared = ("training.optimiser", "training.weight_decay", "backbone.dropout")
    rows = {
        name: [tuple(point.get(field) for field in shared) for point in study.points]
        for name, study in by_method.items()
    }
    assert rows["fedavg"] == rows["local"] == rows["fedsage"] == rows["fedprox"]
    assert rows["fedavg"][0] == ('{"lr":0.01,"optimiser":"adam"}', '{"weight_decay":0.0005}', '{"dropout":0.5}')
    assert len(set(rows["fedavg"])) == 16
    # SCAFFOLD sets SGD: its rate replaces that of the optimiser, the other columns are equal.
    assert [row[1:] for row in rows["scaffold"]] == [row[1:] for row in rows["fedavg"]]
    rates = {json.loads(point["method.lr"])["lr"] for point in by_method["scaffold"].points}
    assert rates == {0.05, 0.1, 0.25, 0.5, 1, 1.5, 2, 3}


def test_the_table_spans_the_rates_of_the_protocol_and_repeats_nothing() -> None:
    rates = {name: [row.rate for row in TABLE if row.optimiser == name] for name in ("sgd", "adam")}
    assert (min(rates["sgd"]), max(rates["sgd"])) == (0.05, 3)
    assert (min(rates["adam"]), max(rates["adam"])) == (0.001, 0.1)
    assert (min(row.sgd_rate for row in TABLE), max(row.sgd_rate for row in TABLE)) == (0.05, 3)
    assert len(set(TABLE)) == len({row[:4] for row in TABLE}) == TRIALS - 1  # and that of the suite


@pytest.mark.parametrize("suite", ["node-3", "graph-3"])
def test_all_methods_of_a_leaderboard_are_tried_with_the_same_number_of_settings(suite) -> None:
    by_dataset = studies(Wanted(suite))
    assert {len(study.points) for group in by_dataset.values() for study in group} == {TRIALS}


def test_a_method_with_fewer_settings_is_tried_with_all_of_them(study) -> None:
    points = study("t-few").points
    dropouts = {json.loads(point["backbone.dropout"])["dropout"] for point in points}
    assert len(points) == len(dropouts) == len({row.dropout for row in TABLE}) < TRIALS


def test_a_random_design_draws_from_the_ranges_anew_for_each_method_and_dataset() -> None:
    by_dataset = studies(Wanted("node-3-random", datasets=("cora", "citeseer")))
    points = {(study.cell.method.name, name): study.points for name, group in by_dataset.items() for study in group}
    again = studies(Wanted("node-3-random", datasets=("cora",)))["cora"]
    assert all(study.points == points[study.cell.method.name, "cora"] for study in again)
    drawn = {key: [json.dumps(point, sort_keys=True) for point in design[1:]] for key, design in points.items()}
    assert {len(design) for design in points.values()} == {24} and len(
        {point for design in drawn.values() for point in design}
    ) == 23 * len(drawn)
    for design in points.values():
        for point in design[1:]:
            optimiser = json.loads(point.get("training.optimiser", '{"optimiser": "adam", "lr": 0.1}'))
            low, high = {"adam": (0.001, 0.1), "sgd": (0.05, 3)}[optimiser["optimiser"]]
            assert low <= optimiser["lr"] <= high
            assert 0 <= json.loads(point["training.weight_decay"])["weight_decay"] <= 0.01
    rates = [json.loads(p["training.optimiser"]) for p in points["fedavg", "cora"][1:]]
    assert {rate["optimiser"] for rate in rates} == {"adam", "sgd"}
    assert len({rate["lr"] for rate in rates}) == len(rates)  # no grid


def test_more_trials_begin_with_the_fewer_and_try_each_own_value(study) -> None:
    few, many = study("fedprox", trials=4), study("fedprox", trials=9)
    assert few.points == many.points[:4]
    assert [trial.params for trial in many.trials] == many.points
    assert len({point["method.mu"] for point in study("fedprox").points}) == 4  # each value is tried


def test_a_planted_optimum_is_found(study, carried_out) -> None:
    search = study("t-planted", trials=6)
    carried_out(search)
    chosen = search.chosen("0" * 40)
    assert chosen.method == {"key": 7}
    assert chosen.val > 0.5 > chosen.default
    assert chosen.study == search.id and chosen.study.startswith("tiny/t-planted/csbm/")


class Permuted(FederationCache):
    """Test nodes have other labels, everywhere."""

    def _build(self, cell):
        federation = super()._build(cell)
        test, label = federation.masks["test"], federation.whole.label
        label[test] = (label[test] + 1) % 3
        for client in federation.clients:
            columns = client.graph.ndata
            columns["label"] = label[columns["global_id"]]
        return federation


def test_test_labels_do_not_matter(study, carried_out) -> None:
    first, second = study("fedprox", trials=6), study("fedprox", trials=6)
    rows, other = carried_out(first), carried_out(second, Permuted())
    assert [row.key for row in rows] == [row.key for row in other]
    assert [row.val for row in rows] == [row.val for row in other]
    assert sum(row.score != twin.score for row, twin in zip(rows, other, strict=True)) > len(rows) / 2
    assert first.chosen("") == second.chosen("")
    assert torch.isfinite(torch.tensor([row.val for row in rows])).all()


def test_a_trial_that_failed_goes_no_further_and_others_do(study) -> None:
    search = study(trials=4)

    def failed(row: Row) -> Row:
        return row.model_copy(update={"status": "timeout", "error": "too slow", "val": None})

    rows = rows_of(search, lambda cell: 0.5)
    bad = search.cells()[0].key  # the default
    search.tell(rows | {bad: failed(rows[bad])})
    assert len(search.alive) == 2 and 0 not in [trial.number for trial in search.alive]
    while search.cells():
        search.tell(rows_of(search, lambda cell: 0.5))
    assert search.chosen("").default is None


def test_if_all_trials_fail_the_first_reason_is_the_error(study, carried_out) -> None:
    search = study("t-broken", trials=3)
    rows = carried_out(search)
    assert [row.status for row in rows] == ["failed"] * 3  # each is a row
    with pytest.raises(UserError, match=r"tiny/t-broken/csbm/.*: all trials failed, .*no luck.*nothing was chosen"):
        search.chosen("")


@pytest.mark.parametrize(
    ("method", "values", "message"),
    [
        ("t-outside", {}, "mu: input should be greater than or equal to 0, got -1"),
        ("t-greedy", {}, "tunes 3 parameters of its own; at most 2"),
        ("t-fixed", {}, "nothing to tune"),
        ("fedavg", {"trials": 17}, "fedavg has only 16 settings on csbm; use --trials 16"),
        ("fedavgg", {}, "did you mean 'fedavg'"),
        ("fedavg", {"seeds": (1,)}, "seed 1 cannot be tuned on: suite 'tiny' scores it"),
        ("fedavg", {"seeds": (100, 99)}, "seed 99 cannot be tuned on: seeds below 100 are for scores"),
    ],
)
def test_an_invalid_study_is_one_line(study, method, values, message) -> None:
    with pytest.raises(UserError, match=message) as caught:
        study(method, **values)
    assert "\n" not in str(caught.value)


def test_a_suite_without_validation_is_refused() -> None:
    with pytest.raises(UserError, match="clustered without validation"):
        studies(Wanted("clustering"))


def test_sets_of_graphs_that_are_classified_have_validation() -> None:
    by_dataset = studies(Wanted("graph", methods=("scaffold", "gcfl"), datasets=("mutag",)))
    scaffold, gcfl = by_dataset["mutag"]
    assert scaffold.cell.task == gcfl.cell.task == "graph-classification"
    (nodes,) = studies(Wanted("leaderboard", methods=("fedavg",), datasets=("cora",)))["cora"]
    assert nodes.cell.task == "node"  # the split has labels there too
    assert scaffold.rungs == gcfl.rungs
    rates = {json.loads(point["method.lr"])["lr"] for point in scaffold.points}
    hundredth = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03}  # of the others' rates
    assert rates == hundredth  # the suite's own: 0.001
