"""The rank of every ranked method on every dataset: who is good everywhere, and who somewhere."""

from __future__ import annotations

from typing import Any

import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ..standings import Standings
from ..statistics import ranks
from .style import legible, short

CAPTION = "Rank of each method on each dataset (1 is best); methods in order of their mean rank."


def data(standings: Standings) -> dict[str, Any] | None:
    if len(standings.board.ranked) < 2:
        return None
    grid = ranks(standings.board.by_dataset)[list(standings.table.index)]
    return {"names": list(grid.columns), "datasets": list(grid.index), "ranks": grid.to_numpy().tolist()}


def draw(found: dict[str, Any]) -> Figure:
    names = [short(name, 28) for name in found["names"]]
    datasets = [short(name, 24) for name in found["datasets"]]
    figure = Figure(figsize=(0.5 * len(datasets) + 3.6, 0.29 * len(names) + 1.9), layout="constrained")
    axes = figure.subplots()
    table = [list(line) for line in zip(*found["ranks"], strict=True)]
    text = [[f"{rank:g}" for rank in line] for line in table]
    sns.heatmap(
        table, ax=axes, cmap="cividis_r", vmin=1, vmax=len(names), annot=text, fmt="", linewidths=0.5,
        linecolor="white", annot_kws={"fontsize": 8.5}, xticklabels=datasets, yticklabels=names,
        cbar_kws={"label": "rank", "ticks": MaxNLocator(integer=True)},
    )  # fmt: skip
    legible(axes)
    axes.tick_params(axis="both", length=0, labelsize=9)
    axes.set_xticklabels(datasets, rotation=40, ha="right", rotation_mode="anchor")
    axes.set_yticklabels(names, rotation=0)
    figure.axes[-1].invert_yaxis()
    axes.grid(False)
    return figure
