"""Personalised PageRank, graph by graph, against its random walk."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fglbench.benchmark.engine.graphs.graphsets import GraphStack
from fglbench.datasets.federation import Federation
from fglbench.methods.parts.mutual_information import PersonalisedPageRank

Make = Callable[..., Federation]


def slow_diffusion(edges: set[tuple[int, int]], n: int, alpha: float) -> np.ndarray:
    """The sum of alpha (1 - alpha)^t N^t over t, N from the degrees with self-loops, by hand."""
    degree = [1 + sum((u, v) in edges for v in range(n)) for u in range(n)]
    walk = np.zeros((n, n))
    for u in range(n):
        for v in range(n):
            if u == v or (u, v) in edges:
                walk[u, v] = (degree[u] * degree[v]) ** -0.5
    total, term = np.zeros((n, n)), np.eye(n)
    for _ in range(400):
        total += alpha * term
        term = (1 - alpha) * term @ walk
    return total


@pytest.mark.parametrize("alpha", [0.2, 0.6])
def test_it_is_the_sum_over_walks_of_every_graph(alpha: float, graph_sets: Make) -> None:
    graphs = graph_sets().whole.graphs  # type: ignore[union-attr]
    stack = GraphStack(graphs)
    dense = stack.operator(PersonalisedPageRank(alpha)).toarray()
    between = dense.copy()
    for graph, first in zip(graphs, stack.starts, strict=False):
        n = graph.num_nodes()
        edges = set(zip(*(ends.tolist() for ends in graph.edges()), strict=True))
        own = slice(first, first + n)
        np.testing.assert_allclose(dense[own, own], slow_diffusion(edges, n, alpha), rtol=1e-5, atol=1e-7)
        between[own, own] = 0
    assert not between.any()
    np.testing.assert_allclose(dense, dense.T, rtol=1e-5, atol=1e-7)  # its gradient takes the matrix for its transpose


def test_the_threshold_drops_small_entries_and_no_other(graph_sets: Make) -> None:
    stack = GraphStack(graph_sets().whole.graphs)  # type: ignore[union-attr]
    exact, cut = stack.operator(PersonalisedPageRank(0.2)), stack.operator(PersonalisedPageRank(0.2, 0.1))
    expected = np.where(exact.toarray() >= np.float32(0.1), exact.toarray(), 0)
    assert 0 < cut.nnz < exact.nnz
    np.testing.assert_array_equal(cut.toarray(), expected)


def test_an_operator_is_computed_once(graph_sets: Make) -> None:
    stack = GraphStack(graph_sets().whole.graphs)  # type: ignore[union-attr]
    assert stack.operator(PersonalisedPageRank(0.2)) is stack.operator(PersonalisedPageRank(0.2))
    assert stack.operator(PersonalisedPageRank(0.2)) is not stack.operator(PersonalisedPageRank(0.3))
