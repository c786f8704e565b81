"""Figures of the clients, one panel per task.

Test score of each client (FedGL, 2021, Fig. 10). Labels of each client as bubbles (FedOMD, ICPP-W 2024, Fig. 4):
clients on the x-axis, classes on the y-axis, area = nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ...registry import UserError
from ..ranking import Ranking
from .style import COLOURS, RC, facets, legend_below, name_outer, short, wrapped

CLIENTS_CAPTION = (
    "Test score of each client on its own nodes at the best round. The clients of each seed are sorted, then seeds are"
    " averaged. Diamond: the worst client of a run; bar: the mean over clients."
)


def clients_data(ranking: Ranking) -> dict[str, Any] | None:
    """For each task and entry: the scores of the clients in increasing order, averaged over seeds."""
    board, panels = ranking.board, []
    keys = board.scored.groupby(["task_label", "entrant"])["key"].agg(list)
    for task in board.tasks:
        lines = []
        for name in ranking.order:
            if not board.full.loc[task, name]:
                continue
            runs = [board.client_scores(str(key)) for key in keys[task, name]]
            if all(len(run) > 1 for run in runs):
                lines.append({"name": name, "scores": spread(runs).tolist()})
        if lines:
            panels.append({"task": task, "lines": lines})
    return {"panels": panels} if panels else None


def spread(runs: list[np.ndarray]) -> np.ndarray:
    """Sort the values of each run and take the mean over runs: element 0 is the mean of the lowest values. A run with
    fewer values (a client without test nodes) is interpolated to the length of the longest."""
    places = np.linspace(0, 1, max(map(len, runs)))
    return np.mean([np.quantile(run, places) for run in runs], axis=0)


def draw_clients(data: dict[str, Any]) -> Figure:
    shown = {line["name"] for panel in data["panels"] for line in panel["lines"]}
    longest = max(data["panels"], key=lambda panel: len(panel["lines"]))
    names = [line["name"] for line in longest["lines"]]
    names += sorted(shown - set(names))
    height = max(0.165 * len(names) + 0.75, 1.7)
    figure, grid = facets(len(data["panels"]), width=2.9, height=height)
    for axes, panel in zip(grid, data["panels"], strict=True):
        axes.set_title(wrapped(panel["task"]))
        for line in panel["lines"]:
            at, scores = names.index(line["name"]), 100 * np.array(line["scores"])
            axes.plot(scores[[0, -1]], [at, at], color="#CCCCCC", linewidth=1, zorder=1)
            axes.plot(scores[1:], [at] * (len(scores) - 1), "o", color=COLOURS[0], markersize=3, alpha=0.55,
                      markeredgewidth=0, zorder=2)  # fmt: skip
            axes.plot(scores[0], at, "D", color=COLOURS[1], markersize=3.6, markeredgewidth=0, zorder=3)
            axes.plot(scores.mean(), at, "|", color="black", markersize=8, markeredgewidth=1.6, zorder=4)
        axes.set_ylim(len(names) - 0.4, -0.6)
        axes.set_yticks(range(len(names)), [short(name) for name in names])
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


LABELS_CAPTION = (
    "Labels per client, for the lowest seed: the area of a bubble is the number of nodes (or graphs) of a class at a"
    " client, relative to the largest in its panel."
)


def labels_data(ranking: Ranking) -> dict[str, Any] | None:
    """Label counts of each federation, clients x classes, and the federations without stored counts."""
    board, panels, lacking = ranking.board, [], []
    for federation, rows in board.scored.groupby("federation", sort=True):
        for row in rows.sort_values(["seed", "entrant"]).to_dict("records"):
            counts = board.label_counts(str(row["key"]))
            if counts is not None:
                panels.append({"task": federation, "seed": int(row["seed"]), "counts": counts.tolist()})
                break
        else:
            lacking.append(federation)
    return {"panels": panels, "lacking": lacking} if panels else None


def draw_labels(data: dict[str, Any]) -> Figure:
    figure, grid = facets(len(data["panels"]))
    for axes, panel in zip(grid, data["panels"], strict=True):
        bubbles(axes, np.array(panel["counts"]), 2.5, 1.9)
        axes.set_title(wrapped(panel["task"]))
    name_outer(figure, "client", "class")
    if data["lacking"]:
        names = short(", ".join(data["lacking"]), 40 * len(grid))
        figure.supxlabel(f"No counts are stored for: {names}", fontsize=8, color="#555555")
    return figure


def bubbles(axes: Axes, labels: NDArray[np.int64], width: float, height: float) -> None:
    """Draw counts (clients, classes) as bubbles on axes of about `width` x `height` inches."""
    clients, classes = labels.shape
    client, label = np.nonzero(labels)
    # the diameter of the largest bubble: the smaller of the distances between clients and between classes
    cell = 72 * min(width / (clients + 0.4), height / (classes + 0.4))
    area = (0.92 * cell) ** 2 * labels[client, label] / max(labels.max(), 1)
    axes.scatter(client, label, s=area, c=COLOURS[0], alpha=0.8, linewidths=0)
    axes.set(xlim=(-0.7, clients - 0.3), ylim=(-0.7, classes - 0.3))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))


def save_labels(labels: NDArray[np.int64], title: str, path: Path) -> None:
    """Write the picture of a partition to `path` (the suffix is the format). Raises UserError if this fails."""
    clients, classes = labels.shape
    width, height = np.clip([1.6 + 0.45 * clients, 1.2 + 0.38 * classes], [4.5, 2.6], [16, 12])
    with mpl.rc_context(RC):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots()
        bubbles(axes, labels, 0.85 * width, 0.75 * height)
        axes.set(title=short(title, 200), xlabel="client", ylabel="class")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path)
        except (OSError, ValueError) as error:
            raise UserError(f"the plot cannot be written to {path}: {str(error).splitlines()[0]}") from None
