"""Running a plan in this process, without workers: for methods of a notebook and for debuggers."""

from __future__ import annotations

from functools import partial

from ...datasets import DATASETS
from ...datasets.own_data import OWN, words_of
from ...registry import UserError
from ..store import Store
from ..store.provenance import stamped
from ..store.side_files import Parcel
from .backend import Observer, Summary, prepare
from .execute import FederationCache, execute
from .plan import Plan
from .process import Options
from .system import afterwards, opened


def keep_sites(plan: Plan, store: Store) -> None:
    """Store the names of the clients of each dataset of the user's own that the plan has to run."""
    datasets = {i.cell.dataset.name: i.cell.dataset for i in plan.todo if i.cell.dataset.name.startswith(OWN)}
    for name, choice in datasets.items():
        if names := words_of(name)[1]:
            spec = choice.build(DATASETS)
            store.write_sites(spec.digest(spec.content()[0]), names)


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
