"""The Python face of the benchmark: what a notebook or a script calls. `fglbench.__all__` has its names.

`fglbench.methods` and `fglbench.report` are packages, so what lists methods is `list_methods`, and what makes a report
`write_report`.
"""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..registry import UserError, folder_argument, several, text_argument
from .known import Known, listed, look_up, overview
from .store.places import WRITTEN, reading
from .suites.catalogue import FAMILIES, catalogue

if TYPE_CHECKING:
    import pandas as pd

    from ..report.compare import Comparison
    from .runner.backend import Observer
    from .runner.job import Job

__all__ = [
    "FAMILIES", "catalogue", "compare", "list_methods", "listed", "overview", "register", "run", "show",
    "write_report",
]  # fmt: skip


def register(name: str) -> Callable[[Any], Any]:
    """Class decorator that files a method under `name`. Raises ValueError when another class has the name.

    Workers are new processes: they know the method when it is registered in a module given to `run(plugins=...)`, or
    in the script that calls `run` under `if __name__ == "__main__"`.
    """
    from ..methods import METHODS

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
    data: str | os.PathLike[str] | None = None, metric: str | None = None,
    tuned: str | os.PathLike[str] | None = None,
    rerun: Iterable[str] = (), missing_rows: bool = False,
    results: str | os.PathLike[str] = WRITTEN,
    jobs: int | None = None, threads: int = 1, timeout: float | None = 3600.0, memory_limit: float | None = None,
    submitter: str = "", plugins: Iterable[str] = (), embeddings: bool = False,
    save_models: bool = False,
    backend: str = "processes", address: str | None = None, device: str = "cpu",
    observer: Observer | None = None, in_process: bool = False,
) -> pd.DataFrame:  # fmt: skip
    """Run what `fglbench run` with these options runs; returns the rows that now stand for these cells.

    settings: "key=value" strings, as `--set` takes them. data: a folder with a graph of your own
    (docs/own-data.md), from then on the dataset `own:FOLDER`; warns of each mistake in it. metric: of own data:
    "accuracy", "macro-f1", "roc-auc" or "average-precision". tuned: a file that `fglbench tune` wrote. seeds: the seeds
    themselves. missing_rows: a cell whose data is unavailable gets a row that says so. memory_limit: GiB a worker.
    plugins: Python files or modules that register methods or datasets; other processes import them. embeddings: keep
    those of the best round; a finished cell without them runs again. save_models: keep the models of the best round
    (safetensors), for `load_model`; likewise. backend: "ray" runs them on a Ray cluster, at
    `address` where it is not this machine's. device: "cpu", "cuda" (a worker for each GPU), "cuda:N", or "auto", which
    is "cuda" where there is one; it is no part of a cell. in_process: without workers, one cell after the other here,
    as for methods that a notebook defines; plug-ins are imported here too, and nothing bounds time and memory.
    One line per cell, in the plan's order; a failed cell has its row too. Warns of each unavailable dataset, and runs
    the others. UserError for anything unknown, nothing to run, a folder not to be written.
    """
    if not in_process:
        _check_process()
        _check_methods(methods)
    from ..datasets.own_data import announce, metric_setting
    from .runner.backend import check_options
    from .runner.best_round import check_safetensors
    from .runner.job import Job, Options, Request, Store
    from .runner.system import resolved
    from .suites import apart
    from .suites.plugins import load_plugins

    names = {"suites": suites, "methods": methods, "datasets": datasets, "partitions": partitions, "splits": splits}
    names |= {"backbones": backbones, "settings": settings, "rerun": rerun, "plugins": plugins}
    lists = {name: several(name, given, str) for name, given in names.items()}
    again, imported = lists.pop("rerun"), lists.pop("plugins")
    store, folder = (
        Store(folder_argument("results", results)),
        None if data is None else folder_argument("data", data),
    )
    own_dataset = None if folder is None else announce(folder, warnings.warn)
    lists["settings"] += metric_setting(metric, own_dataset)
    request = Request(
        **lists, all_suites=all_suites, quick=quick, clients=several("clients", clients, operator.index),
        seeds=several("seeds", seeds, operator.index),
        own_dataset=own_dataset, tuned=None if tuned is None else Path(tuned),
    )  # fmt: skip
    if save_models:
        check_safetensors()
    _check_observer(observer)
    try:
        known = load_plugins(imported) if in_process else apart.use(imported)
        how = jobs, threads, timeout, memory_limit, submitter, known, embeddings, backend, address
        options = Options(*how, resolved(text_argument("device", str(device)), backend), models=save_models)
        check_options(options)
        return _frame(Job(request, store, options, again, missing_rows, in_process), observer)
    finally:
        apart.end()


def _check_observer(observer: object) -> None:
    wanted = ("begun", "started", "round", "finished", "ended")
    if observer is not None and (lacking := [name for name in wanted if not callable(getattr(observer, name, None))]):
        raise UserError(f"observer is an fglbench.Observer; {observer!r:.60} has no method {', '.join(lacking)}")


def _check_process() -> None:
    """End a worker that imports the calling script; UserError in a process that may not start others."""
    from .suites.main_script import UNGUARDED

    process = current_process()
    if getattr(process, "_inheriting", False):
        raise SystemExit(UNGUARDED)
    if process.daemon:
        raise UserError("run starts processes, which a worker of multiprocessing.Pool may not; call it from the script")


def _check_methods(methods: Iterable[str]) -> None:
    """UserError for a method that a notebook or an interactive session defines, which no worker could import."""
    if hasattr(sys.modules["__main__"], "__file__"):
        return
    from ..methods import METHODS

    here = [name for name in METHODS.names() if METHODS.cls(name).__module__ == "__main__"]
    asked = [name for name in here if not isinstance(methods, Iterable) or name in list(methods)]
    if asked:
        raise UserError(
            f"method {asked[0]!r} is defined in this session, which workers cannot import: give in_process=True, or "
            "put it in a file and give plugins=[FILE]"
        )


def _frame(job: Job, observer: Observer | None) -> pd.DataFrame:
    """Carry a job out; its rows."""
    import pandas as pd

    from .store.schema import COLUMNS

    plan = job.plan()
    job.run(job.load(plan, partial(warnings.warn, stacklevel=4)), observer)
    return pd.DataFrame([row.model_dump() for row in job.rows(plan)], columns=COLUMNS)


def list_methods(plugins: Iterable[str] = ()) -> pd.DataFrame:
    """Every method there is, by name: its family, what it does, its task (node or graph), whether it is a reference."""
    import pandas as pd

    from ..methods import METHODS

    _load(plugins)
    lines = [
        {"method": entry["name"], "family": entry["family"], "what": entry["what"], "task": cls.tasks[0],
         "reference": cls.reference}
        for entry in sorted(listed("method")[0], key=lambda entry: entry["name"])
        for cls in [METHODS.cls(entry["name"])]
    ]  # fmt: skip
    return pd.DataFrame(lines).set_index("method")


def _load(plugins: Iterable[str]) -> None:
    if given := several("plugins", plugins, str):
        from .suites.plugins import load_plugins

        load_plugins(given)


def show(name: str, plugins: Iterable[str] = ()) -> Known:
    """What a method, dataset, partition, split, backbone or suite is: text, facts and parameters; `print` it.

    Raises UserError for a name that nothing has.
    """
    _load(plugins)
    return look_up(text_argument("name", name))


def compare(
    first: str, second: str, suite: str | None = None, results: str | os.PathLike[str] | None = None
) -> list[Comparison]:
    """Two methods side by side on every board of a results folder where both have rows, or on one of them.

    A duel has `tasks`, a frame with one line per task (scores, difference, its 95% interval, p; fractions), and the
    mean over datasets with its interval and a verdict. Raises UserError for an unknown name, and where they never met.
    """
    from ..report.compare import comparisons

    names = text_argument("first", first), text_argument("second", second)
    folder = reading(suite) if results is None else folder_argument("results", results)
    return comparisons(*names, suite and text_argument("suite", suite), folder)


def write_report(
    results: str | os.PathLike[str] | None = None, *, readme: str | os.PathLike[str] | None = None, figures: bool = True
) -> list[Path]:
    """Make leaderboard, tables and figures of a results folder anew; the files that changed.

    readme: a README whose block is renewed as well; the command `fglbench report` finds it by itself. Raises UserError
    where there are no rows, and for a file that cannot be written.
    """
    from ..report import build

    folder = reading() if results is None else folder_argument("results", results)
    return build.write(build.make(folder, None if readme is None else Path(readme), figures=figures))
