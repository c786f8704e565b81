"""The Python interface of the benchmark for notebooks and scripts; `fglbench.__all__` has its names.

`fglbench.methods` and `fglbench.report` are packages, so the functions are called `list_methods` and `write_report`.
"""

from __future__ import annotations

import operator
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..metrics import sign
from ..registry import UserError, flag_argument, path_argument, several, text_argument
from .known import Known, listed, look_up, overview
from .store import Store
from .store.row_file import WRITTEN, reading
from .suites.catalogue import FAMILIES, catalogue

if TYPE_CHECKING:
    import pandas as pd

    from ..report.compare import Comparison
    from .runner.backend import Observer


__all__ = [
    "FAMILIES", "catalogue", "compare", "list_methods", "listed", "overview", "register", "run", "show",
    "write_report",
]  # fmt: skip


def register(name: str) -> Callable[[Any], Any]:
    """Class decorator that registers a method as `name`. Raises ValueError if another class has this name.

    Workers are new processes. They know the method if it is registered in a module of `run(plugins=...)`, or in the
    script that calls `run` under `if __name__ == "__main__"`.
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
    """Run cells, as `fglbench run` with these options. Returns their current rows, in the order of the plan.

    settings: "key=value" texts, as for `--set`. data: a folder with a graph of your own (docs/own-data.md), the dataset
    `own:FOLDER`; errors in its files are warnings. metric: for `data`: "accuracy", "macro-f1", "roc-auc" or
    "average-precision". tuned: a file of `fglbench tune`. seeds: a list of seeds. missing_rows: write a row for a cell
    whose data is unavailable. timeout: seconds per run. memory_limit: GiB per worker. plugins: Python files or modules
    that register methods or datasets; other processes import them. embeddings, save_models: keep the embeddings, or the
    models (safetensors, for `load_model`), of the best round; finished cells without them run again. backend:
    "processes" or "ray". address: of a Ray cluster on another machine. device: "cpu", "cuda" (one worker per GPU),
    "cuda:N", or "auto" ("cuda" if available); it is no part of a cell. in_process: run one cell after the other in this
    process, for example methods of a notebook; plug-ins are imported here, and time and memory are not limited.

    A failed cell has a row too. Warns of each unavailable dataset, and runs the others. UserError for anything unknown,
    if there is nothing to run, or if the folder cannot be written.
    """
    flags = {"all_suites": all_suites, "quick": quick, "missing_rows": missing_rows, "embeddings": embeddings}
    for name, flag in (flags | {"save_models": save_models, "in_process": in_process}).items():
        flag_argument(name, flag)
    if not in_process:
        _check_process()
    import pandas as pd

    from ..datasets.own_data import announce, metric_setting
    from .runner.best_round import check_safetensors
    from .runner.job import Job, Options, Request, Store
    from .runner.system import resolved
    from .store.schema import COLUMNS
    from .suites import apart
    from .suites.plugins import load_plugins

    names = {"suites": suites, "methods": methods, "datasets": datasets, "partitions": partitions, "splits": splits}
    names |= {"backbones": backbones, "settings": settings, "rerun": rerun, "plugins": plugins}
    lists = {name: several(name, given, str) for name, given in names.items()}
    again, imported = lists.pop("rerun"), lists.pop("plugins")
    if not in_process:
        _check_importable(lists)
    store, folder = (
        Store(path_argument("results", results)),
        None if data is None else path_argument("data", data),
    )
    own_dataset = None if folder is None else announce(folder, warnings.warn)
    lists["settings"] += metric_setting(metric, own_dataset)
    request = Request(
        **lists, all_suites=all_suites, quick=quick, clients=several("clients", clients, operator.index),
        seeds=several("seeds", seeds, operator.index),
        own_dataset=own_dataset, tuned=None if tuned is None else path_argument("tuned", tuned),
    )  # fmt: skip
    if save_models:
        check_safetensors()
    _check_observer(observer)
    try:
        known = load_plugins(imported) if in_process else apart.use(imported)
        how = jobs, threads, timeout, memory_limit, submitter, known, embeddings, backend, address
        options = Options(*how, resolved(text_argument("device", str(device)), backend), models=save_models)
        options.check()
        job = Job(request, store, options, again, missing_rows, in_process)
        rows = job.carry_out(partial(warnings.warn, stacklevel=4), observer)
    finally:
        apart.end()
    return pd.DataFrame([row.model_dump() for row in rows], columns=COLUMNS)


def _check_observer(observer: object) -> None:
    wanted = ("begun", "started", "round", "finished", "ended")
    if isinstance(observer, type):
        raise UserError(f"observer is a class; give an object, {observer.__name__}()")
    if observer is not None and (lacking := [name for name in wanted if not callable(getattr(observer, name, None))]):
        raise UserError(f"observer is an fglbench.Observer; {observer!r:.60} has no method {', '.join(lacking)}")


def _check_process() -> None:
    """End a worker that imports the calling script; UserError in a process that may not start others."""
    from ..processes import UNGUARDED

    process = current_process()
    if getattr(process, "_inheriting", False):
        os._exit(UNGUARDED)  # a fork server gives the code 1 to SystemExit
    if process.daemon:
        raise UserError("run starts processes, which a worker of multiprocessing.Pool may not; call it from the script")


def _check_importable(names: Mapping[str, Iterable[str]]) -> None:
    """Raise UserError for a part of a notebook or an interactive session, because workers cannot import it.

    names: "methods", "datasets", ... -> names that were given.
    """
    from .suites.plugins import REGISTRIES

    if Path(getattr(sys.modules["__main__"], "__file__", "")).is_file():  # the file of standard input is "<stdin>"
        return
    for kind, registry in REGISTRIES.items():
        given = {part for name in names[f"{kind}s"] for part in name.split("+")}  # backbones may be mixed
        here = [name for name in registry.names() if name in given and registry.cls(name).__module__ == "__main__"]
        if here:
            raise UserError(
                f"{kind} {here[0]!r} is defined in this session, which workers cannot import: give in_process=True, "
                "or put it in a file and give plugins=[FILE]"
            )


def list_methods(plugins: Iterable[str] = ()) -> pd.DataFrame:
    """All methods, indexed by name: family, what (a summary), task (node or graph), reference (True or False)."""
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


def show(name: str, plugins: Iterable[str] = (), kind: str | None = None) -> Known:
    """Describe a method, dataset, partition, split, backbone or suite: text, facts and parameters; `print` the result.

    kind: "method", "dataset", ... if several have the name. Raises UserError for an unknown name or kind.
    """
    _load(plugins)
    return look_up(text_argument("name", name), kind and text_argument("kind", kind))


def compare(
    first: str, second: str, suite: str | None = None, results: str | os.PathLike[str] | None = None
) -> list[Comparison]:
    """Compare two methods on every board of a results folder where both have rows, or on the board of `suite`.

    A comparison has `tasks`, a frame with one line per task (scores, difference with its 95% interval, p; fractions),
    and the mean over datasets with its interval and verdict. Raises UserError for an unknown name, and if the methods
    have no common seed on a task.
    """
    from ..report.compare import comparisons

    names = text_argument("first", first), text_argument("second", second)
    folder = reading(suite) if results is None else path_argument("results", results)
    return comparisons(*names, suite and text_argument("suite", suite), folder)


def write_report(
    results: str | os.PathLike[str] | None = None, *, readme: str | os.PathLike[str] | None = None, figures: bool = True
) -> list[Path]:
    """Write leaderboard, tables and figures of a results folder. Returns the changed files.

    readme: a README whose block is updated too (`fglbench report` finds it itself). Raises UserError if there are no
    rows, or if a file cannot be written.
    """
    from ..report import build

    folder = reading() if results is None else path_argument("results", results)
    return build.write(build.make(folder, None if readme is None else Path(readme), figures=figures))


NAMES = ["suite", "dataset", "partition", "clients", "method", "method_params", "seed", "key"]  # columns of a run
METRICS = ("score", "val", "macro_f1")  # shown in percent; errors in their unit


def curves(rows: pd.DataFrame, results: str | os.PathLike[str] = WRITTEN) -> pd.DataFrame:
    """Return the curves of runs, one line per run and round: NAMES, `round`, and the stored curves: `val`, `score`,
    `upload_bytes` and `download_bytes` (totals up to the round), ...

    rows: from `run` or `load_results`; columns of NAMES that they lack are left out. results: the folder of the rows.
    Runs without curves have no line. UserError for a missing folder or column.
    """
    return _unfolded(rows, results, "history", "round")


def per_client(rows: pd.DataFrame, results: str | os.PathLike[str] = WRITTEN) -> pd.DataFrame:
    """Return the values of each client, one line per run and client: NAMES, `client` (from 0), and `val`, `score` and
    other metrics at the best round. Arguments and errors as for `curves`."""
    return _unfolded(rows, results, "per_client", "client")


def _unfolded(rows: pd.DataFrame, results: str | os.PathLike[str], part: str, index: str) -> pd.DataFrame:
    import pandas as pd

    _check(rows, ["suite", "key"])
    names = [name for name in NAMES if name in rows]
    store, frames = Store(path_argument("results", results)).existing(), []
    for place in rows[names].to_dict("records"):
        stored = (store.history(place["suite"], place["key"]) or {}).get(part)
        if not stored:
            continue
        frame = pd.DataFrame(stored)
        if index not in frame:
            frame.insert(0, index, range(len(frame)))
        frames.append(frame.assign(**place))
    if not frames:
        return pd.DataFrame(columns=[*names, index, "val", "score"])
    table = pd.concat(frames, ignore_index=True)
    return table[[*names, index, *(name for name in table if name not in (*names, index))]]


def to_latex(
    rows: pd.DataFrame, metric: str = "score", *, methods: Iterable[str] | None = None, caption: str | None = None
) -> str:
    """Return a LaTeX table (booktabs) of methods by datasets: mean and standard deviation over seeds, in percent.

    rows: from `run` or `load_results`; only status "ok" counts. metric: score, val or macro_f1. methods: in the order
    of the table; all by default. Their best mean on each dataset is bold. Errors are in their unit, and the lowest is
    the best. Raises UserError if a dataset has several tasks or a method has several settings: select rows first.
    """
    if metric not in METRICS:
        raise UserError(f"metric is {metric!r}; it is one of {', '.join(METRICS)}")
    _check(rows, ["dataset", "method", "seed", "status", "score_metric", metric])
    scored = rows[rows["status"] == "ok"]
    wanted = list(dict.fromkeys(scored["method"] if methods is None else several("methods", methods, str)))
    unknown = [name for name in wanted if name not in set(scored["method"])]
    if unknown or not len(scored):
        raise UserError(f"no row with status ok of {', '.join(unknown) or 'any method'}")
    scored = scored[scored["method"].isin(wanted)]
    repeated = scored[scored.duplicated(["dataset", "method", "seed"])]
    if len(repeated):
        first = repeated.iloc[0]
        raise UserError(
            f"{first['method']} on {first['dataset']}, seed {first['seed']}, has several rows (several suites, tasks "
            "or settings): choose the rows of one"
        )
    signs = dict(zip(scored["dataset"], scored["score_metric"].fillna("").map(sign), strict=True))
    if metric == "macro_f1":
        signs = dict.fromkeys(signs, 1)
    factors = scored["dataset"].map({name: 100 if higher > 0 else 1 for name, higher in signs.items()})
    groups = (factors * scored[metric]).groupby([scored["method"], scored["dataset"]])
    return _table(groups.mean(), groups.std(ddof=1), wanted, signs, caption)


def _table(mean: Any, spread: Any, methods: list[str], datasets: dict[str, int], caption: str | None) -> str:
    """datasets: name -> 1, or -1 if the lowest mean is the best."""
    digits = {name: 1 if higher > 0 else 3 for name, higher in datasets.items()}
    best = {
        name: (higher * mean.xs(name, level="dataset")).round(digits[name]).max() for name, higher in datasets.items()
    }
    lines = [rf"\begin{{tabular}}{{l{'c' * len(datasets)}}}", r"\toprule"]
    lines += [" & ".join(["Method", *map(_escaped, datasets)]) + r" \\", r"\midrule"]
    for method in methods:
        cells = [_escaped(method)]
        for name in datasets:
            if (method, name) not in mean.index:
                cells.append("--")
                continue
            value, sd, places = mean[method, name], spread[method, name], digits[name]
            is_best = round(datasets[name] * value, places) == best[name]
            number = rf"\mathbf{{{value:.{places}f}}}" if is_best else f"{value:.{places}f}"
            cells.append(f"${number}$" if sd != sd else rf"${number} \pm {sd:.{places}f}$")
        lines.append(" & ".join(cells) + r" \\")
    lines += [r"\bottomrule", r"\end{tabular}"]
    if caption is None:
        return "\n".join(lines) + "\n"
    head = [r"\begin{table}", r"\centering", rf"\caption{{{caption}}}"]
    return "\n".join([*head, *lines, r"\end{table}"]) + "\n"


def _escaped(text: str) -> str:
    return "".join(f"\\{c}" if c in "&%$#_{}" else c for c in str(text))


def _check(rows: Any, columns: list[str]) -> None:
    missing = [name for name in columns if name not in getattr(rows, "columns", ())]
    if missing:
        raise UserError(f"rows lack the column {missing[0]!r}: give the data frame of `run` or `load_results`")
