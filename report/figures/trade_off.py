"""Score against what it costs, one panel a task, with the Pareto front: nothing cheaper scores as high."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..standings import Standings
from ..statistics import pareto_front
from .style import cost_axis, facets, legend_below, looks, name_outer, short

FRONT = (
    " Ringed points and the line are the Pareto front: no method is both cheaper and better. A score far below the"
    " others stands at the lower edge with its value."
)
BYTES = "Score against traffic to the best round (all clients, up and down; 0: nothing is sent)." + FRONT
SECONDS = "Score against training time of the whole run, evaluation excluded." + FRONT
POINT: dict[str, Any] = {"linestyle": "none", "clip_on": False}
RING: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "markeredgecolor": "black"}
NEAR = 0.06  # a score within so much of the middle half is never cut off


def data(standings: Standings, cost: str) -> dict[str, Any] | None:
    """Points (entrant, cost, score) of each task; references are left out of the front."""
    board, panels = standings.board, []
    for task in board.tasks:
        own = board.summary.xs(task, level="task_label")[["score", cost]].dropna()
        own = own[[bool(board.full.loc[task, name]) for name in own.index]]
        if len(own) < 2:
            continue
        racing = np.array([name not in board.references for name in own.index])
        front = np.zeros(len(own), dtype=bool)
        front[racing] = pareto_front(own[cost][racing], own["score"][racing])
        columns = {"cost": own[cost].tolist(), "score": own["score"].tolist(), "front": front.tolist()}
        panels.append({"task": task, "names": list(own.index), **columns})
    return {"cost": cost, "entrants": board.entrants, "panels": panels} if panels else None


def lowest(scores: list[float]) -> float:
    """Where the axis ends: the lowest score that is no more than three interquartile ranges below the middle half.

    One method that does not learn would otherwise press all others into one line. Where the others agree, six points
    are near enough: an axis of tenths of a point would show differences that mean nothing.
    """
    first, third = np.quantile(scores, [0.25, 0.75])
    return min(score for score in scores if score >= first - max(3 * (third - first), NEAR))


def draw(found: dict[str, Any]) -> Figure:
    size, style = found["cost"] == "traffic", looks(found["entrants"])
    figure, grid = facets(len(found["panels"]))
    for axes, panel in zip(grid, found["panels"], strict=True):
        axes.set_title(short(panel["task"], 40))
        edge, top = 100 * lowest(panel["score"]), 100 * max(panel["score"])
        edge -= 0.08 * (top - edge)
        low = _points(axes, panel, style, edge)
        cost_axis(axes, panel["cost"], size)
        axes.margins(y=0.12)
        if low:
            axes.set_ylim(bottom=edge - 0.35 * (top - edge))
    name_outer(figure, "traffic to the best round" if size else "training time, s", "test score, %")
    shown = {name for panel in found["panels"] for name in panel["names"]}
    handles = [
        Line2D([], [], label=short(name), **{**style[name], "linestyle": "none", "markersize": 6})
        for name in found["entrants"]
        if name in shown
    ]
    legend_below(figure, handles)
    return figure


def _points(axes: Axes, panel: dict[str, Any], style: dict[str, dict[str, Any]], edge: float) -> int:
    """The front and the points of a panel; those that would lie below the edge stand on it. Returns their number."""
    points = sorted(zip(panel["cost"], panel["names"], panel["score"], panel["front"], strict=True))
    floor, low = 100 * lowest(panel["score"]), 0
    front = [(cost, max(100 * score, edge)) for cost, score in sorted((c, s) for c, _, s, best in points if best)]
    if front:
        axes.step(*zip(*front, strict=True), where="post", color="#999999", linewidth=1, zorder=1)
    for cost, name, score, best in points:
        look, place = style[name], 100 * score
        if place < floor:
            place, low = edge, low + 1  # neighbours on two lines, so that their values do not meet
            text, aside = f"{100 * score:.0f}", (0, -22 + 9 * (low % 2))
            axes.annotate(text, (cost, place), aside, textcoords="offset points", fontsize=8, ha="center")
        large = 9 if look["marker"] == "*" else 6  # a star looks small
        axes.plot(cost, place, **look | POINT, markersize=large, markeredgecolor="white", markeredgewidth=0.5, zorder=3)
        if best:
            axes.plot(cost, place, **RING | POINT, markersize=11, markeredgewidth=0.9, zorder=2)
    return low
