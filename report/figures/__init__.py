"""The figures of a board. Each has `data` (JSON-ready content, or None if it does not apply) and `draw`.

A figure is stale if its data or its drawing code have changed since it was drawn. The digests of both are stored next
to the figures.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import io
import json
import sys
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from ..ranking import Ranking
from . import clients, convergence, curves, embeddings, ranks, style
from .style import packed


@dataclass(frozen=True)
class Plot:
    """A figure. `data` is a pure function of a ranking; its result is the only input of `draw`, and fills the caption.

    tests: compares methods, so sweeps have none. panels: one panel per plain task. percent: scores in percent, so
    boards of errors have none.
    """

    file: str
    caption: str
    data: Callable[[Ranking], dict[str, Any] | None]
    draw: Callable[[dict[str, Any]], Figure]
    tests: bool = True
    panels: bool = False
    percent: bool = False

    def text(self, data: dict[str, Any]) -> str:
        """The caption of the figure of these data."""
        return self.caption.format(**data)

    def png(self, data: dict[str, Any]) -> bytes:
        """The picture as PNG; the same data give the same bytes with the same matplotlib."""
        with mpl.rc_context(style.RC):
            return packed(self.draw(data))

    def svg(self, data: dict[str, Any]) -> bytes:
        """The picture as SVG for a page: text as text, transparent, with lightness inverted on a dark screen."""
        with mpl.rc_context(style.RC | {"svg.fonttype": "none"}):
            return style.page_svg(self.draw(data))

    def digest(self, data: dict[str, Any]) -> str:
        """sha256 (16 hex digits) of the data (floats with nine significant digits, arrays as bytes), of the code of the
        drawing module and of the shared style."""
        text = json.dumps(_rounded(data), sort_keys=True, separators=(",", ":"))
        drawing = "".join(code(inspect.getsource(sys.modules[name])) for name in (self.draw.__module__, style.__name__))
        return hashlib.sha256((text + drawing).encode()).hexdigest()[:16]


def code(source: str) -> str:
    """Python source without comments, docstrings, blank lines and trailing spaces."""
    lines = source.splitlines()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            first, last = node.body[0].lineno, node.body[0].end_lineno or 0
            lines[first - 1 : last] = [""] * (last - first + 1)
    return "\n".join(line.rstrip() for line in lines if line.strip())


PLOTS = [
    Plot("tiers.png", ranks.TIERS_CAPTION, ranks.tiers_data, ranks.draw_tiers),
    Plot("cost.png", ranks.COST_CAPTION, ranks.cost_data, ranks.draw_cost),
    Plot("rank_heatmap.png", ranks.RANKS_CAPTION, ranks.rank_data, ranks.draw_ranks),
    Plot("convergence.png", convergence.CAPTION, convergence.data, convergence.draw, panels=True, percent=True),
    Plot(
        "per_client.png", clients.CLIENTS_CAPTION, clients.clients_data, clients.draw_clients, panels=True, percent=True
    ),
    Plot("robustness.png", curves.ROBUSTNESS_CAPTION, curves.robustness_data, curves.draw_robustness),
    Plot("privacy.png", curves.PRIVACY_CAPTION, curves.privacy_data, curves.draw_privacy, tests=False),
    Plot("sensitivity.png", curves.SENSITIVITY_CAPTION, curves.sensitivity_data, curves.draw_sensitivity, tests=False),
    Plot("tsne.png", embeddings.TSNE_CAPTION, embeddings.tsne_data, embeddings.draw_tsne),
    Plot("cka.png", embeddings.CKA_CAPTION, embeddings.cka_data, embeddings.draw_cka),
    Plot("label_distribution.png", clients.LABELS_CAPTION, clients.labels_data, clients.draw_labels, panels=True),
]


def found_figures(ranking: Ranking) -> dict[Plot, dict[str, Any]]:
    """The figures of a board, with their data."""
    errors = bool((ranking.board.scored["score"] < 0).any())
    wanted = [plot for plot in PLOTS if not ((plot.tests and ranking.board.is_sweep) or (plot.percent and errors))]
    shown = {plot: plot.data(ranking.plain if plot.panels else ranking) for plot in wanted}
    return {plot: data for plot, data in shown.items() if data is not None}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return [value.dtype.str, value.shape, hashlib.sha256(value.tobytes()).hexdigest()]
    return f"{value:.9g}" if isinstance(value, float) else value
