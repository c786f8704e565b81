"""Score against one parameter of a method, all else equal (FGSSL, 2023, Fig. 4; FedGL, 2021, Figs. 11-14)."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..privacycost import NOISE
from ..standings import Standings
from .style import COLOURS, facets, legend_below, short

REFERENCE = "fedavg"
LEVEL: dict[str, Any] = {"color": "#555555", "linestyle": (0, (4, 2)), "linewidth": 1.1}
RING: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "markeredgecolor": "black"}
CAPTION = (
    "Test score against one parameter at a time: mean over seeds, band of one standard deviation. The values stand at"
    " equal distances. The ringed point is the setting from which the others depart; dashed: FedAvg on the same task."
)


def data(standings: Standings) -> dict[str, Any] | None:
    """For each sweep the values of the parameter with mean and deviation of the score, and FedAvg's on that task."""
    board, panels = standings.board, []
    for sweep in board.sweeps:
        if sweep.parameter == f"training.{NOISE}":
            continue  # drawn against epsilon
        lines = [board.measures(sweep.task, entrant) for _, entrant in sweep.points]
        panels.append({
            "task": sweep.task,
            "method": sweep.method,
            "parameter": sweep.parameter,
            "values": [value for value, _ in sweep.points],
            "mean": [line["score"] for line in lines],
            "std": [float(np.nan_to_num(line["score_std"])) for line in lines],
            "centre": [entrant for _, entrant in sweep.points].index(sweep.centre) if sweep.centre else None,
            "reference": _reference(standings, sweep.task) if sweep.method != REFERENCE else None,
        })  # fmt: skip
    return {"panels": panels} if panels else None


def _reference(standings: Standings, task: str) -> list[float] | None:
    """FedAvg's mean and deviation on a task, where it has one setting there."""
    board = standings.board
    own = [name for name in board.entrants if board.method_of[name] == REFERENCE and board.counts.loc[task, name]]
    if len(own) != 1:
        return None
    line = board.measures(task, own[0])
    return [line["score"], float(np.nan_to_num(line["score_std"]))]


def draw(found: dict[str, Any]) -> Figure:
    panels = found["panels"]
    across = 4 if len(panels) % 4 == 0 else 3
    figure, grid = facets(len(panels), width=2.6, columns=across)
    several = len({(panel["method"], panel["task"]) for panel in panels}) > 1
    tasks: dict[str, list[Axes]] = {}
    for place, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
        _curve(axes, panel)
        axes.set_xlabel(short(panel["parameter"], 40))
        if several:
            axes.set_title(short(f"{panel['method']}, {panel['task']}", 40))
        if place % across == 0:
            axes.set_ylabel("test score, %")
        tasks.setdefault(panel["task"], []).append(axes)
    for own in tasks.values():  # one scale, so that a flat line looks flat
        low, high = min(axes.get_ylim()[0] for axes in own), max(axes.get_ylim()[1] for axes in own)
        for axes in own:
            axes.set_ylim(max(low, 0), min(high, 100.5))
    legend_below(figure, _handles(panels))
    return figure


def _curve(axes: Axes, panel: dict[str, Any]) -> None:
    """Score by value of the parameter, and the level of the reference."""
    place, mean, std = np.arange(len(panel["values"])), 100 * np.array(panel["mean"]), 100 * np.array(panel["std"])
    if panel["reference"]:
        level, off = (100 * value for value in panel["reference"])
        axes.axhspan(level - off, level + off, color="#999999", alpha=0.18, linewidth=0)
        axes.axhline(level, **LEVEL)
    axes.fill_between(place, mean - std, mean + std, color=COLOURS[0], alpha=0.18, linewidth=0)
    axes.plot(place, mean, "o-", color=COLOURS[0], markersize=4.5, linewidth=1.5)
    if panel["centre"] is not None:
        axes.plot(panel["centre"], mean[panel["centre"]], markersize=10, markeredgewidth=1.0, **RING)
    axes.set_xticks(place, [f"{value:g}" for value in panel["values"]])
    axes.set_xlim(-0.4, len(place) - 0.6)


def _handles(panels: list[dict[str, Any]]) -> list[Line2D]:
    names = ", ".join(sorted({panel["method"] for panel in panels}))
    handles = [Line2D([], [], color=COLOURS[0], marker="o", markersize=4.5, label=short(names))]
    if any(panel["centre"] is not None for panel in panels):
        handles.append(Line2D([], [], linestyle="none", markersize=9, label="held while others vary", **RING))
    if any(panel["reference"] for panel in panels):
        handles.append(Line2D([], [], label=REFERENCE, **LEVEL))
    return handles
