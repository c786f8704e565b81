"""What a better rank costs: mean rank against traffic and against time, with the Pareto front; names between."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.optimize import isotonic_regression

from ..standings import Standings
from ..statistics import pareto_front
from .style import cost_axis, short

CAPTION = (
    "Mean rank (1 is best, at the top) against traffic to the best round (all clients, up and down; 0: nothing is sent)"
    " and against the time of the whole run, both medians over tasks. Filled points and the line are the Pareto"
    " front: no method is both cheaper and better."
)
COSTS = ("traffic", "seconds")
AXES = {
    "traffic": "traffic to the best round",
    "train_seconds": "training time, s",
    "cpu_seconds": "CPU time of the whole run, s",
}


def data(standings: Standings) -> dict[str, Any] | None:
    if len(standings.board.ranked) < 2:
        return None
    table = standings.table.sort_values("mean_rank", kind="stable")
    ranks = table["mean_rank"].to_numpy()
    costs = {name: table[name].tolist() for name in COSTS}
    fronts = {name: pareto_front(table[name], -ranks).tolist() for name in COSTS}
    titles = dict(zip(COSTS, (AXES["traffic"], AXES[standings.board.clock]), strict=True))
    return {"names": list(table.index), "ranks": ranks.tolist(), "costs": costs, "fronts": fronts, "titles": titles}


def draw(found: dict[str, Any]) -> Figure:
    names, ranks = [short(name, 22) for name in found["names"]], np.array(found["ranks"])
    longest = max(map(len, names))
    figure = Figure(figsize=(7.0 + 0.09 * longest, max(2.6, 0.9 + 0.2 * len(names))))
    middle = (0.09 * longest + 0.5) / figure.get_figwidth()  # of the width: names and what leads to them
    foot, top = 0.55 / figure.get_figheight(), 0.97
    wide = (0.89 - middle) / 2
    lines = spread(ranks, (len(names) + 1) / max(len(names), 8) * 0.8)
    for side, name in enumerate(COSTS):
        axes = figure.add_axes((0.09 + side * (wide + middle), foot, wide, top - foot))
        _panel(axes, found["costs"][name], ranks, found["fronts"][name], name)
        axes.set_xlabel(found["titles"][name])
        edge = axes.get_xlim()[1 - side]
        for rank, line in zip(ranks, lines, strict=True):
            outside = {"xycoords": axes.get_yaxis_transform(), "textcoords": axes.get_yaxis_transform()}
            near, far = (1.0, 1.0 + 0.2 / 3) if side == 0 else (0.0, -0.2 / 3)
            axes.annotate("", (near, rank), (far, line), annotation_clip=False, zorder=0,
                          arrowprops={"arrowstyle": "-", "color": "#BBBBBB", "linewidth": 0.6, "shrinkA": 0,
                                      "shrinkB": 0}, **outside)  # fmt: skip
        for cost, rank in zip(found["costs"][name], ranks, strict=True):
            axes.plot([cost, edge], [rank, rank], color="#DDDDDD", linewidth=0.6, zorder=1)
        axes.set_ylim(max(len(names) + 0.7, lines[-1] + 0.5), min(0.3, lines[0] - 0.5))
        if side == 0:
            axes.set_ylabel("mean rank")
            transform = axes.get_yaxis_transform()
            for text, line in zip(names, lines, strict=True):
                axes.text(1 + middle / wide / 2, line, text, transform=transform, ha="center", va="center", fontsize=8)
        else:
            axes.set_yticklabels([])
    return figure


def spread(places: np.ndarray, gap: float) -> list[float]:
    """Ascending places moved as little as need be (least squares) for neighbours to lie `gap` apart."""
    steps = gap * np.arange(len(places))
    return list(isotonic_regression(places - steps).x + steps)


def _panel(axes: Axes, costs: list[float], ranks: np.ndarray, front: list[bool], name: str) -> None:
    best = sorted((cost, rank) for cost, rank, on in zip(costs, ranks, front, strict=True) if on)
    axes.step(*zip(*best, strict=True), where="post", color="#0072B2", linewidth=1, zorder=2)
    for cost, rank, on in zip(costs, ranks, front, strict=True):
        colour = "#0072B2" if on else "white"
        axes.plot(cost, rank, "o", color=colour, markeredgecolor="#0072B2" if on else "#666666", markersize=5.5,
                  clip_on=False, zorder=3)  # fmt: skip
    cost_axis(axes, costs, size=name == "traffic")
    axes.grid(axis="y", visible=False)
