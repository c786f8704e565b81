"""How often the method of a row scores above the method of a column, over datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
import seaborn as sns
from matplotlib.figure import Figure

from ..standings import Standings
from ..statistics import win_rates
from .style import legible, short

CAPTION = (
    "Share of datasets on which the method of the row scores above the method of the column, in percent; a tie counts"
    " half."
)


def data(standings: Standings) -> dict[str, Any] | None:
    if len(standings.board.ranked) < 2:
        return None
    names = list(standings.table.index)
    rates = win_rates(standings.board.by_dataset[names]).to_numpy()
    return {"names": names, "rates": [[None if np.isnan(x) else float(x) for x in line] for line in rates]}


def draw(found: dict[str, Any]) -> Figure:
    names = [short(name, 28) for name in found["names"]]
    rates = 100 * np.array(found["rates"], dtype=float)
    side = 0.37 * len(names) + 1.0
    figure = Figure(figsize=(side + 2.6, side + 1.6), layout="constrained")
    axes = figure.subplots()
    sns.heatmap(
        rates, ax=axes, cmap="PuOr", vmin=0, vmax=100, annot=True, fmt=".0f", square=True, linewidths=0.4,
        linecolor="white", annot_kws={"fontsize": 8}, cbar_kws={"label": "row above column, %", "shrink": 0.6},
        xticklabels=names, yticklabels=names, mask=np.isnan(rates),
    )  # fmt: skip
    legible(axes)
    axes.tick_params(axis="both", length=0, labelsize=9)
    axes.set_xticklabels(names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticklabels(names, rotation=0)
    axes.set_facecolor("#BDBDBD")
    axes.grid(False)
    return figure
