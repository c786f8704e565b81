"""Figures of result rows for a notebook: each function draws on matplotlib axes and returns them.

axes = fglbench.plot.curves(rows)
axes.figure.savefig("curves.pdf")
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .benchmark import api
from .benchmark.store.row_file import WRITTEN
from .metrics import metric_name, sign
from .registry import UserError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

TASK = ["dataset", "partition", "clients"]


def scores(rows: pd.DataFrame, *, metric: str = "score", axes: Axes | None = None) -> Axes:
    """Draw one dot per seed of each method, and a line at the mean; the best method is at the top.

    rows: one task's rows, from `run` or `load_results`. metric: a column of them, as score, val or macro_f1. UserError
    for rows of several tasks, for several rows of a method and seed, and for rows without the metric.
    """
    _one_task(rows, [*TASK, "method", metric])
    scored = rows.dropna(subset=[metric])
    if scored.empty:
        raise UserError(f"no {metric!r} in these rows: choose another metric, as score, or rows with status ok")
    axes = axes or _axes()
    order = scored.groupby("method")[metric].mean().sort_values(ascending=not _is_error(rows, metric))
    for place, (method, mean) in enumerate(order.items()):
        values = scored.loc[scored["method"] == method, metric]
        axes.plot(values, [place] * len(values), "o", color="C0", alpha=0.6)
        axes.plot([mean, mean], [place - 0.3, place + 0.3], color="C0")
    axes.set_yticks(range(len(order)), list(order.index))
    axes.set_xlabel(_label(rows, metric))
    return axes


def curves(
    rows: pd.DataFrame, results: str | os.PathLike[str] = WRITTEN, *, value: str = "score", axes: Axes | None = None
) -> Axes:
    """Draw one curve per method over the rounds: the mean over seeds, and a band of one standard deviation.

    rows: one task's rows. results: their folder. value: score, val, upload_bytes or download_bytes. UserError as for
    `scores`, and if the folder has no curves.
    """
    _one_task(rows, TASK)
    axes, frame = axes or _axes(), api.curves(rows, results)
    for method, of_method in frame.dropna(subset=[value]).groupby("method", sort=False) if value in frame else ():
        by_round = of_method.groupby("round")[value]
        mean, spread = by_round.mean(), by_round.std(ddof=1).fillna(0)
        (line,) = axes.plot(mean.index, mean, label=str(method))
        axes.fill_between(mean.index, mean - spread, mean + spread, color=line.get_color(), alpha=0.2, linewidth=0)
    if not axes.lines:
        raise UserError(f"no curves of {value!r} are kept of these rows under {str(results)!r}")
    axes.set_xlabel("round")
    axes.set_ylabel(_label(rows, value))
    axes.legend()
    return axes


def per_client(
    rows: pd.DataFrame, results: str | os.PathLike[str] = WRITTEN, *, value: str = "score", axes: Axes | None = None
) -> Axes:
    """Draw the value of each client with each method, mean over seeds. Arguments and errors as for `curves`."""
    _one_task(rows, TASK)
    axes, frame = axes or _axes(), api.per_client(rows, results)
    if value not in frame or frame[value].isna().all():
        raise UserError(f"no {value!r} of single clients is kept of these rows under {str(results)!r}")
    for method, of_method in frame.groupby("method", sort=False):
        mean = of_method.groupby("client")[value].mean()
        axes.plot(mean.index, mean, "o", label=str(method), alpha=0.7)
    axes.set_xlabel("client")
    axes.set_ylabel(_label(rows, value))
    axes.legend()
    return axes


def _metrics(rows: pd.DataFrame, column: str) -> set[str]:
    """The values of `score_metric` of a column of scores; none for other columns."""
    of_scores = column in ("score", "val") and "score_metric" in rows
    return set(rows["score_metric"].dropna()) - {""} if of_scores else set()


def _is_error(rows: pd.DataFrame, column: str) -> bool:
    return any(sign(metric) < 0 for metric in _metrics(rows, column))


def _label(rows: pd.DataFrame, column: str) -> str:
    """The label of an axis, as "score: accuracy"."""
    names = sorted(set(map(metric_name, _metrics(rows, column))))
    return f"{column}: {', '.join(names)}" if names else column


def _axes() -> Axes:
    from matplotlib import pyplot

    axes: Axes = pyplot.subplots(layout="constrained")[1]
    return axes


def _one_task(rows: pd.DataFrame, columns: list[str]) -> None:
    missing = [name for name in (*columns, "method", "seed") if name not in getattr(rows, "columns", ())]
    if missing:
        raise UserError(f"rows lack the column {missing[0]!r}: give the data frame of `run` or `load_results`")
    tasks = rows[TASK].drop_duplicates()
    if len(tasks) != 1:
        names = [f"{dataset} ({partition}, {clients} clients)" for dataset, partition, clients in tasks.values[:3]]
        given = f"these are of {len(tasks)}: {'; '.join(names) or 'none'}"
        raise UserError(f"rows of one task make a figure, {given}; choose some first")
    repeated = rows[rows.duplicated(["method", "seed"])]
    if len(repeated):
        method, seed = repeated.iloc[0][["method", "seed"]]
        raise UserError(f"{method}, seed {seed}, has several rows (several suites or settings): choose the rows of one")
