"""Products of thinned rows, propagation and graph augmentation against dense matrices and loops."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fglbench.benchmark.engine.batch import Batch, collate
from fglbench.benchmark.engine.graphs.graphsets import GraphStack
from fglbench.benchmark.engine.payload import tree_bytes
from fglbench.benchmark.engine.rng import Streams
from fglbench.benchmark.engine.segment_ops import SparseMatrix
from fglbench.methods.fedgta import propagate_labels
from fglbench.methods.fedsage.neighgen import Thinned, thinned_product
from fglbench.methods.parts.contrast import augment
from fglbench.methods.parts.encoders import PersonalisedPageRank
from fglbench.methods.parts.rows import listed, packed, split, unpacked

from .formulas import looped
from .rounds import Make

close_thinned = partial(torch.testing.assert_close, rtol=1e-5, atol=1e-5)
LEFT = [0.0, 0.02, 0.5]  # share of entries


def layers(left: float, n: int = 30, k: int = 64, m: int = 20) -> tuple[torch.Tensor, ...]:
    """The input of a ReLU, factors of a dropout that keeps this share, a matrix and a bias."""
    torch.manual_seed(0)
    before, keep = torch.randn(n, k), 2.0 * (torch.rand(n, k) < 2 * left)
    return before.requires_grad_(), keep, torch.randn(k, m, requires_grad=True), torch.randn(m, requires_grad=True)


@pytest.mark.parametrize("left", LEFT)
def test_product_and_gradients_behind_a_relu_and_a_dropout_are_torchs(left: float) -> None:
    before, keep, b, bias = layers(left)
    rows = torch.relu(before) * keep
    assert (Thinned(rows.detach()).entries is not None) == (left < 0.04)
    pull = torch.randn(30, 20)
    ours, theirs = thinned_product(rows, b, bias), torch.relu(before) * keep @ b + bias
    close_thinned(ours, theirs)
    actual, wanted = (torch.autograd.grad((y * pull).sum(), [before, b, bias]) for y in (ours, theirs))
    close_thinned(actual, wanted)


def test_rows_come_back_with_the_bytes_of_their_entries() -> None:
    dense = np.random.default_rng(0).integers(0, 3, (6, 9)).astype(np.float32)
    sparse = sp.csr_matrix(dense)
    np.testing.assert_array_equal(unpacked(packed(dense), 9), dense)
    np.testing.assert_array_equal(unpacked(packed(sparse), 9).toarray(), dense)
    assert tree_bytes(listed([packed(sparse)]), 1) == [4 * (6 + 2 * np.count_nonzero(dense))]
    assert tree_bytes(listed([packed(dense)]), 1) == [4 * 6 * 9]


def test_a_tree_of_lists_is_the_clients_trees() -> None:
    trees = [{"id": torch.arange(k), "rows": {"values": torch.ones(k, 2)}} for k in (3, 0, 5)]
    whole = listed(trees)
    assert [len(part) for part in whole["rows"]["values"]] == [3, 0, 5]
    for one, part in zip(trees, split(whole), strict=True):
        assert torch.equal(one["id"], part["id"]) and torch.equal(one["rows"]["values"], part["rows"]["values"])


@pytest.mark.parametrize(("steps", "kappa"), [(1, 0.5), (5, 0.3), (4, 1.0)])
def test_every_client_propagates_on_its_own_graph(steps: int, kappa: float, federation: Make) -> None:
    world = federation((13, 7, 10))
    batch = collate(world.clients)
    start = torch.rand(30, 3, generator=torch.Generator().manual_seed(1), requires_grad=True)
    propagated = propagate_labels(batch, start, steps, kappa)
    weight = torch.arange(90.0).view(30, 3)
    (grad,) = torch.autograd.grad((propagated * weight).sum(), start)
    row = 0
    for client in world.clients:
        a, here = looped(client.graph, torch.float64), slice(row, row + client.graph.num_nodes())
        initial = start.detach()[here].double().requires_grad_(True)
        y = initial
        for _ in range(steps):
            y = kappa * a @ y + (1 - kappa) * initial
        torch.testing.assert_close(propagated[here], y.float())
        (expected,) = torch.autograd.grad((y * weight[here]).sum(), initial)
        torch.testing.assert_close(grad[here], expected.float())
        row = here.stop


def test_without_steps_or_neighbours_the_start_stays(federation: Make) -> None:
    batch, start = collate(federation().clients), torch.rand(30, 3)
    assert propagate_labels(batch, start, 0, 0.5) is start
    assert torch.equal(propagate_labels(batch, start, 3, 0.0), start)


def test_a_batch_with_its_own_operator_propagates_with_it(federation: Make) -> None:
    batch = collate(federation().clients)
    cycle = SparseMatrix(sp.csr_matrix((np.ones(30, np.float32), (np.arange(30), np.roll(np.arange(30), 1)))))
    start = torch.rand(30, 3)
    torch.testing.assert_close(propagate_labels(replace(batch, propagation=cycle), start, 2, 1.0), start.roll(2, 0))


def slow_diffusion(edges: set[tuple[int, int]], n: int, alpha: float) -> np.ndarray:
    """The sum of alpha (1 - alpha)^t N^t over t, N normalised by degrees with self-loops."""
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
def test_pagerank_is_the_sum_over_walks_of_each_graph(alpha: float, graph_sets: Make) -> None:
    graphs = graph_sets().whole.graphs
    stack = GraphStack(graphs)
    dense = stack.operator(PersonalisedPageRank(alpha)).toarray()
    between = dense.copy()
    for graph, first in zip(graphs, stack.starts, strict=False):
        n = graph.num_nodes()
        edges = set(zip(*(ends.tolist() for ends in graph.edges()), strict=True))
        block = slice(first, first + n)
        np.testing.assert_allclose(dense[block, block], slow_diffusion(edges, n, alpha), rtol=1e-5, atol=1e-7)
        between[block, block] = 0
    assert not between.any()
    np.testing.assert_allclose(dense, dense.T, rtol=1e-5, atol=1e-7)  # its gradient assumes symmetry


def test_the_threshold_drops_small_entries_and_no_other(graph_sets: Make) -> None:
    stack = GraphStack(graph_sets().whole.graphs)
    exact, cut = stack.operator(PersonalisedPageRank(0.2)), stack.operator(PersonalisedPageRank(0.2, 0.1))
    expected = np.where(exact.toarray() >= np.float32(0.1), exact.toarray(), 0)
    assert 0 < cut.nnz < exact.nnz
    np.testing.assert_array_equal(cut.toarray(), expected)


def edges(batch: Batch) -> set[tuple[int, int]]:
    source, target = batch.graph.edges()
    return set(zip(source.tolist(), target.tolist(), strict=True))


def fresh(clients: tuple[int, ...], seed: int = 0) -> Streams:
    return Streams(seed, clients, {})


@pytest.mark.parametrize("sparse", [True, False])
def test_edges_drop_in_pairs_and_columns_per_client(federation: Make, sparse: bool) -> None:
    batch = collate(federation((30, 20, 25), sparse=sparse).clients)
    seen = augment(batch, fresh((0, 1, 2)), "weak", 0.4, 0.5)
    kept, whole = edges(seen), edges(batch)
    assert kept < whole and len(kept) > 0
    assert {(v, u) for u, v in kept} == kept  # the input is symmetric, so the view is
    before, after = batch.x.dense(), seen.x.dense()
    dropped = []
    for x, y in zip(before.split(batch.sizes), after.split(batch.sizes), strict=True):
        columns = [bool((y[:, j] == 0).all()) for j in range(x.shape[1])]
        for j, gone in enumerate(columns):
            torch.testing.assert_close(y[:, j], torch.zeros_like(x[:, j]) if gone else x[:, j], rtol=0, atol=0)
        dropped.append(columns)
    assert dropped[0] != dropped[1] or dropped[1] != dropped[2]  # columns differ between clients
    assert edges(batch) == whole and torch.equal(batch.x.dense(), before)  # the input stays


def test_rates_are_kept(federation: Make) -> None:
    batch = collate(federation((120, 90), features=40).clients)
    streams, rounds = fresh((0, 1)), 200
    pairs, width = len(edges(batch)) // 2, 2 * 40
    gone = [0, 0]
    for _ in range(rounds):
        seen = augment(batch, streams, "strong", 0.8, 0.3)
        gone[0] += pairs - len(edges(seen)) // 2
        gone[1] += sum(int((x == 0).all(0).sum()) for x in seen.x.dense().split(batch.sizes))
    for count, total, p in zip(gone, (pairs, width), (0.8, 0.3), strict=True):
        assert abs(count / (rounds * total) - p) < 4 * (p * (1 - p) / (rounds * total)) ** 0.5  # four standard errors


def test_view_of_a_client_does_not_depend_on_its_batch(federation: Make) -> None:
    clients = federation((13, 7, 10)).clients
    together, alone = fresh((0, 1, 2)), fresh((1,))
    for _ in range(3):
        among = augment(collate(clients), together, "weak", 0.5, 0.5)
        single = augment(collate(clients[1:2]), alone, "weak", 0.5, 0.5)
        inside = {(u - 13, v - 13) for u, v in edges(among) if 13 <= u < 20}
        assert edges(single) == inside
        assert torch.equal(single.x.dense(), among.x.dense()[13:20])


def test_purposes_are_independent_and_zero_rates_change_nothing(federation: Make) -> None:
    batch = collate(federation((40, 30)).clients)
    one, two = (augment(batch, fresh((0, 1)), purpose, 0.5, 0.5) for purpose in ("local", "global"))
    assert edges(one) != edges(two) and not torch.equal(one.x.dense(), two.x.dense())
    same = augment(batch, fresh((0, 1)), "local", 0.0, 0.0)
    assert same.graph is batch.graph and same.x is batch.x
