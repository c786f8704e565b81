"""Score against epsilon on a logarithmic axis, one panel a task."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator

from ..regimes import ALONE
from ..standings import Standings
from ..text import finite
from .style import facets, legend_below, looks, name_outer, round_costs, short

LEVEL: dict[str, Any] = {"linewidth": 0.9, "linestyle": (0, (4, 2)), "zorder": 1}
GREY = "#555555"
CAPTION = (
    "Test score against the epsilon that a run spends (client-level, logarithmic; to the left more private): mean over"
    " seeds, band of one standard deviation. Dashed in the colour of a method: its score without clip and noise; grey:"
    " clients that train alone and send nothing."
)


def data(standings: Standings) -> dict[str, Any] | None:
    """For each task every method's epsilons, means and deviations, and the levels without privacy."""
    cost, panels = standings.privacy, dict[str, dict[str, Any]]()
    several = len({clip for _, _, clip in cost.curves}) > 1
    for (task, entrant, clip), own in cost.curves.items():
        line = own.sort_values("epsilon")
        mean, _ = cost.level(task, entrant)
        alone, _ = cost.level(task, ALONE)
        panel = panels.setdefault(task, {"task": task, "lines": [], "alone": alone if finite(alone) else None})
        panel["lines"].append({
            "name": f"{entrant}, clip {clip:g}" if several else entrant,
            **{name: line[name].tolist() for name in ("epsilon", "score", "std")},
            "level": mean if finite(mean) else None,
        })  # fmt: skip
    return {"panels": list(panels.values())} if panels else None


def draw(found: dict[str, Any]) -> Figure:
    panels = found["panels"]
    names = sorted({line["name"] for panel in panels for line in panel["lines"]})
    look = looks(names)
    figure, grid = facets(len(panels))
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_title(short(panel["task"], 40))
        for line in panel["lines"]:
            own, epsilon = look[line["name"]], line["epsilon"]
            mean, std = 100 * np.array(line["score"]), 100 * np.array(line["std"])
            axes.plot(epsilon, mean, markersize=4, linewidth=1.2, **own)
            axes.fill_between(epsilon, mean - std, mean + std, color=own["color"], alpha=0.14, linewidth=0)
            if line["level"] is not None:
                axes.axhline(100 * line["level"], color=own["color"], **LEVEL)
        if panel["alone"] is not None:
            axes.axhline(100 * panel["alone"], color=GREY, **LEVEL)
        every = [value for line in panel["lines"] for value in line["epsilon"]]
        axes.set_xscale("log")
        axes.set_xticks(ticks := round_costs(min(every), max(every)), [f"{tick:g}" for tick in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    name_outer(figure, "epsilon", "test score, %")
    handles = [Line2D([], [], label=short(name), **look[name]) for name in names]
    if any(panel["alone"] is not None for panel in panels):
        handles.append(Line2D([], [], color=GREY, linestyle=LEVEL["linestyle"], label=ALONE))
    legend_below(figure, handles)
    return figure
