"""The Python face of the benchmark: `fglbench.run` and `fglbench.register`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..methods import METHODS
from .runner.job import Job
from .runner.supervisor import Observer
from .runner.worker import Options
from .store import Store
from .store.schema import COLUMNS
from .suites.plugins import load_plugins
from .suites.selection import Request

if TYPE_CHECKING:
    import pandas as pd


def register(name: str) -> Callable[[Any], Any]:
    """Class decorator that files a method under `name`. Raises ValueError when another class has the name.

    Workers are new processes: they know the method when it is registered in a module given to `run(plugins=...)`, or
    in the script that calls `run` under `if __name__ == "__main__"`.
    """
    return METHODS.register(name)


def run(
    *,
    suites: Iterable[str] = (),
    all_suites: bool = False,
    quick: bool = False,
    methods: Iterable[str] = (),
    datasets: Iterable[str] = (),
    partitions: Iterable[str] = (),
    clients: Iterable[int] = (),
    splits: Iterable[str] = (),
    backbones: Iterable[str] = (),
    seeds: Iterable[int] = (),
    settings: Iterable[str] = (),
    rerun: Iterable[str] = (),
    missing_rows: bool = False,
    results: str | os.PathLike[str] = "results",
    jobs: int | None = None,
    threads: int = 1,
    timeout: float | None = 3600.0,
    memory_limit: float | None = None,
    submitter: str = "",
    plugins: Iterable[str] = (),
    embeddings: bool = False,
    observer: Observer | None = None,
) -> pd.DataFrame:
    """Run what `fglbench run` with these options runs; returns the rows that now stand for these cells.

    settings: "key=value" strings, as `--set` takes them. seeds: the seeds themselves. missing_rows: a cell whose data
    cannot be had gets a row that says so. memory_limit: GiB a worker. plugins: Python files or modules that register
    methods or datasets; workers import them too. embeddings: keep those of the best round; a finished cell without them
    runs again. One line a cell, in the order of the plan; a cell that failed has its row too. Warns of each dataset
    that cannot be had, and runs the others. UserError for anything unknown, nothing to run, a folder not to be written.
    """
    request = Request(
        suites=tuple(suites), all_suites=all_suites, quick=quick, methods=tuple(methods), datasets=tuple(datasets),
        partitions=tuple(partitions), clients=tuple(clients), splits=tuple(splits), backbones=tuple(backbones),
        seeds=tuple(seeds), settings=tuple(settings),
    )  # fmt: skip
    options = Options(jobs, threads, timeout, memory_limit, submitter, load_plugins(plugins), embeddings)
    return _frame(Job(request, Store(results), options, tuple(rerun), missing_rows), observer)


def _frame(job: Job, observer: Observer | None) -> pd.DataFrame:
    """Carry a job out; its rows."""
    import pandas as pd

    plan = job.plan()
    job.run(job.load(plan, partial(warnings.warn, stacklevel=4)), observer)
    return pd.DataFrame([row.model_dump() for row in job.rows(plan)], columns=COLUMNS)
