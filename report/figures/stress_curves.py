"""Score against the strength of each stress condition, or along a setting of the task: a row of panels each, and in it
a panel a task."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from ..axes import axis
from ..standings import Standings
from .style import facets, legend_below, looks, short

CAPTION = (
    "Test score against the strength of a stress condition: mean over seeds, bars of one standard deviation, in order"
    " of the areas under the curves. Strength 0 is the plain task, the same in all panels of a column. Clients,"
    " alpha (small: skewed labels) and homophily are settings of the task."
)


def data(standings: Standings) -> dict[str, Any] | None:
    """For each condition and task the strengths, and every entrant's mean and deviation over seeds; and their order."""
    found, panels = standings.robustness, []
    order = [str(name) for name in found.table.index]
    for condition in found.conditions:
        for (task, name), grid in found.curves.items():
            if name == condition:
                mean, std = grid.groupby(level="entrant").mean(), grid.groupby(level="entrant").std(ddof=1).fillna(0)
                lines = [
                    {"name": own, "mean": mean.loc[own].tolist(), "std": std.loc[own].tolist()}
                    for own in order
                    if own in mean.index
                ]
                panels.append({"task": task, "condition": name, "strengths": list(grid.columns), "lines": lines})
    return {"panels": panels, "order": order} if panels else None


def draw(found: dict[str, Any]) -> Figure:
    panels, look = found["panels"], looks(found["order"])
    across = len({panel["task"] for panel in panels})
    figure, grid = facets(len(panels), columns=across)
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_title(short(panel["task"], 40))
        axes.set_xlabel(panel["condition"].replace("_", " "))
        for line in panel["lines"]:
            mean, std, own = 100 * np.array(line["mean"]), 100 * np.array(line["std"]), look[line["name"]]
            axes.errorbar(panel["strengths"], mean, std, markersize=4, linewidth=1.2, elinewidth=0.7, capsize=2, **own)
        if axis(panel["condition"]).ratios:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(panel["strengths"], [f"{value:g}" for value in panel["strengths"]])
    for column in range(across):  # one scale a task, so that what hardly falls looks so
        limits = [axes.get_ylim() for axes in grid[column::across]]
        for axes in grid[column::across]:
            axes.set_ylim(max(min(low for low, _ in limits), 0), min(max(high for _, high in limits), 100.5))
    for axes in grid[::across]:
        axes.set_ylabel("test score, %")
    legend_below(figure, [Line2D([], [], label=short(name), **look[name]) for name in found["order"]])
    return figure
