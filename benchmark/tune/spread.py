"""The figure of a suite's studies: where the trials of each lie, and how the best of them grows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ...report.figures.style import COLOURS, FAINT, RC, legend_below, looks, packed, short
from .study import DEFAULT, Study


def picture(found: Sequence[Study]) -> bytes:
    """A PNG with two panels a dataset: validation of all trials in the first rung, with the suite's own setting and the
    best for all rounds; and the best so far in the first rung, against its first trial."""
    datasets = list(dict.fromkeys(study.cell.dataset.name for study in found))
    methods = sorted({study.cell.method.name for study in found})
    look = looks(methods)
    with mpl.rc_context(RC):
        height = max(1.8, 0.9 + 0.2 * len(methods))
        figure = Figure(figsize=(8.5, height * len(datasets)), layout="constrained")
        for (left, right), dataset in zip(figure.subplots(len(datasets), 2, squeeze=False), datasets, strict=True):
            own = [study for study in found if study.cell.dataset.name == dataset]
            _spread(left, own)
            _growth(right, own, look)
            left.set_title(short(dataset))
        left.set_xlabel("validation")
        right.set_xlabel("trials")
        legend_below(figure, [Line2D([], [], label=short(name), **look[name]) for name in methods])
        return packed(figure)


def _spread(axes: Axes, found: Sequence[Study]) -> None:
    """Grey: first rung. Ring: the suite's own setting, dot: the best, for all rounds."""
    for place, study in enumerate(found):
        values = [own for trial in study.trials if (own := study.values(trial))]
        full = [own[-1] for own in values if len(own) == len(study.rungs)]
        default = study.values(study.trials[DEFAULT])
        axes.scatter([own[0] for own in values], [place] * len(values), s=14, color=FAINT)
        if len(default) == len(study.rungs):
            axes.scatter(default[-1], place, s=34, facecolors="none", edgecolors="black")
        axes.scatter(max(full, default=float("nan")), place, s=16, color=COLOURS[1])
    axes.set_yticks(range(len(found)), [short(study.cell.method.name) for study in found])
    axes.invert_yaxis()


def _growth(axes: Axes, found: Sequence[Study], look: dict[str, dict[str, Any]]) -> None:
    for study in found:
        first = [own[0] if (own := study.values(trial)) else 0.0 for trial in study.trials]
        best = [value - first[DEFAULT] for value in accumulate(first, max)]
        axes.step(range(1, len(best) + 1), best, where="post", **{**look[study.cell.method.name], "marker": ""})
    axes.set_ylabel("gain, best so far")
