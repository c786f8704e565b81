"""Selection of cells: every option against the plain filter of a suite's cells, the state of each cell, dry runs."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fglbench.benchmark.runner.job import Job, Options
from fglbench.benchmark.runner.plan import make_plan
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.request import select_listed
from fglbench.benchmark.suites.select import Request, parted, select
from fglbench.benchmark.suites.suite import load_suite, suite_names
from fglbench.registry import UserError

STATUSES = ["ok", "ok", "failed", "timeout", "oom", "skipped"]


@pytest.fixture
def cells():
    """Seven cells of one suite."""
    return select(Request(methods=("fedavg",), datasets=("cora",), seeds=tuple(range(7))))


@pytest.fixture
def store(tmp_path, cells):
    """A row of each kind for the first six; the second is of another version of the method."""
    store = Store(tmp_path)
    for (suite, cell), status in zip(cells, STATUSES, strict=False):
        row = cell.row(suite, status=status, error="" if status == "ok" else "why", started="2026", environment="e")
        store.append_row(row if cell.seed != 1 else row.model_copy(update={"method_version": "older"}))
    return store


def states(plan):
    return [item.state for item in plan.items]


def test_rows_decide_the_state_of_a_cell(cells, store):
    plan = make_plan(cells, store)
    assert states(plan) == ["done", "done", "failed", "failed", "failed", "skipped", "todo"]
    assert [item.cell.seed for item in plan.todo] == [6]
    assert plan.stale() == 1
    assert [row.status for row in plan.rows("failed")] == ["failed", "timeout", "oom"]
    assert [row.error for row in plan.rows("skipped")] == ["why"]


def test_python_says_that_rows_are_stale(cells, store):
    said = []
    job = Job(cells[:2], store, Options(), in_process=True)
    assert [row.status for row in job.carry_out(said.append)] == ["ok", "ok"]
    assert said == ["1 of 2 runs have an earlier revision of their method or plug-in; rerun the stale ones"]


@pytest.mark.parametrize(
    ("rerun", "seeds"),
    [
        (["failed"], [2, 3, 4, 6]),
        (["timeout"], [3, 6]),
        (["oom", "skipped"], [4, 5, 6]),
        (["stale"], [1, 6]),
        (["all"], [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_rerun_selects_cells_to_repeat(cells, store, rerun, seeds):
    assert [item.cell.seed for item in make_plan(cells, store, rerun).todo] == seeds


def test_the_last_row_of_a_cell_counts(cells, store):
    suite, cell = cells[2]
    store.append_row(cell.row(suite, status="ok", started="2026", environment="e"))
    assert states(make_plan(cells, store))[2] == "done"
    store.append_row(cell.row(suite, status="oom", error="again", started="2026", environment="e"))
    assert states(make_plan(cells, store))[2] == "failed"


def test_rows_of_another_suite_do_not_count(cells, store):
    other = [("another", cell) for _, cell in cells]
    assert states(make_plan(other, store)) == ["todo"] * 7


def test_unknown_kinds_of_rows_are_refused(cells, store):
    with pytest.raises(UserError, match=r"unknown kind of row to rerun 'faild'; did you mean 'failed'\?"):
        make_plan(cells, store, ["faild"])


def test_wanted_embeddings_run_finished_cells_that_have_none(cells, store):
    store.write_embeddings(cells[0][0], cells[0][1].key, {"note": np.array("")})
    assert [item.cell.seed for item in make_plan(cells, store, embeddings=True).todo] == [1, 6]
    assert [item.cell.seed for item in make_plan(cells, store, ["skipped"], embeddings=True).todo] == [1, 5, 6]


SUITES: dict[str, dict[str, Any]] = {
    "none": {}, "quick": {"quick": True}, "all": {"all_suites": True}, "one": {"suites": ("quick",)},
    "two": {"suites": ("quick", "overlap")},
}  # fmt: skip
pytestmark = pytest.mark.filterwarnings("ignore:(suite '|--set )")  # about cells that cannot run: other tests
MEANT = {"none": ["leaderboard"], "quick": ["quick"], "one": ["quick"], "two": ["quick", "overlap"]}


ALL_WITH = [((), ()), (("fedavg", "local"), ("cora",))]


@pytest.mark.parametrize(
    ("suites", "methods", "datasets"),
    [
        *(("all", *names) for names in ALL_WITH),
        *product((name for name in SUITES if name != "all"), [(), ("fedavg", "local")], [(), ("cora",)]),
    ],
)
def test_suites_methods_and_datasets_in_all_combinations(
    suites: str, methods: tuple[str, ...], datasets: tuple[str, ...]
) -> None:
    request = Request(**SUITES[suites], methods=methods, datasets=datasets)
    if suites == "none" and not methods and not datasets:
        with pytest.raises(UserError, match="say what to run"):
            select(request)
        return
    named = MEANT[suites] if suites != "all" else suite_names()
    meant = [suite for suite in map(load_suite, named) if suites != "all" or suite.leaderboard]
    cells = {suite.name: suite.cells() for suite in meant}
    wanted = {
        (name, cell.key)
        for name, suite_cells in cells.items()
        for cell in suite_cells
        if (not methods or cell.method.name in methods) and (not datasets or cell.dataset.name in datasets)
    }
    selected = select(request)
    keys = [(name, cell.key) for name, cell in selected if (name, cell.key) in wanted]
    assert keys and sorted(keys) == sorted(wanted)
    have = {
        name: {(cell.method.name, cell.dataset.name) for cell in suite_cells} for name, suite_cells in cells.items()
    }
    for name, cell in selected:
        if (name, cell.key) not in wanted:  # only combinations that a suite lacks are added
            assert any((cell.method.name, cell.dataset.name) not in pairs for pairs in have.values())
            assert cell.method.name in (methods or (cell.method.name,))


@pytest.mark.parametrize(
    "only",
    [
        {"partitions": ("louvain",)}, {"clients": (10,)}, {"splits": ("ratio",)}, {"backbones": ("gcn",)},
        {"seeds": (0,)}, {"settings": ("training.lr=0.1",)}, {},
    ],
)  # fmt: skip
def test_a_narrowing_option_alone_is_refused(only: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="say what to run"):
        select(Request(**only))
    assert select(Request(quick=True, **only))


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


DRAWN = random.Random(0).sample(suite_names(), 6)  # others: test_catalogue.py compares the file


@pytest.mark.parametrize("name", DRAWN)
def test_the_listed_cells_of_a_suite_equal_those_of_the_classes(name: str) -> None:
    listed = select_listed(Request(suites=(name,)))
    cells = load_suite(name).cells()
    listed_cells = [(cell.key, str(cell), json.dumps(cell.ends)) for _, cell in listed[0]] if listed else []
    assert sorted(listed_cells) == sorted((cell.key, str(cell), json.dumps(cell.ends)) for cell in cells)


@pytest.mark.parametrize("options", KNOWN)
def test_requests_of_suites_of_the_package_need_no_classes(options: dict[str, Any]) -> None:
    request = Request(**options)
    cells, messages = parted(request)
    listed = select_listed(request)
    assert listed is not None and listed[1] == messages
    assert sorted((suite, cell.key) for suite, cell in listed[0]) == sorted((suite, cell.key) for suite, cell in cells)


@pytest.mark.parametrize("options", UNKNOWN)
def test_requests_outside_of_the_catalogue_need_the_classes(options: dict[str, Any]) -> None:
    assert select_listed(Request(**options)) is None


@pytest.mark.filterwarnings("ignore:suite '")
@pytest.mark.parametrize("rerun", [(), ("failed",), ("stale",), ("all",)])
@pytest.mark.parametrize("suite", ["leaderboard", "overlap"])
def test_the_outlook_has_the_counts_of_the_plan(suite: str, rerun: tuple[str, ...]) -> None:
    job = Job(Request(suites=(suite,)), Store(Path(__file__).parents[2] / "results"), Options(), rerun)
    outlook, plan = job.outlook(), job.plan()
    assert outlook is not None and outlook.counts() == plan.counts() and outlook.stale() == plan.stale()
    assert sum(outlook.counts().values()) > 100
