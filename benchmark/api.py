"""The Python face of the benchmark: `fglbench.run` and `fglbench.register`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..methods import METHODS
from ..registry import UserError
from .plugins import load_plugins
from .runner.plan import make_plan, with_data
from .runner.supervisor import Observer, Options, run_plan
from .store import Store
from .store.rowfile import COLUMNS
from .suites.selection import Request, select

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
    results: str | os.PathLike[str] = "results",
    jobs: int | None = None,
    threads: int = 1,
    timeout: float | None = 3600.0,
    plugins: Iterable[str] = (),
    embeddings: bool = False,
    observer: Observer | None = None,
) -> pd.DataFrame:
    """Run what `fglbench run` with these options runs; returns the rows that now stand for these cells.

    settings: "key=value" strings, as `--set` takes them. seeds: the seeds themselves. plugins: Python files or modules
    that register methods or datasets; workers import them too. embeddings: keep those of the best round; a finished
    cell without them runs again. One line a cell, in the order of the plan; a cell that failed has its row too. Raises
    UserError for anything unknown, for data that cannot be had and for a results folder that cannot be written.
    """
    import pandas as pd

    plugins = tuple(plugins)
    load_plugins(plugins)
    request = Request(
        suites=tuple(suites),
        quick=quick,
        methods=tuple(methods),
        datasets=tuple(datasets),
        partitions=tuple(partitions),
        clients=tuple(clients),
        splits=tuple(splits),
        backbones=tuple(backbones),
        seeds=tuple(seeds),
        settings=tuple(settings),
    )
    store = Store(results)
    plan, missing = with_data(make_plan(select(request), store, tuple(rerun), embeddings))
    if missing:
        raise UserError(str(missing[0]))
    options = Options(jobs=jobs, threads=threads, timeout=timeout, plugins=plugins, embeddings=embeddings)
    made = run_plan(plan, store, options, observer)
    rows = [made.rows.get((item.suite, item.cell.key), item.row) for item in plan.items]
    return pd.DataFrame([row.model_dump() for row in rows if row is not None], columns=COLUMNS)
