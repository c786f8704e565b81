"""Dry runs by the catalogue say what the classes would say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fglbench.benchmark.runner.job import Job, Options, Store
from fglbench.benchmark.suites.request import Request, select_listed
from fglbench.benchmark.suites.select import parted
from fglbench.benchmark.suites.suitefile import load_suite, suite_names

MANY = {"suites": ("node", "overlap-3")}
KNOWN: list[dict[str, Any]] = [
    {"quick": True}, {"all_suites": True}, {"methods": ("fedavg",)}, {"datasets": ("cora", "pubmed")},
    {"suites": ("stress",), "methods": ("fedavg", "local"), "seeds": (1, 0)}, {**MANY}, {**MANY, "datasets": ("cora",)},
    {**MANY, "methods": ("global",), "datasets": ("cora",)}, {"suites": ("clustering", "quick")},
    {"quick": True, "clients": (10,), "partitions": ("louvain",)}, {"suites": ("fedomd-table5",), "seeds": (0,)},
]  # fmt: skip
UNKNOWN: list[dict[str, Any]] = [
    {"quick": True, "seeds": (0, 77)}, {"quick": True, "methods": ("fgssl",)}, {"quick": True, "splits": ("ratio",)},
    {"quick": True, "backbones": ("gcn",)}, {"quick": True, "settings": ("training.lr=0.5",)},
    {"quick": True, "clients": (3,)}, {"quick": True, "datasets": ("csbm", "nothing")}, {"suites": ("mine.yaml",)},
    {"quick": True, "own_dataset": "own:mine"}, {"quick": True, "tuned": Path("some.yaml")},
]  # fmt: skip


@pytest.mark.parametrize("name", suite_names())
def test_the_listed_cells_of_a_suite_are_those_of_the_classes(name: str) -> None:
    listed = select_listed(Request(suites=(name,)))
    cells = load_suite(name).cells()
    found = [(cell.key, str(cell), json.dumps(cell.ends)) for _, cell in listed[0]] if listed else []
    assert sorted(found) == sorted((cell.key, str(cell), json.dumps(cell.ends)) for cell in cells)


@pytest.mark.parametrize("asked", KNOWN)
def test_what_is_asked_of_the_packages_suites_is_known_without_classes(asked: dict[str, Any]) -> None:
    request = Request(**asked)
    cells, told = parted(request)
    listed = select_listed(request)
    assert listed is not None and listed[1] == told
    assert sorted((suite, cell.key) for suite, cell in listed[0]) == sorted((suite, cell.key) for suite, cell in cells)


@pytest.mark.parametrize("asked", UNKNOWN)
def test_what_the_catalogue_does_not_have_is_left_to_the_classes(asked: dict[str, Any]) -> None:
    assert select_listed(Request(**asked)) is None


@pytest.mark.filterwarnings("ignore:suite '")
@pytest.mark.parametrize("rerun", [(), ("failed",), ("stale",), ("all",)])
@pytest.mark.parametrize("suite", ["leaderboard", "overlap"])
def test_the_outlook_has_the_counts_of_the_plan(suite: str, rerun: tuple[str, ...]) -> None:
    job = Job(Request(suites=(suite,)), Store(Path(__file__).parents[2] / "results"), Options(), rerun)
    outlook, plan = job.outlook(), job.plan()
    assert outlook is not None and outlook.counts() == plan.counts() and outlook.stale() == plan.stale()
    assert sum(outlook.counts().values()) > 100
