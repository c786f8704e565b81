"""The figures of a board. Each file has `data` (what is drawn, JSON-ready, or None where it does not apply) and `draw`.

A figure is stale when its data, or the code that draws them, have changed since it was drawn; the digests of both lie
beside the figures.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ..standings import Standings
from . import (
    cka,
    convergence,
    cost,
    forest,
    heat_maps,
    label_distribution,
    per_client,
    privacy_curves,
    sensitivity,
    stress_curves,
    style,
    tsne,
)
from .png import packed


@dataclass(frozen=True)
class Plot:
    """A figure by file name. `data` is pure; `draw` sees nothing but what `data` gave.

    contest: it is about entrants that compete, which those of a sweep do not. panels: it has one for each task, and of
    a board under stress shows the plain tasks only.
    """

    file: str
    caption: str
    data: Callable[[Standings], dict[str, Any] | None]
    draw: Callable[[dict[str, Any]], Figure]
    contest: bool = True
    panels: bool = False

    def png(self, found: dict[str, Any]) -> bytes:
        """The picture; the same data give the same bytes with the same matplotlib."""
        with mpl.rc_context(style.RC):
            return packed(self.draw(found))

    def digest(self, found: dict[str, Any]) -> str:
        """sha256 (16 hex) of the data (floats to nine significant digits, stored arrays to the bit), of the source of
        the module that draws them and of the style that all share."""
        text = json.dumps(_rounded(found), sort_keys=True, separators=(",", ":"))
        code = _source(self.draw.__module__) + _source(style.__name__)
        return hashlib.sha256((text + code).encode()).hexdigest()[:16]


def _source(module: str) -> str:
    return inspect.getsource(sys.modules[module])


PLOTS = [
    Plot("tiers.png", forest.CAPTION, forest.data, forest.draw),
    Plot("cost.png", cost.CAPTION, cost.data, cost.draw),
    Plot("rank_heatmap.png", heat_maps.RANKS, heat_maps.rank_data, heat_maps.draw_ranks),
    Plot("convergence.png", convergence.CAPTION, convergence.data, convergence.draw, panels=True),
    Plot("per_client.png", per_client.CAPTION, per_client.data, per_client.draw, panels=True),
    Plot("robustness.png", stress_curves.CAPTION, stress_curves.data, stress_curves.draw),
    Plot("privacy.png", privacy_curves.CAPTION, privacy_curves.data, privacy_curves.draw, contest=False),
    Plot("sensitivity.png", sensitivity.CAPTION, sensitivity.data, sensitivity.draw, contest=False),
    Plot("tsne.png", tsne.CAPTION, tsne.data, tsne.draw),
    Plot("cka.png", cka.CAPTION, cka.data, cka.draw),
    Plot(
        "label_distribution.png",
        label_distribution.CAPTION,
        label_distribution.data,
        label_distribution.draw,
        panels=True,
    ),
]


def found_figures(standings: Standings) -> dict[Plot, dict[str, Any]]:
    """The figures that a board has, with their data."""
    wanted = [plot for plot in PLOTS if not (plot.contest and standings.board.is_sweep)]
    shown = {plot: plot.data(standings.plain if plot.panels else standings) for plot in wanted}
    return {plot: found for plot, found in shown.items() if found is not None}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return [value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).hexdigest()]
    return f"{value:.9g}" if isinstance(value, float) else value
