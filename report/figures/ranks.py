"""Figures of the ranking: tiers with intervals, ranks per dataset, mean rank against cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from scipy.optimize import isotonic_regression

from ..ranking import Ranking
from ..statistics import ROPE, pareto_front, ranks
from ..text import percent
from .style import cost_axis, legible, short

TIERS_CAPTION = (
    "Methods by mean rank, with letters: of two methods that share a letter neither is shown to be better. Left: mean"
    " rank with its 95% interval over datasets (lower is better). Other panels: difference in score from the baseline"
    " named above, in points, with its 95% interval (right is better). Blue: better than the baseline by more than one"
    " point with a probability of 95%; orange: worse; grey square: within one point; open circle: undecided. Grey band:"
    " one point below to one point above the baseline. Methods far below the others are at the edge with their value."
)
COLOURS = {"better": "#0072B2", "worse": "#D55E00"}
NEAR = 3  # methods that are more interquartile ranges below the first quartile are drawn at the edge


def _comparable(ranking: Ranking) -> bool:
    """Whether there are at least two methods and two datasets."""
    return len(ranking.board.ranked) > 1 and len(ranking.board.by_dataset) > 1


def tiers_data(ranking: Ranking) -> dict[str, Any] | None:
    if not _comparable(ranking):
        return None
    table = ranking.table
    panels = []
    for baseline, posteriors in ranking.inference.against.items() if ranking.inference.unit != "none" else ():
        lines = [posteriors.get(name) for name in table.index]
        points = [None if gap is None else [100 * gap.mean, 100 * gap.low, 100 * gap.high] for gap in lines]
        verdicts = ["" if gap is None else gap.verdict for gap in lines]
        panels.append({"baseline": baseline, "points": points, "verdicts": verdicts})
    ranks = table[["mean_rank", "low", "high"]].to_numpy().tolist()
    return {"names": list(table.index), "groups": table["group"].tolist(), "ranks": ranks, "panels": panels}


def draw_tiers(data: dict[str, Any]) -> Figure:
    names, panels = data["names"], data["panels"]
    labels = [f"{short(name)}  {group}" for name, group in zip(names, data["groups"], strict=True)]
    size = (4.6 + 2.6 * len(panels), 0.9 + 0.23 * len(names))
    figure = Figure(figsize=size, layout="constrained")
    grid = np.atleast_1d(figure.subplots(1, 1 + len(panels), sharey=True, squeeze=False)).ravel()
    for place, (mean, low, high) in enumerate(data["ranks"]):
        grid[0].plot([low, high], [place, place], color="#666666", linewidth=1.6, solid_capstyle="butt")
        grid[0].plot(mean, place, "o", color="black", markersize=4.5)
    grid[0].set(xlabel="mean rank (lower is better)", xlim=(0.5, len(names) + 0.5), ylim=(len(names) - 0.4, -0.6))
    grid[0].set_yticks(range(len(names)), labels)
    for axes, panel in zip(grid[1:], panels, strict=True):
        _differences(axes, panel)
    for axes in grid:
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
    return figure


def _differences(axes: Axes, panel: dict[str, Any]) -> None:
    known = [point for point in panel["points"] if point is not None]
    first, third = np.quantile([mean for mean, _, _ in known], [0.25, 0.75])
    least = min(first - max(NEAR * (third - first), 1.0), -1.0)  # the rope of the baseline is always shown
    edge = min(low for mean, low, _ in known if mean >= least) - 0.3
    axes.axvspan(-100 * ROPE, 100 * ROPE, color="#EFEFEF", zorder=0, linewidth=0)
    axes.axvline(0, color="black", linewidth=0.8)
    for place, (point, verdict) in enumerate(zip(panel["points"], panel["verdicts"], strict=True)):
        colour = COLOURS.get(verdict, "#666666")
        inside = "white" if verdict == "undecided" else colour
        if point is None:
            axes.text(0.0, place, " baseline", va="center", fontsize=7.5, color="#444444")
        elif point[0] < least:
            axes.plot(edge, place, "<", color=colour, markersize=4.5, markerfacecolor=inside)
            axes.annotate(percent(point[0] / 100, 1), (edge, place), (5, 0), textcoords="offset points", va="center",
                          fontsize=7.5)  # fmt: skip
        else:
            axes.plot(point[1:], [place, place], color=colour, linewidth=1.6)
            mark = "s" if verdict == "equivalent" else "o"
            axes.plot(point[0], place, mark, color=colour, markersize=4.5, markerfacecolor=inside)
    axes.set_xlabel(f"points above {short(panel['baseline'])}")


RANKS_CAPTION = "Rank of each method on each dataset (1 is best); methods by mean rank."


def rank_data(ranking: Ranking) -> dict[str, Any] | None:
    if not _comparable(ranking):
        return None
    grid = ranks(ranking.board.by_dataset)[list(ranking.table.index)]
    return {"names": list(grid.columns), "datasets": list(grid.index), "ranks": grid.to_numpy().tolist()}


def draw_ranks(data: dict[str, Any]) -> Figure:
    names = [short(name) for name in data["names"]]
    datasets = [short(name) for name in data["datasets"]]
    figure = Figure(figsize=(0.5 * len(datasets) + 3.6, 0.29 * len(names) + 1.9), layout="constrained")
    table = np.transpose(data["ranks"])
    text = [[f"{rank:g}" for rank in line] for line in table]
    _heat_map(
        figure.subplots(), table, names, datasets, 40, cmap="cividis_r", vmin=1, vmax=len(names), annot=text, fmt="",
        linewidths=0.5, annot_kws={"fontsize": 8.5},
        cbar_kws={"label": "rank (1 is best)", "ticks": MaxNLocator(integer=True)},
    )  # fmt: skip
    figure.axes[-1].invert_yaxis()
    return figure


def _heat_map(axes: Axes, table: np.ndarray, rows: list[str], columns: list[str], slant: float, **look: Any) -> None:
    """Draw a table with row names, column names at `slant` degrees, and legible numbers."""
    sns.heatmap(table, ax=axes, linecolor="white", xticklabels=columns, yticklabels=rows, **look)
    legible(axes)
    axes.tick_params(axis="both", length=0, labelsize=9)
    axes.set_xticklabels(columns, rotation=slant, ha="right", rotation_mode="anchor")
    axes.set_yticklabels(rows, rotation=0)
    axes.grid(False)


COST_CAPTION = (
    "Mean rank (1 is best, at the top) against traffic to the best round (all clients, up and down; 0: nothing is sent)"
    " and against {time}, both medians over tasks. Filled points and the line are the Pareto"
    " front: no method is both cheaper and better."
)
COSTS = ("traffic", "seconds")
TIMES = {"train_seconds": "training time", "cpu_seconds": "CPU time of the whole run"}


def cost_data(ranking: Ranking) -> dict[str, Any] | None:
    if not _comparable(ranking):
        return None
    table = ranking.table.sort_values("mean_rank", kind="stable")
    ranks = table["mean_rank"].to_numpy()
    costs = {name: table[name].tolist() for name in COSTS}
    fronts = {name: pareto_front(table[name], -ranks).tolist() for name in COSTS}
    time = TIMES[ranking.board.clock]
    return {"names": list(table.index), "ranks": ranks.tolist(), "costs": costs, "fronts": fronts, "time": time}


def draw_cost(data: dict[str, Any]) -> Figure:
    names, ranks = [short(name) for name in data["names"]], np.array(data["ranks"])
    longest = max(map(len, names))
    figure = Figure(figsize=(7.0 + 0.09 * longest, max(2.6, 0.9 + 0.2 * len(names))))
    middle = (0.09 * longest + 0.5) / figure.get_figwidth()  # share of the width for names and their lines
    foot, top = 0.55 / figure.get_figheight(), 0.97
    wide = (0.89 - middle) / 2
    lines = spread(ranks, (len(names) + 1) / max(len(names), 8) * 0.8)
    for side, name in enumerate(COSTS):
        axes = figure.add_axes((0.09 + side * (wide + middle), foot, wide, top - foot))
        _panel(axes, data["costs"][name], ranks, data["fronts"][name], name)
        axes.set_xlabel("traffic to the best round" if name == "traffic" else f"{data['time']}, s")
        edge = axes.get_xlim()[1 - side]
        for rank, line in zip(ranks, lines, strict=True):
            outside = {"xycoords": axes.get_yaxis_transform(), "textcoords": axes.get_yaxis_transform()}
            near, far = (1.0, 1.0 + 0.2 / 3) if side == 0 else (0.0, -0.2 / 3)
            axes.annotate("", (near, rank), (far, line), annotation_clip=False, zorder=0,
                          arrowprops={"arrowstyle": "-", "color": "#BBBBBB", "linewidth": 0.6, "shrinkA": 0,
                                      "shrinkB": 0}, **outside)  # fmt: skip
        for cost, rank in zip(data["costs"][name], ranks, strict=True):
            axes.plot([cost, edge], [rank, rank], color="#DDDDDD", linewidth=0.6, zorder=1)
        axes.set_ylim(max(len(names) + 0.7, lines[-1] + 0.5), min(0.3, lines[0] - 0.5))
        if side == 0:
            axes.set_ylabel("mean rank (lower is better)")
            transform = axes.get_yaxis_transform()
            for text, line in zip(names, lines, strict=True):
                axes.text(1 + middle / wide / 2, line, text, transform=transform, ha="center", va="center", fontsize=8)
        else:
            axes.set_yticklabels([])
    return figure


def spread(places: np.ndarray, gap: float) -> list[float]:
    """Move ascending places as little as possible (least squares) so that neighbours are at least `gap` apart."""
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
