"""Test score by round, mean over seeds with a band of one standard deviation, one panel per task."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..ranking import Ranking
from .style import COLOUR_OF, FAINT, MOST, facets, legend_below, looks, name_outer, short, wrapped

SERIES = ("seed", "round", "value")
CAPTION = (
    "Test score by round: mean over seeds, band of one standard deviation. Coloured: methods with a fixed colour,"
    " then those with the best ranks; all others are thin grey lines. A run that stopped early keeps its last value."
)


def data(ranking: Ranking) -> dict[str, Any] | None:
    """Curves of each task: rounds, mean and standard deviation over seeds of every entry; entries to highlight."""
    board = ranking.board
    curves = board.score_curves
    if curves.empty:
        return None
    panels = []
    for task, of_task in curves.groupby("task_label", sort=True):
        lines = []
        for name, runs in of_task.groupby("entrant", sort=True):
            lines.append({"name": name, **_over_seeds(*(runs[column].to_numpy() for column in SERIES))})
        panels.append({"task": task, "lines": lines})
    mean_score = board.summary["score"].groupby("entrant").mean().sort_values(ascending=False, kind="stable")
    order = list(ranking.table.index) + [name for name in mean_score.index if name not in ranking.table.index]
    drawn = set(curves["entrant"].unique())
    shown = sorted((name for name in order if name in drawn), key=lambda name: name not in COLOUR_OF)  # a stable sort
    return {"panels": panels, "highlighted": shown[:MOST]}


def _over_seeds(seed: np.ndarray, round: np.ndarray, value: np.ndarray) -> dict[str, list[float]]:
    """Mean and sample deviation over seeds at every round of any seed; a seed without this round has its last value."""
    seeds, column = np.unique(seed, return_inverse=True)
    rounds, line = np.unique(round, return_inverse=True)
    grid = np.full((len(rounds), len(seeds)), np.nan)
    grid[line, column] = value
    last = np.maximum.accumulate(np.where(np.isnan(grid), 0, np.arange(len(rounds))[:, None]))
    grid = np.take_along_axis(grid, last, axis=0)
    kept = grid[:, ~np.isnan(grid).all(axis=0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # for rounds without any value
        mean, std = np.nanmean(kept, axis=1), np.nanstd(kept, axis=1, ddof=1)
    return {"round": rounds.tolist(), "mean": mean.tolist(), "std": np.nan_to_num(std).tolist()}  # 0 for one seed


def draw(shown: dict[str, Any]) -> Figure:
    names = shown["highlighted"]
    look = looks(names)
    figure, grid = facets(len(shown["panels"]))
    crowd = False
    for axes, panel in zip(grid, shown["panels"], strict=True):
        axes.set_title(wrapped(panel["task"]))
        final = []
        for line in panel["lines"]:
            rounds, mean, std = np.asarray(line["round"]), 100 * np.asarray(line["mean"]), 100 * np.asarray(line["std"])
            final.append(mean[len(mean) // 20 :])
            if line["name"] not in names:
                axes.plot(rounds, mean, color=FAINT, linewidth=0.7, zorder=1)
                crowd = True
                continue
            style, i = look[line["name"]], names.index(line["name"])
            axes.plot(rounds, mean, color=style["color"], linestyle=style["linestyle"], linewidth=1.5, zorder=9 - i)
            axes.fill_between(rounds, mean - std, mean + std, color=style["color"], alpha=0.16, linewidth=0, zorder=2)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
        values = np.concatenate(final)
        low, high = np.nanquantile(values, 0.02), np.nanmax(values)
        room = max(0.06 * (high - low), 0.5)
        axes.set_ylim(max(low - room, 0), min(high + 2 * room, 100.5))
    name_outer(figure, "round", "test score, %")
    handles = [
        Line2D([], [], linewidth=1.8, label=short(name), **{key: look[name][key] for key in ("color", "linestyle")})
        for name in names
    ]
    if crowd:
        handles.append(Line2D([], [], color=FAINT, linewidth=1.2, label="other methods"))
    legend_below(figure, handles)
    return figure
