"""Rows as data frames and tables for a notebook or a paper: curves, values per client, LaTeX."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ..registry import UserError, folder_argument, several
from .store import Store
from .store.places import WRITTEN

if TYPE_CHECKING:
    import pandas as pd

NAMES = ["suite", "dataset", "partition", "clients", "method", "method_params", "seed", "key"]  # columns of a run
METRICS = ("score", "val", "macro_f1")  # fractions; shown in percent


def curves(rows: pd.DataFrame, results: str | os.PathLike[str] = WRITTEN) -> pd.DataFrame:
    """Return the curves of runs, one line per run and round: NAMES, `round`, and the stored curves: `val`, `score`,
    `upload_bytes` and `download_bytes` (totals up to the round), ...

    rows: from `run` or `load_results`. results: the folder of the rows. Runs without curves have no line. UserError for
    a missing folder or column.
    """
    return _unfolded(rows, results, "history", "round")


def per_client(rows: pd.DataFrame, results: str | os.PathLike[str] = WRITTEN) -> pd.DataFrame:
    """Return the values of each client, one line per run and client: NAMES, `client` (from 0), and `val`, `score` and
    other metrics at the best round. Arguments and errors as for `curves`."""
    return _unfolded(rows, results, "per_client", "client")


def _unfolded(rows: pd.DataFrame, results: str | os.PathLike[str], part: str, index: str) -> pd.DataFrame:
    import pandas as pd

    _check(rows, NAMES)
    store, frames = Store(folder_argument("results", results)).existing(), []
    for place in rows[NAMES].to_dict("records"):
        stored = (store.history(place["suite"], place["key"]) or {}).get(part)
        if not stored:
            continue
        frame = pd.DataFrame(stored)
        if index not in frame:
            frame.insert(0, index, range(len(frame)))
        frames.append(frame.assign(**place))
    if not frames:
        return pd.DataFrame(columns=[*NAMES, index, "val", "score"])
    table = pd.concat(frames, ignore_index=True)
    return table[[*NAMES, index, *(name for name in table if name not in (*NAMES, index))]]


def to_latex(
    rows: pd.DataFrame, metric: str = "score", *, methods: Iterable[str] | None = None, caption: str | None = None
) -> str:
    """Return a LaTeX table (booktabs) of methods by datasets: mean and standard deviation over seeds, in percent.

    rows: from `run` or `load_results`; only status "ok" counts. The best mean of each dataset is bold. metric: score,
    val or macro_f1. methods: in the order of the table; all by default. Raises UserError if a dataset has several tasks
    or a method has several settings: select rows first.
    """
    if metric not in METRICS:
        raise UserError(f"metric is {metric!r}; it is one of {', '.join(METRICS)}")
    _check(rows, [*NAMES, "status", metric])
    scored = rows[rows["status"] == "ok"]
    wanted = list(dict.fromkeys(scored["method"] if methods is None else several("methods", methods, str)))
    unknown = [name for name in wanted if name not in set(scored["method"])]
    if unknown or not len(scored):
        raise UserError(f"no row with status ok of {', '.join(unknown) or 'any method'}")
    repeated = scored[scored.duplicated(["dataset", "method", "seed"])]
    if len(repeated):
        first = repeated.iloc[0]
        raise UserError(
            f"{first['method']} on {first['dataset']}, seed {first['seed']}, has several rows (several suites, tasks "
            "or settings): choose the rows of one"
        )
    groups = (100 * scored[metric]).groupby([scored["method"], scored["dataset"]])
    return _table(groups.mean(), groups.std(ddof=1), wanted, list(dict.fromkeys(scored["dataset"])), caption)


def _table(mean: Any, spread: Any, methods: list[str], datasets: list[str], caption: str | None) -> str:
    best = {name: mean.xs(name, level="dataset").round(1).max() for name in datasets}
    lines = [rf"\begin{{tabular}}{{l{'c' * len(datasets)}}}", r"\toprule"]
    lines += [" & ".join(["Method", *map(_escaped, datasets)]) + r" \\", r"\midrule"]
    for method in methods:
        cells = [_escaped(method)]
        for name in datasets:
            if (method, name) not in mean.index:
                cells.append("--")
                continue
            value, sd = mean[method, name], spread[method, name]
            number = rf"\mathbf{{{value:.1f}}}" if round(value, 1) == best[name] else f"{value:.1f}"
            cells.append(f"${number}$" if sd != sd else rf"${number} \pm {sd:.1f}$")
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
