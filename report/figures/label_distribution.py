"""What each client holds, as bubbles: clients across, classes up, area = nodes (FedOMD, ICPP-W 2024, Fig. 4)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ...registry import UserError
from ..standings import Standings
from .style import COLOURS, RC, facets, name_outer, short

CAPTION = (
    "Labels that each client holds, of the lowest seed: the area of a bubble is the number of nodes (or graphs) of a"
    " class at a client, relative to the largest of its panel."
)


def data(standings: Standings) -> dict[str, Any] | None:
    """Counts of each task, clients x classes; and the tasks whose runs did not store any."""
    board, panels, lacking = standings.board, [], []
    for task in board.tasks:
        rows = board.scored[board.scored["task_label"] == task].sort_values(["seed", "entrant"])
        for row in rows.to_dict("records"):
            counts = board.label_counts(str(row["key"]))
            if counts is not None:
                panels.append({"task": task, "seed": int(row["seed"]), "counts": counts.tolist()})
                break
        else:
            lacking.append(task)
    return {"panels": panels, "lacking": lacking} if panels else None


def draw(found: dict[str, Any]) -> Figure:
    figure, grid = facets(len(found["panels"]))
    for axes, panel in zip(grid, found["panels"], strict=True):
        bubbles(axes, np.array(panel["counts"]), 2.5, 1.9)
        axes.set_title(short(panel["task"], 40))
    name_outer(figure, "client", "class")
    if found["lacking"]:
        names = short(", ".join(found["lacking"]), 40 * len(grid))
        figure.supxlabel(f"No counts are stored for: {names}", fontsize=8, color="#555555")
    return figure


def bubbles(axes: Axes, labels: NDArray[np.int64], width: float, height: float) -> None:
    """The bubbles of counts (clients, classes) on axes of about so many inches."""
    clients, classes = labels.shape
    client, label = np.nonzero(labels)
    # the largest bubble just fills its cell: the smaller of the distances between clients and between classes
    cell = 72 * min(width / (clients + 0.4), height / (classes + 0.4))
    area = (0.92 * cell) ** 2 * labels[client, label] / max(labels.max(), 1)
    axes.scatter(client, label, s=area, c=COLOURS[0], alpha=0.8, linewidths=0)
    axes.set(xlim=(-0.7, clients - 0.3), ylim=(-0.7, classes - 0.3))
    axes.xaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=10, integer=True))


def save(labels: NDArray[np.int64], title: str, path: Path) -> None:
    """One partition's picture, written to `path` (its suffix is the format). Raises UserError where it cannot be."""
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
