"""A job: what to run, and how. The command line, the Python interface, `verify` and `reproduce` all go through it.

A dry run of the package's suites imports neither torch nor the classes, so those are imported where they are needed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...registry import UserError
from ..store import Store
from ..store.schema import Row
from ..suites.request import ListedCell, Request, select_listed
from .plan import Plan, listed_version, make_plan, with_data
from .process import Options

if TYPE_CHECKING:
    from ..suites.cell import Cell
    from .supervisor import Observer, Summary

__all__ = ["Job", "Options", "Request", "Store"]  # a job, and what it is made of


@dataclass(frozen=True)
class Job:
    """What to run: a request, or the (suite, cell) pairs themselves. Its steps: `plan`, `load`, `run`, `rows`.

    rerun: kinds of rows that are made again (`plan.Rerun`). missing_rows: a cell whose data is unavailable gets a row.
    in_process: without workers, for methods of a notebook and for debuggers; there are no limits of time and memory.
    """

    what: Request | Sequence[tuple[str, Cell]]
    store: Store
    options: Options
    rerun: tuple[str, ...] = ()
    missing_rows: bool = False
    in_process: bool = False

    def plan(self) -> Plan:
        """What there is to do. Nothing is written. UserError for anything unknown, or when nothing is wanted."""
        from ..suites.apart import begin
        from ..suites.select import select

        if not self.in_process:
            begin()
        cells = select(self.what) if isinstance(self.what, Request) else self.what
        return make_plan(cells, self.store, self.rerun, self.options.embeddings, self.options.models)

    def outlook(self) -> Plan[ListedCell] | None:
        """What `plan` would say, from the catalogue; None where only the classes know. Nothing is run by it."""
        known = select_listed(self.what) if isinstance(self.what, Request) and not self.options.plugins else None
        if known is None:
            return None
        cells, told = known
        for line in told:
            warnings.warn(line, stacklevel=2)
        kept = self.options.embeddings, self.options.models
        return make_plan(cells, self.store, self.rerun, *kept, version=listed_version)

    def load(self, plan: Plan, tell: Callable[[str], object]) -> Plan:
        """Get the data of a plan; the plan without the cells whose data is unavailable. `tell` hears of each dataset.

        UserError for a results folder that cannot be written (before any data are fetched), and when no cell is left.
        """
        if not plan.todo:
            return plan
        self.store.prepare(item.suite for item in plan.todo)
        from .in_process import keep_sites

        left, missing = with_data(plan)
        keep_sites(left, self.store)
        for dataset in missing:
            tell(str(dataset))
        if missing and self.missing_rows:
            from .supervisor import record_missing

            record_missing(missing, self.store, self.options)
        if not left.todo:
            raise UserError("nothing could be run: none of the datasets could be loaded (see above)")
        return left

    def run(self, plan: Plan, observer: Observer | None = None) -> Summary:
        """Run what a plan has to do; raises what `run_plan` does."""
        from .in_process import run_in_process
        from .supervisor import run_plan

        if self.in_process:
            return run_in_process(plan, self.store, self.options, observer)
        return run_plan(plan, self.store, self.options, observer)

    def rows(self, plan: Plan) -> list[Row]:
        """The rows that now stand for the cells of a plan, in its order."""
        now = make_plan([(item.suite, item.cell) for item in plan.items], self.store)
        return [item.row for item in now.items if item.row is not None]
