"""Series of numbers that clients leave behind, and clients cut in two by how alike they are."""

from __future__ import annotations

from typing import Any

import numpy as np


def dtw(one: np.ndarray, other: np.ndarray) -> float:
    """Distance of two series by dynamic time warping: the root of the least sum of squared differences along a path
    from both starts to both ends that never steps back in either."""
    best = np.full((len(one) + 1, len(other) + 1), np.inf)
    best[0, 0] = 0.0
    for i, value in enumerate(one):
        for j, beside in enumerate(other):
            best[i + 1, j + 1] = (value - beside) ** 2 + min(best[i, j], best[i, j + 1], best[i + 1, j])
    return float(np.sqrt(best[-1, -1]))


def min_cut(weight: np.ndarray) -> tuple[list[int], list[int]]:
    """The two sides of the minimum cut of a complete graph (Stoer and Wagner, 1997), each in order, that of node 0
    first. weight: (n, n) symmetric, at least 0; n at least 2."""
    import networkx as nx  # a quarter of a second to import: only where it is needed

    graph: Any = nx.Graph()
    count = len(weight)
    graph.add_weighted_edges_from((i, j, float(weight[i, j])) for i in range(count) for j in range(i + 1, count))
    _, sides = nx.stoer_wagner(graph)
    first, second = sorted(map(sorted, sides))
    return first, second
