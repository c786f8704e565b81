"""How a method's test score is spread over the clients (FedGL, 2021, Fig. 10), one panel a task, one line a method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from ..standings import Standings
from .style import COLOURS, facets, legend_below, name_outer, short

CAPTION = (
    "Test score of each client on its own nodes at the best round. Clients are sorted within a seed and then averaged"
    " over seeds: the diamond is the worst-off client of a run, whichever it is, the bar the mean over clients."
)
COLUMNS = ("score", "global_on_local", "personal_on_local")  # the first that has more than one client


def data(standings: Standings) -> dict[str, Any] | None:
    """For each task and entrant the clients' scores in increasing order, averaged over seeds."""
    board, panels = standings.board, []
    keys = board.scored.groupby(["task_label", "entrant"])["key"].agg(list)
    for task in board.tasks:
        lines = []
        for name in standings.order:
            if not board.full.loc[task, name]:
                continue
            runs = [_scores(board.stored(str(key)).get("per_client")) for key in keys[task, name]]
            if all(len(run) > 1 for run in runs):
                lines.append({"name": name, "scores": spread(runs).tolist()})
        if lines:
            panels.append({"task": task, "lines": lines})
    return {"panels": panels} if panels else None


def spread(runs: list[np.ndarray]) -> np.ndarray:
    """The mean over runs of their sorted values: entry 0 is the mean of the runs' lowest. Runs of fewer values, as
    where a client has no test node, are stretched over as many as the others have."""
    places = np.linspace(0, 1, max(map(len, runs)))
    return np.mean([np.quantile(run, places) for run in runs], axis=0)


def _scores(found: Any) -> np.ndarray:
    """The clients' scores in a side file, without those that have none."""
    for column in COLUMNS:
        values = found.get(column) if isinstance(found, dict) else None
        if isinstance(values, list) and len(values) > 1:
            try:
                numbers = np.array(values, dtype=float)
            except (TypeError, ValueError):  # a file that anyone may have written
                numbers = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce").to_numpy(dtype=float)
            return numbers[np.isfinite(numbers)]
    return np.empty(0)


def draw(found: dict[str, Any]) -> Figure:
    shown = {line["name"] for panel in found["panels"] for line in panel["lines"]}
    longest = max(found["panels"], key=lambda panel: len(panel["lines"]))
    names = [line["name"] for line in longest["lines"]]
    names += sorted(shown - set(names))
    height = max(0.165 * len(names) + 0.75, 1.7)
    figure, grid = facets(len(found["panels"]), width=2.9, height=height)
    for axes, panel in zip(grid, found["panels"], strict=True):
        axes.set_title(short(panel["task"], 40))
        for line in panel["lines"]:
            at, scores = names.index(line["name"]), 100 * np.array(line["scores"])
            axes.plot(scores[[0, -1]], [at, at], color="#CCCCCC", linewidth=1, zorder=1)
            axes.plot(scores[1:], [at] * (len(scores) - 1), "o", color=COLOURS[0], markersize=3, alpha=0.55,
                      markeredgewidth=0, zorder=2)  # fmt: skip
            axes.plot(scores[0], at, "D", color=COLOURS[1], markersize=3.6, markeredgewidth=0, zorder=3)
            axes.plot(scores.mean(), at, "|", color="black", markersize=8, markeredgewidth=1.6, zorder=4)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_yticks(range(len(names)), [short(name, 26) for name in names])
        axes.xaxis.set_major_locator(MaxNLocator(nbins=5))
        axes.tick_params(axis="y", length=0)
        spec = axes.get_subplotspec()
        if spec is not None and spec.colspan.start:
            axes.tick_params(labelleft=False)
    name_outer(figure, "test score of a client, %", "")
    legend_below(
        figure,
        [
            Line2D([], [], color=COLOURS[1], marker="D", linestyle="none", markersize=4, label="worst client"),
            Line2D([], [], color=COLOURS[0], marker="o", linestyle="none", markersize=4, label="others"),
            Line2D([], [], color="black", marker="|", linestyle="none", markersize=9, markeredgewidth=1.6,
                   label="mean"),
        ],
    )  # fmt: skip
    return figure
