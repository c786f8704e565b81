"""What a plan will cost, by rows whose cost is known."""

from __future__ import annotations

import itertools

import pytest

from fglbench.benchmark.engine.config import TrainConfig
from fglbench.benchmark.runner.cost_estimate import HOUR, Costs, told
from fglbench.benchmark.store.provenance import canonical
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.suites.cell import Cell, Choice

METHODS, DATASETS = {"local": 1.0, "fedavg": 2.0, "fgssl": 10.0}, {"cora": 0.01, "pubmed": 0.2}


def made(method: str, dataset: str, rounds: int = 50, cap: int = 100, **more: object) -> Row:
    """A row that took what the product of its method's and its dataset's figure says, for each round."""
    own = {
        "method": method,
        "dataset": dataset,
        "backbone": "gcn",
        "training": canonical({"rounds": cap, "patience": 10, "local_epochs": 3}),
        "status": "ok",
        "rounds": rounds,
        "cpu_seconds": METHODS[method] * DATASETS[dataset] * rounds,
    }
    return Row.model_construct(**own | more)


def cell(method: str, dataset: str, cap: int = 100) -> Cell:
    training = TrainConfig(rounds=cap, patience=10, local_epochs=3)
    parts = {"partition": Choice(name="louvain"), "clients": 3, "split": Choice(name="ratio"), "seed": 0}
    names = {"dataset": Choice(name=dataset), "method": Choice(name=method), "backbones": (Choice(name="gcn"),)}
    return Cell(**parts, **names, training=training)


PAIRS = list(itertools.product(METHODS, DATASETS))


def test_a_pair_that_no_row_has_is_judged_by_the_others() -> None:
    costs = Costs(made(*pair) for pair in PAIRS if pair != ("fgssl", "pubmed"))
    assert costs.seconds(cell("fgssl", "pubmed")) == pytest.approx(10 * 0.2 * 50)


def test_where_method_and_dataset_met_their_own_rows_count() -> None:
    rows = [made(*pair) for pair in PAIRS if pair != ("fgssl", "cora")]
    assert Costs([*rows, made("fgssl", "cora", cpu_seconds=7.0)]).seconds(cell("fgssl", "cora")) == pytest.approx(7.0)


def test_the_rounds_are_the_medians_of_rows_with_the_same_end() -> None:
    rows = [made("local", "cora", rounds) for rounds in (20, 30, 90)] + [made("fedavg", "cora", 60)]
    costs = Costs(rows)
    assert costs.rounds(cell("local", "pubmed")) == 30
    assert costs.rounds(cell("fgssl", "cora")) == 45  # of all four
    assert costs.rounds(cell("local", "cora", cap=400)) == 400


def test_an_older_row_has_wall_seconds_and_a_failed_one_nothing() -> None:
    rows = [made("local", "cora", cpu_seconds=None, train_seconds=5.0), made("fedavg", "cora", status="failed")]
    assert Costs(rows).seconds(cell("local", "cora")) == pytest.approx(5.0)
    assert Costs(rows).seconds(cell("fedavg", "cora")) == "method fedavg"


def test_a_sum_names_what_it_leaves_out() -> None:
    costs = Costs([made("local", "cora", cpu_seconds=HOUR / 2)])
    found = costs.of([(cell("local", "cora"), 3), (cell("local", "pubmed"), 2), (cell("fgssl", "cora"), 1)])
    assert found.hours == pytest.approx(1.5)
    assert found.unknown == {"dataset pubmed": 2, "method fgssl": 1}
    assert told(found).endswith("3 runs cannot be judged: no row of dataset pubmed, method fgssl")
    assert Costs([]).of([(cell("local", "cora"), 1)]).unknown == {"method local": 1}
