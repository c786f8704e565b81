"""The Python face of the benchmark: what a notebook or a script calls. `fglbench.__all__` has its names.

`fglbench.methods` and `fglbench.report` are packages, so what lists methods is `list_methods`, and what makes a report
`write_report`.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..datasets.owndata import announce
from ..methods import METHODS
from ..report.compare import Duel, duels
from ..report.families import deed, family
from .known import Known, look_up
from .runner.gpus import resolved
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
    backbones: Iterable[str] = (), seeds: Iterable[int] = (), settings: Iterable[str] = (),
    data: str | os.PathLike[str] | None = None,
    rerun: Iterable[str] = (), missing_rows: bool = False,
    results: str | os.PathLike[str] = "results",
    jobs: int | None = None, threads: int = 1, timeout: float | None = 3600.0, memory_limit: float | None = None,
    submitter: str = "", plugins: Iterable[str] = (), embeddings: bool = False,
    backend: str = "processes", address: str | None = None, device: str = "cpu", fleet: bool | None = None,
    graphs: bool = True, observer: Observer | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Run what `fglbench run` with these options runs; returns the rows that now stand for these cells.

    settings: "key=value" strings, as `--set` takes them. data: a folder with a graph of your own
    (docs/own-data.md), from then on the dataset `own:FOLDER`; warns of each mistake in it. seeds: the seeds
    themselves. missing_rows: a cell whose data cannot be had gets a row that says so. memory_limit: GiB a worker.
    plugins: Python files or modules that register methods or datasets; workers import them too. embeddings: keep
    those of the best round; a finished cell without them runs again. backend: "ray" runs them on a Ray cluster, at
    `address` where it is not this machine's. device: "cpu", "cuda" (a worker for each GPU), "cuda:N", or "auto", which
    is "cuda" where there is one; it is no part of a cell. fleet: run cells that differ in their seed as one program
    (docs/gpu.md); None: on GPUs. graphs: on GPUs, replay local training as CUDA graphs. One line a cell, in the plan's
    order; a failed cell has its row too. Warns of each dataset that cannot be had, and runs the others. UserError for
    anything unknown, nothing to run, a folder not to be written.
    """
    request = Request(
        suites=tuple(suites), all_suites=all_suites, quick=quick, methods=tuple(methods), datasets=tuple(datasets),
        partitions=tuple(partitions), clients=tuple(clients), splits=tuple(splits), backbones=tuple(backbones),
        seeds=tuple(seeds), settings=tuple(settings), own=announce(Path(data), warnings.warn) if data else None,
    )  # fmt: skip
    how = jobs, threads, timeout, memory_limit, submitter, load_plugins(plugins), embeddings, backend, address
    options = Options(*how, resolved(device, backend), fleet, graphs)
    return _frame(Job(request, Store(results), options, tuple(rerun), missing_rows), observer)


def _frame(job: Job, observer: Observer | None) -> pd.DataFrame:
    """Carry a job out; its rows."""
    import pandas as pd

    plan = job.plan()
    job.run(job.load(plan, partial(warnings.warn, stacklevel=4)), observer)
    return pd.DataFrame([row.model_dump() for row in job.rows(plan)], columns=COLUMNS)


def list_methods(plugins: Iterable[str] = ()) -> pd.DataFrame:
    """Every method there is, by name: its family, what it does, its task (node or graph), whether it is a reference."""
    import pandas as pd

    load_plugins(plugins)
    found = {name: METHODS.cls(name) for name in METHODS.names()}
    lines = [
        {"method": name, "family": family(name), "what": _deed(name), "task": cls.task, "reference": cls.reference}
        for name, cls in found.items()
    ]
    return pd.DataFrame(lines).set_index("method")


def _deed(name: str) -> str:
    return deed(name) or (inspect.getdoc(METHODS.cls(name)) or "").partition("\n")[0]


def show(name: str, plugins: Iterable[str] = ()) -> Known:
    """What a method, dataset, partition, split, backbone or suite is: text, facts and parameters; `print` it.

    Raises UserError for a name that nothing has.
    """
    load_plugins(plugins)
    return look_up(name)


def compare(
    first: str, second: str, suite: str | None = None, results: str | os.PathLike[str] = "results"
) -> list[Duel]:
    """Two methods side by side on every board of a results folder where both have rows, or on one of them.

    A duel has `tasks`, a data frame with a line a task (scores, difference, its 95% interval, p; fractions), and the
    mean over datasets with its interval and a verdict. Raises UserError for an unknown name, and where they never met.
    """
    return duels(first, second, suite, Path(results))


def write_report(
    results: str | os.PathLike[str] = "results", *, readme: str | os.PathLike[str] | None = None, figures: bool = True
) -> list[Path]:
    """Make leaderboard, tables and figures of a results folder anew; the files that changed.

    readme: a README whose block is renewed as well; the command `fglbench report` finds it by itself. Raises UserError
    where there are no rows, and for a file that cannot be written.
    """
    from ..report import build

    return build.write(build.make(Path(results), None if readme is None else Path(readme), figures=figures))
