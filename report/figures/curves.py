"""Figures of score against one setting, one panel per task.

The setting is the strength of a stress condition or a setting of the task, epsilon of client-level privacy, or a
parameter of a method (FGSSL, 2023, Fig. 4; FedGL, 2021, Figs. 11-14).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from ..board import FEDAVG, LOCAL
from ..privacy_cost import NOISE
from ..ranking import Ranking
from ..sweeps import axis
from ..text import finite
from .style import COLOURS, GREYS, facets, legend_below, looks, name_outer, round_costs, short, wrapped

STRENGTHS = {  # condition -> meaning of its strength
    "participation": "share of absent clients",
    "label_flip": "share of clients with flipped labels",
    "sign_flip": "share of clients with flipped updates",
    "gaussian": "share of clients with Gaussian updates",
    "small_deviation": "share of clients with small deviations",
}
ROBUSTNESS_CAPTION = (
    "Test score against the strength of a stress condition: mean over seeds; in colour with bars of one standard"
    " deviation, the others black and grey. The legend has the order of the areas under the curves. Strength 0 is the"
    " plain task, the same in all panels of a column. Clients, alpha (small: skewed labels) and homophily are settings"
    " of the task."
)


def robustness_data(ranking: Ranking) -> dict[str, Any] | None:
    """For each condition and task: strengths, mean and deviation over seeds of every entry; the order of entries."""
    robustness, panels = ranking.robustness, []
    order = [str(name) for name in robustness.table.index]
    for condition in robustness.conditions:
        for (task, name), grid in robustness.curves.items():
            if name == condition:
                mean, std = grid.groupby(level="entrant").mean(), grid.groupby(level="entrant").std(ddof=1).fillna(0)
                lines = [
                    {"name": entrant, "mean": mean.loc[entrant].tolist(), "std": std.loc[entrant].tolist()}
                    for entrant in order
                    if entrant in mean.index
                ]
                panels.append({"task": task, "condition": name, "strengths": list(grid.columns), "lines": lines})
    return {"panels": panels, "order": order} if panels else None


def draw_robustness(data: dict[str, Any]) -> Figure:
    panels, look = data["panels"], looks(data["order"])
    across = len({panel["task"] for panel in panels})
    size = (2.3, 1.9) if across > 3 else (3.1, 2.5)  # many small panels: the text is large enough in the whole
    figure, grid = facets(len(panels), *size, columns=across)
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_title(wrapped(panel["task"]))
        axes.set_xlabel(STRENGTHS.get(panel["condition"], panel["condition"].replace("_", " ")))
        for line in panel["lines"]:
            mean, std, style = 100 * np.array(line["mean"]), 100 * np.array(line["std"]), look[line["name"]]
            front = style["color"] not in GREYS
            axes.errorbar(panel["strengths"], mean, std if front else None, ms=4, linewidth=1.2, elinewidth=0.7,
                          zorder=3 if front else 2, **style)  # fmt: skip
        if axis(panel["condition"]).ratios:
            axes.set_xscale("log")
            axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xticks(panel["strengths"], [f"{value:g}" for value in panel["strengths"]])
    for column in range(across):  # one scale per task, so that a small fall looks small
        limits = [axes.get_ylim() for axes in grid[column::across]]
        for axes in grid[column::across]:
            axes.set_ylim(max(min(low for low, _ in limits), 0), min(max(high for _, high in limits), 100.5))
    for axes in grid[::across]:
        axes.set_ylabel("test score, %")
    legend_below(figure, [Line2D([], [], label=short(name), **look[name]) for name in data["order"]])
    return figure


PRIVACY_CAPTION = (
    "Test score against the epsilon of a run (client-level, log scale; further left: more privacy): mean over seeds,"
    " band of one standard deviation. Horizontal dashes in a method's colour: its score without clipping and noise; the"
    " dashes of equal scores are side by side. Local training sends nothing."
)


def privacy_data(ranking: Ranking) -> dict[str, Any] | None:
    """For each task: epsilons, means and deviations of every method, and the scores without privacy."""
    cost, panels = ranking.privacy, dict[str, dict[str, Any]]()
    several = len({clip for _, _, clip in cost.curves}) > 1
    for (task, entrant, clip), points in cost.curves.items():
        line = points.sort_values("epsilon")
        mean, _ = cost.level(task, entrant)
        alone, _ = cost.level(task, LOCAL)
        panel = panels.setdefault(task, {"task": task, "lines": [], "alone": alone if finite(alone) else None})
        panel["lines"].append({
            "name": f"{entrant}, clip {clip:g}" if several else entrant,
            **{name: line[name].tolist() for name in ("epsilon", "score", "std")},
            "level": mean if finite(mean) else None,
        })  # fmt: skip
    return {"panels": list(panels.values())} if panels else None


def draw_privacy(data: dict[str, Any]) -> Figure:
    panels = data["panels"]
    names = sorted({line["name"] for panel in panels for line in panel["lines"]})
    look = looks([*names, LOCAL])
    level: dict[str, dict[str, Any]] = {
        name: {"color": style["color"], "linestyle": (3 * i, (3, 6)), "linewidth": 1.1, "zorder": 1}
        for i, (name, style) in enumerate(look.items())
    }
    figure, grid = facets(len(panels))
    for axes, panel in zip(grid, panels, strict=True):
        axes.set_title(wrapped(panel["task"]))
        for line in panel["lines"]:
            style, epsilon = look[line["name"]], line["epsilon"]
            mean, std = 100 * np.array(line["score"]), 100 * np.array(line["std"])
            axes.plot(epsilon, mean, markersize=4, linewidth=1.2, **style)
            axes.fill_between(epsilon, mean - std, mean + std, color=style["color"], alpha=0.14, linewidth=0)
            if line["level"] is not None:
                axes.axhline(100 * line["level"], **level[line["name"]])
        if panel["alone"] is not None:
            axes.axhline(100 * panel["alone"], **level[LOCAL])
        every = [value for line in panel["lines"] for value in line["epsilon"]]
        axes.set_xscale("log")
        axes.set_xticks(ticks := round_costs(min(every), max(every)), [f"{tick:g}" for tick in ticks])
        axes.xaxis.set_minor_locator(NullLocator())
    name_outer(figure, "epsilon", "test score, %")
    handles = [Line2D([], [], label=short(name), **look[name]) for name in names]
    if any(panel["alone"] is not None for panel in panels):
        handles.append(Line2D([], [], label=short(LOCAL), **level[LOCAL]))
    legend_below(figure, handles)
    return figure


LEVEL: dict[str, Any] = {"color": "#555555", "linestyle": (0, (4, 2)), "linewidth": 1.1}
BAND: dict[str, Any] = {"color": "#999999", "alpha": 0.3, "linewidth": 0}
RING: dict[str, Any] = {"marker": "o", "markerfacecolor": "none", "markeredgecolor": "black"}
SENSITIVITY_CAPTION = (
    "Test score against one parameter at a time: mean over seeds, band of one standard deviation. Values have equal"
    " distances. Ring: the setting of which the others change one value. Dashed, with a grey band: FedAvg on the same"
    " task."
)


def sensitivity_data(ranking: Ranking) -> dict[str, Any] | None:
    """For each sweep: values of the parameter, mean and deviation of the score, and those of FedAvg on the task."""
    board, panels = ranking.board, []
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
            "reference": _reference(ranking, sweep.task) if sweep.method != FEDAVG else None,
        })  # fmt: skip
    return {"panels": panels} if panels else None


def _reference(ranking: Ranking, task: str) -> list[float] | None:
    """Mean and deviation of FedAvg on a task; None unless it has exactly one setting there."""
    board = ranking.board
    names = [name for name in board.entrants if board.method_of[name] == FEDAVG and board.counts.loc[task, name]]
    if len(names) != 1:
        return None
    line = board.measures(task, names[0])
    return [line["score"], float(np.nan_to_num(line["score_std"]))]


def draw_sensitivity(data: dict[str, Any]) -> Figure:
    panels = data["panels"]
    across = 4 if len(panels) % 4 == 0 else 3
    figure, grid = facets(len(panels), width=2.6, columns=across)
    tasks: dict[str, list[Axes]] = {}
    for place, (axes, panel) in enumerate(zip(grid, panels, strict=True)):
        _curve(axes, panel)
        axes.set_xlabel(short(panel["parameter"], 40))
        axes.set_title(wrapped(f"{short(panel['method'])}, {panel['task']}"))
        if place % across == 0:
            axes.set_ylabel("test score, %")
        tasks.setdefault(panel["task"], []).append(axes)
    for of_task in tasks.values():  # one scale, so that a flat line looks flat
        limits = [axes.get_ylim() for axes in of_task]
        for axes in of_task:
            axes.set_ylim(max(min(low for low, _ in limits), 0), min(max(high for _, high in limits), 100.5))
    legend_below(figure, _handles(panels))
    return figure


def _curve(axes: Axes, panel: dict[str, Any]) -> None:
    """Draw the score by value of the parameter, and the reference."""
    place, mean, std = np.arange(len(panel["values"])), 100 * np.array(panel["mean"]), 100 * np.array(panel["std"])
    if panel["reference"]:
        level, off = (100 * value for value in panel["reference"])
        axes.axhspan(level - off, level + off, **BAND)
        axes.axhline(level, **LEVEL)
    axes.fill_between(place, mean - std, mean + std, color=COLOURS[0], alpha=0.18, linewidth=0)
    axes.plot(place, mean, "o-", color=COLOURS[0], markersize=4.5, linewidth=1.5)
    if panel["centre"] is not None:
        axes.plot(panel["centre"], mean[panel["centre"]], markersize=10, markeredgewidth=1.0, **RING)
    axes.set_xticks(place, [f"{value:g}" for value in panel["values"]])
    axes.set_xlim(-0.4, len(place) - 0.6)


def _handles(panels: list[dict[str, Any]]) -> list[Artist]:
    names = ", ".join(sorted({short(panel["method"]) for panel in panels}))
    handles: list[Artist] = [Line2D([], [], color=COLOURS[0], marker="o", markersize=4.5, label=names)]
    if any(panel["centre"] is not None for panel in panels):
        handles.append(Line2D([], [], linestyle="none", markersize=9, label="held while others vary", **RING))
    if any(panel["reference"] for panel in panels):
        handles += [Line2D([], [], label=short(FEDAVG), **LEVEL), Patch(label="its standard deviation", **BAND)]
    return handles
