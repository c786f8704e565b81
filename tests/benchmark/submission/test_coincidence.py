"""Equal curves that have a known reason are pointed out; a real copy is refused all the same."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from fglbench.benchmark.store import Store
from fglbench.benchmark.store.columnfile import CurveTable, arrays_of
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.submission import copies
from fglbench.benchmark.submission.inbox import Findings, Line
from fglbench.benchmark.submission.sides import Side

COURSE = [0.1 * n for n in range(copies.TELLING)]


@pytest.fixture
def row(submission: Path) -> Row:
    """A row of FedProx, really run."""
    return Store(submission).rows("tiny")[0]


def run(row: Row, method: str, seconds: float, training: dict[str, Any] | None = None, **values: Any) -> Any:
    """A row like another, and what its side file says."""
    asked = json.dumps({**json.loads(row.training), **(training or {})}, sort_keys=True, separators=(",", ":"))
    steps = 3 * row.rounds if row.rounds else None
    own = {"method": method, "method_params": "{}", "training": asked, "optimiser_steps": steps, **values}
    own["key"] = hashlib.sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:16]
    line = Line(f"tiny/{method}.csv", 2, f"{method}/{own['key']}", b"", row.model_copy(update=own))
    stored = {"history": {"seconds": [seconds, seconds + 1], "val": COURSE, "score": COURSE}}
    return line, Side(CurveTable(arrays_of({own["key"]: stored})), 0)


def told(*runs: Any) -> str:
    """What is said of the last of some runs, which is new."""
    findings = Findings()
    line = runs[-1][0]
    copies.check(dict(runs), {line}, {line}, findings)
    (found,) = findings.found
    assert found.place == line.place
    return str(found)


@pytest.mark.parametrize("method", ["gcfl", "gcfl+"])
def test_a_method_that_became_another_is_pointed_out(row: Row, method: str) -> None:
    found = told(run(row, "fedavg", 1.0), run(row, method, 2.0))
    assert found.startswith("warning: ")
    assert "has the curves of fedavg on csbm" in found
    assert "as it may where no cluster was cut; `fglbench verify` tells whether it was run" in found
    assert told(run(row, method, 2.0), run(row, "fedavg", 1.0)).startswith("warning: ")  # whichever came first


def test_two_methods_that_both_became_a_third_are_too(row: Row) -> None:
    assert told(run(row, "gcfl", 1.0), run(row, "gcfl+", 2.0)).startswith("warning: ")


@pytest.mark.parametrize(("first", "second"), [("fedavg", "fedprox"), ("gcfl", "fedprox"), ("fedavg", "mine")])
def test_others_have_no_such_excuse(row: Row, first: str, second: str) -> None:
    assert not told(run(row, first, 1.0), run(row, second, 2.0)).startswith("warning: ")


@pytest.mark.parametrize("other", [{"seed": 7}, {"training": {"lr": 0.5}}, {"clients": 4}])
def test_it_holds_of_the_same_cell_only(row: Row, other: dict[str, Any]) -> None:
    """The curves of FedAvg with another seed, rate or number of clients are a copy."""
    assert not told(run(row, "fedavg", 1.0, **other), run(row, "gcfl", 2.0)).startswith("warning: ")


def test_a_run_has_times_of_its_own_whatever_the_method(row: Row) -> None:
    findings = Findings()
    (first, side), (second, _) = run(row, "fedavg", 1.0), run(row, "gcfl", 2.0)
    copies.check({first: side, second: side}, {second}, {second}, findings)
    assert any("has to the digit the times of fedavg" in str(found) for found in findings.errors)


@pytest.mark.parametrize(("method", "condition", "excused"), [
    ("fedmlp", "edge_noise", True),
    ("fedmlp", "dropped_edges", True),
    ("fedmlp", "label_noise", False),
    ("fedavg", "edge_noise", False),
])  # fmt: skip
def test_changes_of_edges_excuse_what_looks_at_none(row: Row, method: str, condition: str, excused: bool) -> None:
    found = told(run(row, method, 1.0), run(row, method, 2.0, training={condition: 0.5}))
    assert found.startswith("warning: ") == excused
    assert ("the method looks at no edge" in found) == excused


@pytest.mark.parametrize(("methods", "training", "excused"), [
    (("local", "fedgta"), {"participation": 0.1}, True),
    (("local", "fedgta"), {"participation": 1.0}, False),
    (("local", "fedavg"), {"participation": 0.1}, False),
    (("fedavg", "fedprox"), {"dp_clip": 1.0, "dp_noise": 0.5}, True),
    (("fedavg", "fedprox"), {"dp_clip": 1.0}, False),
    (("local", "fedprox"), {"dp_clip": 1.0, "dp_noise": 0.5}, False),
])  # fmt: skip
def test_what_becomes_another_in_some_cells_is_excused_there(
    row: Row, methods: tuple[str, str], training: dict[str, Any], excused: bool
) -> None:
    first, second = (run(row, method, 1.0 + n, training) for n, method in enumerate(methods))
    assert told(first, second).startswith("warning: ") == excused


@pytest.mark.parametrize(("method", "params", "excused"), [
    ("fedmlp", {"homophily": 0.3}, True), ("fedmlp", {"signal": 0.5}, False), ("fedavg", {"homophily": 0.3}, False),
])  # fmt: skip
def test_homophily_excuses_what_looks_at_no_edge(row: Row, method: str, params: dict[str, Any], excused: bool) -> None:
    given = json.dumps({**json.loads(row.dataset_params), **params}, sort_keys=True, separators=(",", ":"))
    found = told(run(row, method, 1.0), run(row, method, 2.0, dataset_params=given))
    assert found.startswith("warning: ") == excused


SGD = {"optimiser": "sgd", "momentum": 0.0, "lr": 0.1, "local_epochs": 3, "rounds": 11}


@pytest.mark.parametrize(("methods", "mu", "training", "excused"), [
    (("fedavg", "fedprox"), 0.01, {}, True),
    (("fedprox", "fedavg"), 0.01, {}, True),  # whichever came first
    (("fedavg", "fedprox"), 0.02, {}, False),  # 0.02 x 0.1 x 3 is 0.6% of a step
    (("fedavg", "fedprox"), 0.01, {"optimiser": "adam"}, False),  # whose steps do not shrink with the gradient
    (("fedavg", "fedprox"), 0.01, {"momentum": 0.9}, False),
    (("fedavg", "fedprox"), 0.01, {"rounds": 100}, False),  # in which small differences add up
    (("local", "fedprox"), 0.01, {}, False),
])  # fmt: skip
def test_a_slight_proximal_term_is_excused_in_few_rounds(
    row: Row, methods: tuple[str, str], mu: float, training: dict[str, Any], excused: bool
) -> None:
    params = {"fedprox": json.dumps({"mu": mu})}
    first, second = (
        run(row, method, 1.0 + n, SGD | training, method_params=params.get(method, "{}"))
        for n, method in enumerate(methods)
    )
    assert told(first, second).startswith("warning: ") == excused


@pytest.mark.parametrize(("method", "params", "excused"), [
    ("fedgta", {"similarity": 0.3}, True),
    ("fedgta", {"similarity": 0.3, "orders": 6}, True),
    ("fedgta", {"steps": 3}, False),
    ("fedavg", {"similarity": 0.3}, False),
])  # fmt: skip
def test_settings_that_choose_clients_may_choose_the_same(
    row: Row, method: str, params: dict[str, Any], excused: bool
) -> None:
    base = {"similarity": 0.5, "orders": 10, "steps": 5}
    first, second = (
        run(row, method, 1.0 + n, method_params=json.dumps(base | own)) for n, own in enumerate([{}, params])
    )
    found = told(first, second)
    assert found.startswith("warning: ") == excused
    assert ("both settings let the same clients be averaged" in found) == excused


@pytest.mark.parametrize(("methods", "steps", "excused"), [
    (("fedavg", "fedprox"), (100, 100), True),
    (("fedprox", "fedavg"), (100, 100), True),
    (("fedavg", "fedprox"), (100, 300), False),
    (("fedavg", "fedprox"), (None, None), False),
    (("local", "fedprox"), (100, 100), False),
])  # fmt: skip
def test_a_proximal_term_of_single_steps_is_excused(
    row: Row, methods: tuple[str, str], steps: tuple[int | None, int | None], excused: bool
) -> None:
    """At the first step of a round it is zero, as is its gradient: `tests/methods` has FedProx equal FedAvg there."""
    first, second = (
        run(row, method, 1.0 + n, rounds=100, optimiser_steps=own)
        for n, (method, own) in enumerate(zip(methods, steps, strict=True))
    )
    assert told(first, second).startswith("warning: ") == excused


@pytest.mark.parametrize(("other", "excused"), [
    ({"training": {"patience": 40}}, True),
    ({"training": {"patience": 40}, "seed": 7}, False),
    ({"training": {"patience": 40, "lr": 0.5}}, False),
])  # fmt: skip
def test_a_patience_that_stops_nothing_is_pointed_out(row: Row, other: dict[str, Any], excused: bool) -> None:
    found = told(run(row, "fedomd", 1.0), run(row, "fedomd", 2.0, **other))
    assert found.startswith("warning: ") == excused
    assert ("no patience stops the run" in found) == excused
