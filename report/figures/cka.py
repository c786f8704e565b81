"""How alike the clients' own models are: CKA of their embeddings of the same nodes (FGSSL, IJCAI 2023, Fig. 1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..similarity import cka_table, mean_off_diagonal
from ..standings import Standings
from .embeddings import shown, sound
from .style import grid_of, short

CAPTION = (
    "Linear CKA between the embeddings that the clients' own models give the same test nodes of the whole graph, at the"
    " best round and before aggregation (1: alike but for a rotation and a scale). In brackets: the mean over pairs of"
    " clients."
)


def data(standings: Standings) -> dict[str, Any] | None:
    """CKA of every pair of clients in each run."""
    return shown(standings, _picked)


def _picked(arrays: dict[str, np.ndarray]) -> dict[str, Any] | None:
    names = sorted(name for name in arrays if name.startswith("client_"))
    clients = [arrays[name] for name in names]
    same = len({len(rows) for rows in clients if rows.ndim}) == 1
    if len(clients) < 2 or not same or not all(map(sound, clients)):
        return None
    return {"cka": cka_table(clients).tolist()}  # not the array: processors differ in its last bits


def draw(found: dict[str, Any]) -> Figure:
    figure, grid = grid_of([len(task["runs"]) for task in found["tasks"]])
    for line, task in zip(grid, found["tasks"], strict=True):
        for axes, run in zip(line, task["runs"], strict=True):
            table = np.array(run["cka"])
            picture = axes.imshow(table, vmin=0, vmax=1, cmap="cividis")
            axes.set_title(short(f"{run['name']} ({mean_off_diagonal(table):.2f})", 32))
            axes.set_xlabel("client")
            axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
            axes.grid(False)
        line[0].set_ylabel(f"{short(task['task'], 30)}\n\nclient")
    figure.colorbar(picture, ax=[axes for line in grid for axes in line], label="linear CKA", shrink=0.8)
    return figure
