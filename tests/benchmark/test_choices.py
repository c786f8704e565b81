"""Every way of saying what to run, against the plain filter of a suite's cells."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from fglbench.benchmark.suites.select import Request, select
from fglbench.benchmark.suites.suitefile import leaderboard_suites, load_suite
from fglbench.registry import UserError

SUITES: dict[str, dict[str, Any]] = {
    "none": {}, "quick": {"quick": True}, "all": {"all_suites": True}, "one": {"suites": ("quick",)},
    "two": {"suites": ("quick", "overlap")},
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:(suite '|--set )")  # of cells that cannot run: tests of their own
MEANT = {"none": ["leaderboard"], "quick": ["quick"], "one": ["quick"], "two": ["quick", "overlap"]}


ALL_WITH = [((), ()), (("fedavg", "local"), ("cora",))]


@pytest.mark.parametrize(
    ("suites", "methods", "datasets"),
    [
        *(("all", *own) for own in ALL_WITH),
        *product((name for name in SUITES if name != "all"), [(), ("fedavg", "local")], [(), ("cora",)]),
    ],
)
def test_suites_methods_and_datasets_alone_and_together(
    suites: str, methods: tuple[str, ...], datasets: tuple[str, ...]
) -> None:
    request = Request(**SUITES[suites], methods=methods, datasets=datasets)
    if suites == "none" and not methods and not datasets:
        with pytest.raises(UserError, match="say what to run"):
            select(request)
        return
    meant = [load_suite(name) for name in MEANT[suites]] if suites != "all" else leaderboard_suites()
    cells = {suite.name: suite.cells() for suite in meant}
    wanted = {
        (name, cell.key)
        for name, made in cells.items()
        for cell in made
        if (not methods or cell.method.name in methods) and (not datasets or cell.dataset.name in datasets)
    }
    selected = select(request)
    found = [(name, cell.key) for name, cell in selected if (name, cell.key) in wanted]
    assert found and sorted(found) == sorted(wanted)
    have = {name: {(cell.method.name, cell.dataset.name) for cell in made} for name, made in cells.items()}
    for name, cell in selected:
        if (name, cell.key) not in wanted:  # what a suite lacks joins it, and nothing else does
            assert any((cell.method.name, cell.dataset.name) not in pairs for pairs in have.values())
            assert cell.method.name in (methods or (cell.method.name,))


@pytest.mark.parametrize(
    "only",
    [
        {"partitions": ("louvain",)}, {"clients": (10,)}, {"splits": ("ratio",)}, {"backbones": ("gcn",)},
        {"seeds": (0,)}, {"settings": ("training.lr=0.1",)}, {},
    ],
)  # fmt: skip
def test_what_narrows_says_nothing_by_itself(only: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="say what to run"):
        select(Request(**only))
    assert select(Request(quick=True, **only))


@pytest.mark.parametrize(("axis", "value", "own"), [("clients", 10, "clients"), ("partitions", "louvain", "partition")])
def test_a_narrowing_option_keeps_the_suites_own_cells(axis: str, value: Any, own: str) -> None:
    found = select(Request(quick=True, **{axis: (value,)}))
    assert {name for name, _ in found} == {"quick"}
    assert {getattr(getattr(cell, own), "name", getattr(cell, own)) for _, cell in found} == {value}
