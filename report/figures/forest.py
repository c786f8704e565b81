"""Tiers with their intervals: the mean rank of each method, and how far it lies from each control."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..standings import Standings
from ..statistics import ALPHA
from ..text import percent
from .style import short

CAPTION = (
    "Methods by tier (bands). Left: mean rank with its 95% interval over datasets (1 is best). Right: difference in"
    " score from a control, in points, with its 95% interval; filled where it is told from zero (Holm, 5%). What lies"
    " far below the others stands at the edge with its value."
)
NEAR = 3  # interquartile ranges: what lies further below the middle half than so many is cut off


def data(standings: Standings) -> dict[str, Any] | None:
    if len(standings.board.ranked) < 2:
        return None
    table = standings.table
    panels = []
    for control, found in standings.contest.against.items() if standings.contest.unit != "none" else ():
        lines = [found.get(name) for name in table.index]
        points = [None if one is None else [100 * one.mean, 100 * one.low, 100 * one.high] for one in lines]
        told = [one is not None and one.p <= ALPHA for one in lines]
        panels.append({"control": control, "points": points, "told": told})
    ranks = table[["mean_rank", "low", "high"]].to_numpy().tolist()
    return {"names": list(table.index), "tiers": table["tier"].tolist(), "ranks": ranks, "panels": panels}


def draw(found: dict[str, Any]) -> Figure:
    names, panels = found["names"], found["panels"]
    size = (4.6 + 2.6 * len(panels), 0.9 + 0.23 * len(names))
    figure = Figure(figsize=size, layout="constrained")
    grid = np.atleast_1d(figure.subplots(1, 1 + len(panels), sharey=True, squeeze=False)).ravel()
    for axes in grid:
        _bands(axes, found["tiers"])
    for place, (mean, low, high) in enumerate(found["ranks"]):
        grid[0].plot([low, high], [place, place], color="#666666", linewidth=1.6, solid_capstyle="butt")
        grid[0].plot(mean, place, "o", color="black", markersize=4.5)
    grid[0].set(xlabel="mean rank", xlim=(0.5, 1.14 * len(names) + 0.7), ylim=(len(names) - 0.4, -0.6))
    grid[0].set_yticks(range(len(names)), [short(name, 28) for name in names])
    for axes, panel in zip(grid[1:], panels, strict=True):
        _differences(axes, panel)
    for axes in grid:
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
    return figure


def _bands(axes: Axes, tiers: list[int]) -> None:
    """Every other tier on grey, each with its number."""
    for tier in sorted(set(tiers) - {0}):
        first, last = tiers.index(tier) - 0.5, len(tiers) - tiers[::-1].index(tier) - 0.5
        if tier % 2 == 0:
            axes.axhspan(first, last, color="#EFEFEF", zorder=0, linewidth=0)
        if axes.get_subplotspec().colspan.start == 0:  # type: ignore[union-attr]
            axes.text(
                1.14 * len(tiers) + 0.6, first + 0.5, f"tier {tier}", ha="right", va="center", fontsize=7.5, zorder=1
            )


def _differences(axes: Axes, panel: dict[str, Any]) -> None:
    known = [point for point in panel["points"] if point is not None]
    first, third = np.quantile([mean for mean, _, _ in known], [0.25, 0.75])
    least = min(first - max(NEAR * (third - first), 1.0), -1.0)  # what lies by the control's line is drawn there
    edge = min(low for mean, low, _ in known if mean >= least) - 0.3
    axes.axvline(0, color="black", linewidth=0.8)
    for place, (point, told) in enumerate(zip(panel["points"], panel["told"], strict=True)):
        if point is None:
            axes.text(0.0, place, " control", va="center", fontsize=7.5, color="#444444")
        elif point[0] < least:
            axes.plot(edge, place, "<", color="#D55E00", markersize=4.5)
            axes.annotate(percent(point[0] / 100, 1), (edge, place), (5, 0), textcoords="offset points", va="center",
                          fontsize=7.5)  # fmt: skip
        else:
            colour = "#666666" if not told else "#0072B2" if point[0] > 0 else "#D55E00"
            axes.plot(point[1:], [place, place], color=colour, linewidth=1.6)
            axes.plot(point[0], place, "o", color=colour, markersize=4.5, markerfacecolor=colour if told else "white")
    axes.set_xlabel(f"points above {short(panel['control'], 20)}")
