"""Test nodes as the global models see them, in two dimensions by t-SNE (FedGL, 2021, Figs. 5-7)."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ..standings import Standings
from .embeddings import shown, sound
from .style import grid_of, legend_below, looks, short

CAPTION = (
    "Test nodes of the whole graph in the embedding of each method's global model at its best round (the input of the"
    " last layer), by t-SNE; colour and shape: the true class. In brackets: that model's test accuracy on that graph."
    " Methods without a global model have no panel."
)


def data(standings: Standings) -> dict[str, Any] | None:
    """Embeddings and labels of each run. The projection is left to `draw`: it is slow, and differs between machines."""
    return shown(standings, _picked)


def _picked(arrays: dict[str, np.ndarray]) -> dict[str, Any] | None:
    rows, label = arrays.get("global"), arrays.get("label")
    if rows is None or label is None or not sound(rows):
        return None
    fits = label.shape == (len(rows),) and label.dtype.kind == "i" and bool((label >= 0).all())
    return {"rows": rows, "label": label} if fits else None


def draw(found: dict[str, Any]) -> Figure:
    figure, grid = grid_of([len(task["runs"]) for task in found["tasks"]])
    classes = 1 + max(int(run["label"].max()) for task in found["tasks"] for run in task["runs"])
    style = looks([str(label) for label in range(classes)])
    for line, task in zip(grid, found["tasks"], strict=True):
        for axes, run in zip(line, task["runs"], strict=True):
            place = project(run["rows"])
            for label in np.unique(run["label"]):
                own, look = place[run["label"] == label], style[str(label)]
                axes.scatter(own[:, 0], own[:, 1], s=7, marker=look["marker"], color=look["color"], linewidths=0)
            axes.set_title(short(f"{run['name']} ({100 * run['accuracy']:.1f}%)", 32))
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set_visible(True)
            axes.spines[:].set_color("#CCCCCC")
        line[0].set_ylabel(short(task["task"], 30))
    handles = [
        Line2D([], [], **{**style[str(label)], "linestyle": "none", "markersize": 5}, label=f"class {label}")
        for label in range(classes)
    ]
    legend_below(figure, handles)
    return figure


def project(rows: np.ndarray) -> np.ndarray:
    """(n, 2) of (n, h) by t-SNE (van der Maaten & Hinton, JMLR 9, 2008): from the first two principal components, with
    a fixed random state."""
    from sklearn.manifold import TSNE  # a second and more to import: only where it is needed

    perplexity = min(30.0, (len(rows) - 1) / 3)
    start = "pca" if rows.shape[1] > 1 else "random"
    return np.asarray(TSNE(perplexity=perplexity, init=start, random_state=0).fit_transform(rows.astype(np.float32)))
