"""A heat map of the ranked methods: the rank of each on every dataset. Who is good everywhere, and who somewhere?"""

from __future__ import annotations

from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..standings import Standings
from ..statistics import ranks
from .style import legible, short

RANKS = "Rank of each method on each dataset (1 is best); methods by tier and mean rank."


def rank_data(standings: Standings) -> dict[str, Any] | None:
    if len(standings.board.ranked) < 2:
        return None
    grid = ranks(standings.board.by_dataset)[list(standings.table.index)]
    return {"names": list(grid.columns), "datasets": list(grid.index), "ranks": grid.to_numpy().tolist()}


def draw_ranks(found: dict[str, Any]) -> Figure:
    names = [short(name, 28) for name in found["names"]]
    datasets = [short(name, 24) for name in found["datasets"]]
    figure = Figure(figsize=(0.5 * len(datasets) + 3.6, 0.29 * len(names) + 1.9), layout="constrained")
    table = np.transpose(found["ranks"])
    text = [[f"{rank:g}" for rank in line] for line in table]
    _heat_map(
        figure.subplots(), table, names, datasets, 40, cmap="cividis_r", vmin=1, vmax=len(names), annot=text, fmt="",
        linewidths=0.5, annot_kws={"fontsize": 8.5}, cbar_kws={"label": "rank", "ticks": MaxNLocator(integer=True)},
    )  # fmt: skip
    figure.axes[-1].invert_yaxis()
    return figure


def _heat_map(axes: Axes, table: np.ndarray, rows: list[str], columns: list[str], slant: float, **look: Any) -> None:
    """A table with its names, those of the columns at `slant` degrees, and legible figures."""
    sns.heatmap(table, ax=axes, linecolor="white", xticklabels=columns, yticklabels=rows, **look)
    legible(axes)
    axes.tick_params(axis="both", length=0, labelsize=9)
    axes.set_xticklabels(columns, rotation=slant, ha="right", rotation_mode="anchor")
    axes.set_yticklabels(rows, rotation=0)
    axes.grid(False)
