"""Run the cells of a plan one after the other in this process: for methods that live in a notebook, and for a debugger.

Rows are those that workers make. There is no time limit and no memory limit, and a crash of the interpreter
ends the run; rows stored so far stay.
"""

from __future__ import annotations

from functools import partial

from ...registry import UserError
from ..store import Store
from ..store.side_files import Parcel
from .execute import FederationCache, execute
from .gpus import opened
from .plan import Plan
from .stamp import stamped
from .supervisor import Observer, Summary, prepare
from .system import afterwards
from .worker import Options


def run_in_process(plan: Plan, store: Store, options: Options, observer: Observer | None = None) -> Summary:
    """Run everything that a plan has to do. Raises what `run_plan` does, and UserError for another backend."""
    if options.backend != "processes":
        raise UserError(f"in_process runs cells here, and backend is {options.backend!r}: leave one of them out")
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
