"""Figures of stored embeddings.

t-SNE of the test nodes in the global models (FedGL, 2021, Figs. 5-7); linear CKA between the clients' models on the
same nodes (FGSSL, IJCAI 2023, Fig. 1).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from ..ranking import Ranking
from .style import class_looks, grid_of, legend_below, short


def cka_table(embeddings: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """(K, K) linear centred kernel alignment of every pair (Kornblith, Norouzi, Lee, Hinton, ICML 2019, section 3).

    ||Y' X||^2 / (||X' X|| ||Y' Y||), Frobenius norms, of X (n, p) and Y (n, q) with centred columns and the same n
    nodes. 1 for embeddings that differ by a rotation, a scale or a shift; NaN if one of them does not vary.
    """
    centred = [np.asarray(rows, dtype=float) - np.mean(rows, axis=0, dtype=float) for rows in embeddings]
    norms = [np.linalg.norm(rows.T @ rows) for rows in centred]
    table = np.full((len(centred), len(centred)), np.nan)
    for i, x in enumerate(centred):
        for j in range(i, len(centred)):
            norm = norms[i] * norms[j]
            if norm > 0:
                table[i, j] = table[j, i] = np.linalg.norm(centred[j].T @ x) ** 2 / norm
    return table


def mean_off_diagonal(table: NDArray[np.float64]) -> float:
    """Mean over the pairs of a (K, K) table, K > 1, without NaN; NaN if all are NaN."""
    pairs = table[~np.eye(len(table), dtype=bool)]
    return float(np.nanmean(pairs)) if not np.isnan(pairs).all() else float("nan")


WHOLE = ("global_on_global", "personal_on_global")
METHODS, TASKS = 6, 3  # panels per row and rows of a figure, at most


def embedded_runs(
    ranking: Ranking, pick: Callable[[dict[str, np.ndarray]], dict[str, Any] | None]
) -> dict[str, Any] | None:
    """`tasks`: for each task with embeddings, the seed that most entries have (of equals the lowest) and its `runs`.

    pick: selects the content of the figure from the arrays of a run, or None if it is missing. A run is this content,
    the `name` of the entry, and the `accuracy` of the global model (of a centralised run: the only model) on the whole
    graph, in [0, 1] or NaN. Entries are in the order of the ranking. None if no task has embeddings.
    """
    board, tasks = ranking.board, []
    place, rows = {name: number for number, name in enumerate(ranking.order)}, dict[str, list[dict[str, Any]]]()
    for row in board.scored[["task_label", "entrant", "seed", "key", *WHOLE]].to_dict("records"):
        if row["entrant"] in place:
            rows.setdefault(row["task_label"], []).append({str(name): value for name, value in row.items()})
    for task in board.tasks:
        seeds: dict[int, list[dict[str, Any]]] = {}
        for row in sorted(rows.get(task, ()), key=lambda row: (place[row["entrant"]], row["seed"])):
            picked = pick(board.arrays(str(row["key"])))
            if picked is not None:
                whole = [row[column] for column in WHOLE]
                accuracy = next((float(value) for value in whole if value == value), float("nan"))
                run = {"name": row["entrant"], "accuracy": accuracy, **picked}
                seeds.setdefault(int(row["seed"]), []).append(run)
        if seeds:
            seed = max(sorted(seeds), key=lambda one: len(seeds[one]))
            tasks.append({"task": task, "seed": seed, "runs": seeds[seed][:METHODS]})
        if len(tasks) == TASKS:
            break
    return {"tasks": tasks} if tasks else None


def is_embedding(rows: np.ndarray | None) -> bool:
    """Whether an array is a valid embedding: (nodes, width) finite floats, at least ten nodes, not all equal."""
    return (
        rows is not None
        and rows.ndim == 2
        and rows.dtype.kind == "f"
        and len(rows) >= 10
        and rows.shape[1] > 0
        and bool(np.isfinite(rows).all())
        and bool((rows != rows[0]).any())
    )


TSNE_CAPTION = (
    "Test nodes of the whole graph in the embedding of each method's global model at its best round (the input of the"
    " last layer), by t-SNE; colour and shape: the true class. In brackets: that model's test accuracy on that graph."
    " Methods without a global model have no panel."
)


def tsne_data(ranking: Ranking) -> dict[str, Any] | None:
    """Embeddings and labels of each run. `draw_tsne` projects them, because t-SNE is slow and machine-dependent."""
    return embedded_runs(ranking, _tsne_inputs)


def _tsne_inputs(arrays: dict[str, np.ndarray]) -> dict[str, Any] | None:
    rows, label = arrays.get("global"), arrays.get("label")
    if rows is None or label is None or not is_embedding(rows):
        return None
    fits = label.shape == (len(rows),) and label.dtype.kind == "i" and bool((label >= 0).all())
    return {"rows": rows, "label": label} if fits else None


def draw_tsne(data: dict[str, Any]) -> Figure:
    figure, grid = grid_of([len(task["runs"]) for task in data["tasks"]])
    classes = 1 + max(int(run["label"].max()) for task in data["tasks"] for run in task["runs"])
    style = class_looks([str(label) for label in range(classes)])
    for line, task in zip(grid, data["tasks"], strict=True):
        for axes, run in zip(line, task["runs"], strict=True):
            place = project(run["rows"])
            for label in np.unique(run["label"]):
                points, look = place[run["label"] == label], style[str(label)]
                axes.scatter(points[:, 0], points[:, 1], s=7, marker=look["marker"], color=look["color"], linewidths=0)
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
    """Project (n, h) to (n, 2) by t-SNE (van der Maaten & Hinton, JMLR 9, 2008), from the first two principal
    components, with a fixed random state."""
    from sklearn.manifold import TSNE  # the import takes more than a second

    perplexity = min(30.0, (len(rows) - 1) / 3)
    start = "pca" if rows.shape[1] > 1 else "random"
    return np.asarray(TSNE(perplexity=perplexity, init=start, random_state=0).fit_transform(rows.astype(np.float32)))


CKA_CAPTION = (
    "Linear CKA between two clients' embeddings of the same test nodes of the whole graph, by their own models before"
    " aggregation at the best round (1: equal up to rotation and scale). In brackets: the mean over pairs of clients."
)


def cka_data(ranking: Ranking) -> dict[str, Any] | None:
    """CKA between every pair of clients in each run."""
    return embedded_runs(ranking, _cka_inputs)


def _cka_inputs(arrays: dict[str, np.ndarray]) -> dict[str, Any] | None:
    names = sorted(name for name in arrays if name.startswith("client_"))
    clients = [arrays[name] for name in names]
    same = len({len(rows) for rows in clients if rows.ndim}) == 1
    if len(clients) < 2 or not same or not all(map(is_embedding, clients)):
        return None
    return {"cka": cka_table(clients).tolist()}  # a list is rounded in the digest: processors differ in the last bits


def draw_cka(data: dict[str, Any]) -> Figure:
    figure, grid = grid_of([len(task["runs"]) for task in data["tasks"]])
    for line, task in zip(grid, data["tasks"], strict=True):
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
