"""Plans: which cells are done, failed, skipped or to do, and which run again."""

from __future__ import annotations

import numpy as np
import pytest

from fglbench.benchmark.runner.plan import make_plan
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.select import Request, select
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
        store.append(row if cell.seed != 1 else row.model_copy(update={"method_version": "older"}))
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
def test_rerun_says_what_runs_again(cells, store, rerun, seeds):
    assert [item.cell.seed for item in make_plan(cells, store, rerun).todo] == seeds


def test_the_last_row_of_a_cell_counts(cells, store):
    suite, cell = cells[2]
    store.append(cell.row(suite, status="ok", started="2026", environment="e"))
    assert states(make_plan(cells, store))[2] == "done"
    store.append(cell.row(suite, status="oom", error="again", started="2026", environment="e"))
    assert states(make_plan(cells, store))[2] == "failed"


def test_rows_of_another_suite_do_not_count(cells, store):
    other = [("another", cell) for _, cell in cells]
    assert states(make_plan(other, store)) == ["todo"] * 7


def test_unknown_kinds_of_rows_are_answered(cells, store):
    with pytest.raises(UserError, match=r"unknown kind of row to rerun 'faild'; did you mean 'failed'\?"):
        make_plan(cells, store, ["faild"])


def test_wanted_embeddings_run_finished_cells_that_have_none(cells, store):
    store.write_embeddings(cells[0][0], cells[0][1].key, {"note": np.array("")})
    assert [item.cell.seed for item in make_plan(cells, store, embeddings=True).todo] == [1, 6]
    assert [item.cell.seed for item in make_plan(cells, store, ["skipped"], embeddings=True).todo] == [1, 5, 6]
