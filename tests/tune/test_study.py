"""A study: what it draws, what goes on, what it chooses, and what it must not see."""

from __future__ import annotations

import random

import pytest
import torch

from fglbench.benchmark.runner.execute import FederationCache
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.tune.session import Wanted, studies
from fglbench.registry import UserError


def rows_of(study, value):
    """Rows of the rung that is due, as if `value` (of a cell) had been measured."""
    found = {}
    for cell in study.cells():
        row = cell.row("tiny", status="ok", started="", environment="e")
        found[cell.key] = row.model_copy(update={"val": value(cell), "rounds": cell.training.rounds})
    return found


def test_the_budget_is_that_of_a_count_by_hand_and_the_same_for_all() -> None:
    found = studies(Wanted("leaderboard", methods=("local", "global", "scaffold", "fedomd"), datasets=("cora",)))
    assert {(tuple(own.sizes), tuple(own.rungs), own.rounds, own.size) for own in found["cora"]} == {
        ((12, 4, 2), (11, 33, 100), 12 * 11 + 4 * 33 + 2 * 100, 18)
    }


def test_what_is_granted_is_what_is_run(study, carried_out) -> None:
    own = study(trials=5, seeds=(100, 101))
    rows = carried_out(own)
    assert sum(row.rounds for row in rows) == own.rounds == own.ran == 2 * (5 * 1 + 2 * 3 + 2 * 9)
    assert len(rows) == own.size == 18
    assert {row.seed for row in rows} == {100, 101}
    assert {row.tuning for row in rows} == {'{"trial":true}'}


def test_a_rung_keeps_the_default_and_the_best_others(study) -> None:
    """Against the obvious: sort them all."""
    draw = random.Random(3)
    own = study("fedprox", trials=10)
    for size in (10, 3, 2):
        assert len(own.alive) == size and own.alive[0].number == 0
        before, worth = own.alive, {trial.number: round(draw.random(), 1) for trial in own.alive}  # with ties
        by_key = {cell.key: worth[trial.number] for trial in own.alive for cell in own._cells(trial)}
        own.tell(rows_of(own, lambda cell, by_key=by_key: by_key[cell.key]))
        best = sorted((trial for trial in before if trial.number), key=lambda t: (-worth[t.number], t.number))
        keep = {10: 3, 3: 2, 2: 0}[size]
        assert [t.number for t in own.alive] == ([0, *sorted(t.number for t in best[: keep - 1])] if keep else [])
    chosen = own.chosen("")
    assert own.trials[chosen.trial].number == max(worth, key=lambda n: (worth[n], -n))
    assert (chosen.default, chosen.val) == (worth[0], max(worth.values()))


def test_methods_are_given_the_same_points_of_the_space_they_share() -> None:
    found = studies(Wanted("leaderboard", methods=("fedavg", "local", "lg-fedavg"), datasets=("cora",)))["cora"]
    points = [[tuple(trial.params.items()) for trial in own.trials] for own in found]
    assert points[0] == points[1] == points[2]
    assert len(set(points[0])) == 12
    assert dict(points[0][0])["training.optimiser"] == '{"lr":0.01,"optimiser":"adam"}'
    levels = {dict(point)["training.optimiser"] for point in points[0]}
    assert len(levels) == 6  # each optimiser and rate is tried


def test_more_trials_begin_with_the_fewer(study) -> None:
    few, many = study(trials=4), study(trials=9)
    assert [t.params for t in few.trials] == [t.params for t in many.trials][:4]
    assert [t.params for t in study(trials=9, seeds=(101,)).trials] != [t.params for t in many.trials]


def test_a_planted_optimum_is_found(study, carried_out) -> None:
    own = study("t-planted", trials=6)
    carried_out(own)
    chosen = own.chosen("0" * 40)
    assert chosen.method == {"key": 7}
    assert chosen.val > 0.5 > chosen.default
    assert chosen.study == own.id and chosen.study.startswith("tiny/t-planted/csbm/")


class Permuted(FederationCache):
    """Test nodes have other labels, everywhere."""

    def _build(self, cell):
        federation = super()._build(cell)
        test, label = federation.masks["test"], federation.whole.label
        label[test] = (label[test] + 1) % 3
        for client in federation.clients:
            own = client.graph.ndata
            own["label"] = label[own["global_id"]]
        return federation


def test_test_labels_do_not_matter(study, carried_out) -> None:
    first, second = study("fedprox", trials=6), study("fedprox", trials=6)
    rows, other = carried_out(first), carried_out(second, Permuted())
    assert [row.key for row in rows] == [row.key for row in other]
    assert [row.val for row in rows] == [row.val for row in other]
    assert all(row.score != twin.score for row, twin in zip(rows, other, strict=True))
    assert first.chosen("") == second.chosen("")
    assert torch.isfinite(torch.tensor([row.val for row in rows])).all()


def test_a_trial_that_failed_goes_no_further_and_others_do(study) -> None:
    own = study(trials=4)

    def failed(row: Row) -> Row:
        return row.model_copy(update={"status": "timeout", "error": "too slow", "val": None})

    rows = rows_of(own, lambda cell: 0.5)
    bad = own.cells()[0].key  # the default
    own.tell(rows | {bad: failed(rows[bad])})
    assert len(own.alive) == 2 and 0 not in [trial.number for trial in own.alive]
    while own.cells():
        own.tell(rows_of(own, lambda cell: 0.5))
    assert own.chosen("").default is None


def test_when_all_trials_fail_the_first_reason_is_told(study, carried_out) -> None:
    own = study("t-broken", trials=3)
    rows = carried_out(own)
    assert [row.status for row in rows] == ["failed"] * 3  # each is a row
    with pytest.raises(UserError, match=r"tiny/t-broken/csbm/.*: all trials failed, .*no luck.*nothing was chosen"):
        own.chosen("")


@pytest.mark.parametrize(
    ("method", "values", "told"),
    [
        ("t-outside", {}, "mu: input should be greater than or equal to 0, got -1"),
        ("t-greedy", {}, "tunes 3 parameters of its own; at most 2"),
        ("t-fixed", {}, "nothing to tune"),
        ("fedavg", {"trials": 55}, "fedavg has only 54 settings on csbm; use --trials 54"),
        ("fedavgg", {}, "did you mean 'fedavg'"),
        ("fedavg", {"seeds": (1,)}, "seed 1 cannot be tuned on: suite 'tiny' scores it"),
        ("fedavg", {"seeds": (100, 99)}, "seed 99 cannot be tuned on: seeds below 100 are for scores"),
    ],
)
def test_what_cannot_be_tuned_is_one_line(study, method, values, told) -> None:
    with pytest.raises(UserError, match=told) as caught:
        study(method, **values)
    assert "\n" not in str(caught.value)


def test_what_has_no_validation_is_refused() -> None:
    with pytest.raises(UserError, match="clustered without validation"):
        studies(Wanted("clustering"))


def test_sets_of_graphs_that_are_classified_have_validation() -> None:
    found = studies(Wanted("graph", methods=("scaffold", "gcfl"), datasets=("mutag",)))
    scaffold, gcfl = found["mutag"]
    assert scaffold.cell.task == gcfl.cell.task == "graph-classification"
    assert (scaffold.sizes, scaffold.rungs) == (gcfl.sizes, gcfl.rungs)
    rates = next(own for own in scaffold.dimensions if own.name == "method.lr")
    assert rates.default == '{"lr":0.001}' and rates.default in rates.choices  # the suite's own, out of the range
