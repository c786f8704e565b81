"""The kernels of devices against those of the CPU, DGL's among them: values and gradients, on this CPU."""

from __future__ import annotations

from collections.abc import Callable

import dgl
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings, strategies as st

from fglbench.benchmark.engine import segment_ops
from fglbench.benchmark.engine.gpu_kernels import GPU
from fglbench.benchmark.engine.kernels import CPU, Kernels, using

SIZES = ((3, 1, 4), (5,), (0, 4, 0, 2), (1, 1, 1, 1, 30))  # equal enough to be padded; clients without rows; not so
CHECKED = settings(max_examples=40, deadline=None)


def alike(compute: Callable[[Kernels], torch.Tensor], *inputs: torch.Tensor) -> None:
    """The same values and, of the inputs, gradients by both."""
    torch.manual_seed(1)
    found, grads, pull = [], [], None
    for kernels in (CPU, GPU):
        value = compute(kernels)
        pull = torch.randn_like(value) if pull is None else pull
        found.append(value.detach())
        if inputs:
            grads.append(torch.autograd.grad((value * pull).sum(), inputs))
    torch.testing.assert_close(found[1], found[0])
    for host, device in zip(*grads, strict=True) if grads else ():
        torch.testing.assert_close(device, host)


@st.composite
def graphs(draw: st.DrawFn) -> dgl.DGLGraph:
    """Nodes without edges, edges that are there twice, loops; perhaps no edge at all."""
    nodes = draw(st.integers(1, 8))
    ends = draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=20))
    source, target = (torch.tensor([pair[end] for pair in ends], dtype=torch.long) for end in (0, 1))
    return dgl.graph((source, target), num_nodes=nodes)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


@CHECKED
@given(graph=graphs(), heads=st.integers(1, 3))
def test_edge_by_edge(graph: dgl.DGLGraph, heads: int) -> None:
    torch.manual_seed(0)
    n, e = graph.num_nodes(), graph.num_edges()
    u, v, wide = drawn(n, heads, 1), drawn(n, heads, 1), drawn(n, heads, 4)
    score, flat, of_node = drawn(e, heads, 1), drawn(e), drawn(n)
    alike(lambda by: by.u_add_v(graph, u, v), u, v)
    alike(lambda by: by.u_mul_e_sum(graph, wide, score), wide, score)
    alike(lambda by: by.u_dot_v(graph, wide, wide), wide)
    alike(lambda by: by.e_sub_v(graph, flat, of_node), flat, of_node)
    alike(lambda by: by.copy_e_sum(graph, flat), flat)
    entered = graph.in_degrees() > 0
    alike(lambda by: by.copy_e_max(graph, flat.detach())[entered])
    alike(lambda by: by.copy_e_max(graph, score.detach())[entered])
    alike(lambda by: by.edge_softmax(graph, score), score)


def test_a_softmax_of_large_scores_is_finite() -> None:
    graph = dgl.graph(([0, 1, 2, 2], [3, 3, 3, 0]))
    score = torch.tensor([[[1e4]], [[1e4 - 1]], [[-1e4]], [[5.0]]], requires_grad=True)
    alike(lambda by: by.edge_softmax(graph, score), score)
    assert GPU.edge_softmax(graph, score).isfinite().all()


@pytest.mark.parametrize("sizes", SIZES)
def test_client_by_client(sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    n, k = sum(sizes), len(sizes)
    rows, weight, grad = torch.randn(n, 5), torch.randn(k, 5, 2), torch.randn(n, 2)
    heads, vector = drawn(n, 2, 3), drawn(k, 2, 3)
    alike(lambda by: by.products(rows, weight, sizes))
    alike(lambda by: by.products(grad, weight.mT, sizes))
    alike(lambda by: by.weight_gradients(rows, grad, sizes))
    alike(lambda by: by.segment_dot(heads, vector, sizes), heads, vector)
    alike(lambda by: by.positive(torch.tensor([[0.0, -0.0, 1e-30, -1.0, torch.nan]])).float())


@CHECKED
@given(seed=st.integers(0, 2**32 - 1), ones=st.booleans(), width=st.integers(1, 5))
def test_sparse_products(seed: int, ones: bool, width: int) -> None:
    """Rows and columns without an entry, and no entry at all; the transpose; and onto a sum."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(size) for size in rng.integers(1, 9, 2))
    plain = ((rng.random(shape) < rng.random()) * (1.0 if ones else rng.random(shape))).astype(np.float32)
    dense, back = torch.randn(shape[1], width), torch.randn(width, shape[0]).T

    def product(by: Kernels) -> torch.Tensor:
        with using(by):
            matrix = segment_ops.SparseMatrix(sp.csr_matrix(plain))
            onto = by.csr_product_onto(torch.ones(shape[0], width), matrix.forward_csr, dense)
            return torch.cat([matrix.times(dense), matrix.times_transposed(back), onto])

    alike(product)
    torch.testing.assert_close(product(GPU)[: shape[0]], torch.from_numpy(plain) @ dense)


def test_a_long_row_is_summed_in_parts_that_depend_on_its_length_alone() -> None:
    lengths = (0, 1, 64, 65, 4097, 0, 9000)  # one layer, two, three
    shape, ends = (len(lengths), 9000), np.cumsum((0, *lengths))
    columns = np.concatenate([np.arange(n) for n in lengths])
    values = np.random.default_rng(0).random(len(columns), np.float32)
    plain, dense = sp.csr_matrix((values, columns, ends), shape), torch.randn(shape[1], 3)
    with using(GPU):
        found, alone = (segment_ops.SparseMatrix(one).times(dense) for one in (plain, plain[4:5]))
    np.testing.assert_allclose(found, plain.astype(float) @ dense.numpy(), rtol=1e-4, atol=1e-4)
    assert torch.equal(found[4:5], alone)


def test_products_by_the_kernels_of_devices_have_gradients() -> None:
    torch.manual_seed(0)
    rows, weight = (torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((8, 5), (3, 5, 2)))
    with using(GPU):
        assert torch.autograd.gradcheck(lambda r, w: segment_ops.segment_product(r, w, SIZES[0]), (rows, weight))


def test_edges_are_those_of_the_graph_that_is_asked_about() -> None:
    """Graphs are distinguished by identity, not by address: the address of a dead one is reused."""
    values = torch.arange(3.0)
    for target in ([0, 0, 1], [1, 1, 1], [2, 0, 0]):
        graph = dgl.graph(([0, 1, 2], target), num_nodes=3)
        wanted = torch.zeros(3).index_add_(0, torch.tensor(target), values)
        torch.testing.assert_close(GPU.copy_e_sum(graph, values), wanted)
        del graph
