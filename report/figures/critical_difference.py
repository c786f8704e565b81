"""Critical-difference diagram (Demšar, JMLR 7, 2006, Fig. 1): mean ranks, and bars over what is not told apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..standings import Standings
from ..text import count
from .style import short

CAPTION = (
    "Mean ranks over datasets (1 is best). A bar joins methods that the datasets do not tell apart; without bars there"
    " were too few datasets for a test."
)
TESTS = {
    "wilcoxon": "Wilcoxon, Holm, 5%",
    "nemenyi": "Nemenyi, 5%",
    "none": "too few datasets for a test",
    "friedman": "Friedman, 5%: no difference",
}


def data(standings: Standings) -> dict[str, Any] | None:
    if len(standings.board.ranked) < 2:
        return None
    verdict = standings.verdict
    return {
        "names": list(standings.table.index),
        "ranks": [float(rank) for rank in standings.table["mean_rank"]],
        "bars": verdict.cliques(),
        "test": verdict.test,
        "difference": verdict.critical_difference,
        "datasets": len(standings.board.by_dataset),
    }


def draw(found: dict[str, Any]) -> Figure:
    names, ranks, bars = found["names"], np.asarray(found["ranks"]), found["bars"]
    k, half = len(names), (len(names) + 1) // 2
    step, top = 0.23, 0.55 + 0.13 * len(bars)  # inches between labels, and from the axis to the first label
    labels = [short(name) for name in names]
    margin = 0.9 + 0.075 * max(map(len, labels))  # room for the longest label and its rank
    width = 2 * margin + (3.6 if k <= 12 else 4.4)
    height = 0.8 + top + step * half
    figure = Figure(figsize=(width, height))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    axes.set(xlim=(0, width), ylim=(-(height - 0.75), 0.75))

    def place(rank: float) -> float:
        return margin + (rank - 1) / max(k - 1, 1) * (width - 2 * margin)

    _scale(axes, place, k)
    title = f"Mean rank over {count(found['datasets'], 'dataset')} ({TESTS[found['test']]})"
    axes.text(width / 2, 0.48, title, ha="center", va="bottom", fontsize=10)
    for i, (name, rank) in enumerate(zip(labels, ranks, strict=True)):
        left = i < half
        y = -(top + step * (i if left else k - 1 - i))
        end = margin - 0.12 if left else width - margin + 0.12
        axes.plot([place(rank), place(rank), end], [0, y, y], color="#666666", linewidth=0.8)
        axes.plot(place(rank), 0, "o", color="black", markersize=3.2)
        text = f"{name}  {rank:.2f}" if left else f"{rank:.2f}  {name}"
        axes.text(end + (-0.06 if left else 0.06), y, text, ha="right" if left else "left", va="center", fontsize=9)
    for level, (first, last) in enumerate(bars):
        ends, y = [place(ranks[first]) - 0.02, place(ranks[last]) + 0.02], -(0.2 + 0.13 * level)
        axes.plot(ends, [y, y], color="#0072B2", linewidth=3.2, solid_capstyle="butt")
    return figure


def _scale(axes: Axes, place: Callable[[float], float], last: int) -> None:
    """The axis of ranks: a tick each, all of them labelled where there is room."""
    axes.plot([place(1), place(last)], [0, 0], color="black", linewidth=1.2)
    for tick in range(1, last + 1):
        labelled = last <= 12 or tick in (1, last) or (tick % 5 == 0 and last - tick > 1)
        axes.plot([place(tick)] * 2, [0, 0.1 if labelled else 0.06], color="black", linewidth=1)
        if labelled:
            axes.text(place(tick), 0.14, str(tick), ha="center", va="bottom", fontsize=9)
