"""A job: what to run, and how. The command line, the Python interface, `verify` and `reproduce` all go through it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from ...datasets import DATASETS
from ...datasets.own_data import OWN, words_of
from ...registry import UserError
from ..store import Store
from ..store.provenance import stamped
from ..store.schema import Row
from ..store.side_files import Parcel
from ..suites.apart import begin
from ..suites.cell import Cell
from ..suites.select import Request, select
from .execute import FederationCache, execute
from .gpus import opened
from .plan import Plan, make_plan, with_data
from .supervisor import Observer, Summary, prepare, record_missing, run_plan
from .system import afterwards
from .worker import Options


def keep_sites(plan: Plan, store: Store) -> None:
    """Store the names of the clients of each dataset of the user's own that the plan has to run."""
    own = {i.cell.dataset.name: i.cell.dataset for i in plan.todo if i.cell.dataset.name.startswith(OWN)}
    for name, choice in own.items():
        if names := words_of(name)[1]:
            store.write_sites(choice.build(DATASETS).load().fingerprint, names)


def run_in_process(plan: Plan, store: Store, options: Options, observer: Observer | None = None) -> Summary:
    """Run everything that a plan has to do. Raises what `run_plan` does, and UserError for another backend."""
    if options.backend != "processes":
        raise UserError(f"in_process runs everything here, and backend is {options.backend!r}: leave one of them out")
    summary, observer, todo = Summary(), observer or Observer(), plan.todo
    if not todo:
        return summary
    prepare(todo, store, options)
    device, federations = opened(options.device), FederationCache()
    columns, about = stamped(options.threads, options.submitter, str(device))
    store.write_environment(columns["environment"], about)
    observer.begun(todo)
    try:
        for item in todo:
            claim = store.claim(item.suite, item.cell.key)
            if claim is None:
                continue  # another run has it
            observer.started(item)
            parcel, tell = Parcel(), partial(observer.round, item)
            try:
                kept = options.embeddings, device, options.models
                row = execute(item.cell, item.suite, parcel, federations, columns, tell, *kept)
                with afterwards():
                    parcel.deliver(store)
                    store.append(row)
            finally:
                store.unclaim(claim)
            summary.rows[item.suite, item.cell.key] = row
            observer.finished(item, row, elsewhere=False)
    finally:
        observer.ended()
    return summary


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
        if not self.in_process:
            begin()
        cells = select(self.what) if isinstance(self.what, Request) else self.what
        return make_plan(cells, self.store, self.rerun, self.options.embeddings, self.options.models)

    def load(self, plan: Plan, tell: Callable[[str], object]) -> Plan:
        """Get the data of a plan; the plan without the cells whose data is unavailable. `tell` hears of each dataset.

        UserError for a results folder that cannot be written (before any data are fetched), and when no cell is left.
        """
        if not plan.todo:
            return plan
        self.store.prepare(item.suite for item in plan.todo)
        left, missing = with_data(plan)
        keep_sites(left, self.store)
        for dataset in missing:
            tell(str(dataset))
        if missing and self.missing_rows:
            record_missing(missing, self.store, self.options)
        if not left.todo:
            raise UserError("nothing could be run: none of the datasets could be loaded (see above)")
        return left

    def run(self, plan: Plan, observer: Observer | None = None) -> Summary:
        """Run what a plan has to do; raises what `run_plan` does."""
        if self.in_process:
            return run_in_process(plan, self.store, self.options, observer)
        return run_plan(plan, self.store, self.options, observer)

    def rows(self, plan: Plan) -> list[Row]:
        """The rows that now stand for the cells of a plan, in its order."""
        now = make_plan([(item.suite, item.cell) for item in plan.items], self.store)
        return [item.row for item in now.items if item.row is not None]
