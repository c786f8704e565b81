"""Arithmetic of client batches against loops and DGL's message passing; kernels of devices against those of the CPU."""

from __future__ import annotations

from collections.abc import Callable

import dgl
import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from hypothesis import given, settings, strategies as st

from fglbench.benchmark.engine import kernels, segment_ops
from fglbench.benchmark.engine.batch import collate
from fglbench.benchmark.engine.gpu_kernels import GPU
from fglbench.benchmark.engine.kernels import CPU, Kernels, using
from fglbench.benchmark.engine.optim import cross_entropy
from fglbench.benchmark.engine.rng import Streams
from fglbench.datasets.federation import Federation, NodeClient

Make = Callable[..., Federation]
Patch = pytest.MonkeyPatch
SIZES = (3, 1, 4)
PREFERS_ONEDNN = kernels.prefers_onednn()


def test_segment_operations_have_the_right_values_and_gradients() -> None:
    torch.manual_seed(0)
    rows = torch.randn(8, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(3, 5, 2, dtype=torch.float64, requires_grad=True)
    heads = torch.randn(8, 2, 3, dtype=torch.float64, requires_grad=True)
    vector = torch.randn(3, 2, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(3, 2, dtype=torch.float64, requires_grad=True)
    owner = [0, 0, 0, 1, 2, 2, 2, 2]
    expected = torch.stack([rows[i] @ weight[k] for i, k in enumerate(owner)])
    torch.testing.assert_close(segment_ops.segment_product(rows, weight, SIZES), expected)
    torch.testing.assert_close(segment_ops.segment_add(expected, bias, SIZES), expected + bias[owner])
    dots = torch.stack([(heads[i] * vector[k]).sum(-1) for i, k in enumerate(owner)])
    torch.testing.assert_close(segment_ops.segment_dot(heads, vector, SIZES), dots)
    assert torch.autograd.gradcheck(lambda r, w: segment_ops.segment_product(r, w, SIZES), (rows, weight))
    assert torch.autograd.gradcheck(lambda h, v: segment_ops.segment_dot(h, v, SIZES), (heads, vector))


@pytest.mark.parametrize(("by", "onednn"), [(CPU, False), (CPU, True), (GPU, False)])
def test_products_of_clients_with_many_rows_and_with_equally_many(
    monkeypatch: Patch, by: Kernels, onednn: bool
) -> None:
    """By oneDNN for most rows of a client where it is faster, by one call for equal clients; with a bias."""
    monkeypatch.setattr(kernels, "prefers_onednn", lambda: onednn and PREFERS_ONEDNN)
    kernels.runs.cache_clear()
    torch.manual_seed(0)
    sizes = (700, 700, 300, 5, 5, 5, 0, 0, 1, 1300)
    rows, pull = torch.randn(sum(sizes), 60, requires_grad=True), torch.randn(sum(sizes), 50)
    weight = torch.randn(len(sizes), 60, 50, requires_grad=True)
    bias = torch.randn(len(sizes), 50, requires_grad=True)
    with using(by):
        out = segment_ops.segment_affine(rows, weight, bias, sizes)
    expected = torch.cat([x @ w + b for x, w, b in zip(rows.split(sizes), weight, bias, strict=True)])
    torch.testing.assert_close(out, expected)
    for value in (rows, weight, bias):
        actual, wanted = (torch.autograd.grad(y, value, pull, retain_graph=True)[0] for y in (out, expected))
        torch.testing.assert_close(actual, wanted, rtol=1e-4, atol=1e-4)
    kernels.runs.cache_clear()


@pytest.mark.parametrize("shared", [False, True])
def test_propagate_is_a_product_and_a_bias(shared: bool) -> None:
    torch.manual_seed(0)
    plain = torch.rand(8, 8) * (torch.rand(8, 8) < 0.4)
    matrix = segment_ops.SparseMatrix(sp.csr_matrix(plain.numpy()))
    rows, bias = torch.randn(8, 2, requires_grad=True), torch.randn(1 if shared else 3, 2, requires_grad=not shared)
    biases = bias.expand(3, 2) if shared else bias
    out = segment_ops.propagate(matrix, rows, biases, SIZES)
    expected = plain @ rows + torch.cat([biases[k].expand(n, 2) for k, n in enumerate(SIZES)])
    torch.testing.assert_close(out, expected)
    wanted, pull = [rows] if shared else [rows, bias], torch.randn(8, 2)
    actual = torch.autograd.grad((out * pull).sum(), wanted)
    torch.testing.assert_close(actual, torch.autograd.grad((expected * pull).sum(), wanted))


def test_cross_entropy_of_each_client() -> None:
    """Values and gradients of torch's function, client by client; the third has no row, the last row has no client."""
    torch.manual_seed(0)
    logits = torch.randn(9, 4, requires_grad=True)
    rows, label, owner = torch.tensor([6, 1, 2, 4]), torch.tensor([3, 0, 1, 1]), torch.tensor([0, 1, 1, 3])
    share, pull = torch.tensor([1.0, 0.5, 0.5, 1.0]), torch.randn(4)
    actual = cross_entropy(logits, rows, label, share, owner, 4)
    expected = torch.stack([
        F.cross_entropy(logits[[6]], label[:1]), F.cross_entropy(logits[[1, 2]], label[1:3]),
        logits.sum() * 0, F.cross_entropy(logits[[4]], label[3:]),
    ])  # fmt: skip
    torch.testing.assert_close(actual, expected)
    (gradient,) = torch.autograd.grad((actual * pull).sum(), logits)
    torch.testing.assert_close(gradient, torch.autograd.grad((expected * pull).sum(), logits)[0])


@pytest.mark.parametrize("sparse", [True, False])
def test_input_product_and_column_drops(sparse: bool, federation: Make) -> None:
    clients = [c for c in federation(sparse=sparse).clients if isinstance(c, NodeClient)]
    x = collate(clients).x
    weight = torch.randn(3, 12, 5, requires_grad=True)
    expected = torch.cat([c.feat.to_dense() @ w for c, w in zip(clients, weight, strict=True)])
    torch.testing.assert_close(x @ weight, expected)
    keep = torch.rand(3, 12) < 0.5
    dropped = torch.cat([c.feat.to_dense() * k for c, k in zip(clients, keep, strict=True)])
    torch.testing.assert_close(x.drop_columns(keep).dense(), dropped)
    torch.testing.assert_close(x.drop_columns(keep) @ weight, segment_ops.segment_product(dropped, weight, x.sizes))


def test_dropout_scales_kept_values() -> None:
    rows = torch.randn(30, 40, requires_grad=True)
    streams = Streams(0, [4, 2, 9], {})
    out = segment_ops.dropout(rows, 0.25, streams, (10, 5, 15), relu=True)
    kept = out != 0
    torch.testing.assert_close(out[kept], rows[kept] / 0.75)
    assert bool((rows[kept] > 0).all())
    share = kept.float().mean().item() / (rows > 0).float().mean().item()
    assert abs(share - 0.75) < 4 * (0.1875 / 600) ** 0.5  # four standard errors of ~600 positive entries
    (grad,) = torch.autograd.grad(out.sum(), rows)
    torch.testing.assert_close(grad, kept.float() / 0.75)


def test_sparse_input_dropout_touches_stored_entries_only(federation: Make) -> None:
    x = collate([c for c in federation().clients if isinstance(c, NodeClient)]).x
    dropped = x.dropout(0.5, Streams(0, [0, 1, 2], {})).dense()
    dense = x.dense()
    assert bool((dropped[dense == 0] == 0).all())
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * dense[kept])
    assert 0.3 < kept.sum() / (dense != 0).sum() < 0.7


def test_segment_sum_gives_zero_for_a_client_without_values() -> None:
    total = segment_ops.segment_sum(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([0, 2, 2]), 4)
    assert total.tolist() == [1, 0, 6, 0]


SIZES_KERNELS = (
    (3, 1, 4),
    (5,),
    (0, 4, 0, 2),
    (1, 1, 1, 1, 30),
)  # padded; clients without rows; not padded
CHECKED = settings(max_examples=40, deadline=None)


def assert_equal_kernels(compute: Callable[[Kernels], torch.Tensor], *inputs: torch.Tensor) -> None:
    """Both kernels give the same values and gradients of the inputs."""
    torch.manual_seed(1)
    values, grads, pull = [], [], None
    for by in (CPU, GPU):
        value = compute(by)
        pull = torch.randn_like(value) if pull is None else pull
        values.append(value.detach())
        if inputs:
            grads.append(torch.autograd.grad((value * pull).sum(), inputs))
    torch.testing.assert_close(values[1], values[0])
    for host, device in zip(*grads, strict=True) if grads else ():
        torch.testing.assert_close(device, host)


@st.composite
def graphs(draw: st.DrawFn) -> dgl.DGLGraph:
    """Nodes without edges, edges that are there twice, loops; perhaps no edge at all."""
    nodes = draw(st.integers(1, 8))
    ends = draw(st.lists(st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)), max_size=20))
    source, target = (torch.tensor([pair[end] for pair in ends], dtype=torch.long) for end in (0, 1))
    return dgl.graph((source, target), num_nodes=nodes)


def random_rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


@CHECKED
@given(graph=graphs(), heads=st.integers(1, 3))
def test_edge_kernels(graph: dgl.DGLGraph, heads: int) -> None:
    torch.manual_seed(0)
    n, e = graph.num_nodes(), graph.num_edges()
    u, v, wide = random_rows(n, heads, 1), random_rows(n, heads, 1), random_rows(n, heads, 4)
    score, flat, of_node = random_rows(e, heads, 1), random_rows(e), random_rows(n)
    assert_equal_kernels(lambda by: by.u_add_v(graph, u, v), u, v)
    assert_equal_kernels(lambda by: by.u_mul_e_sum(graph, wide, score), wide, score)
    assert_equal_kernels(lambda by: by.u_dot_v(graph, wide, wide), wide)
    assert_equal_kernels(lambda by: by.e_sub_v(graph, flat, of_node), flat, of_node)
    assert_equal_kernels(lambda by: by.copy_e_sum(graph, flat), flat)
    entered = graph.in_degrees() > 0
    assert_equal_kernels(lambda by: by.copy_e_max(graph, flat.detach())[entered])
    assert_equal_kernels(lambda by: by.copy_e_max(graph, score.detach())[entered])
    assert_equal_kernels(lambda by: by.edge_softmax(graph, score), score)


def test_a_softmax_of_large_scores_is_finite() -> None:
    graph = dgl.graph(([0, 1, 2, 2], [3, 3, 3, 0]))
    score = torch.tensor([[[1e4]], [[1e4 - 1]], [[-1e4]], [[5.0]]], requires_grad=True)
    assert_equal_kernels(lambda by: by.edge_softmax(graph, score), score)
    assert GPU.edge_softmax(graph, score).isfinite().all()


@pytest.mark.parametrize("sizes", SIZES_KERNELS)
def test_segment_kernels(sizes: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    n, k = sum(sizes), len(sizes)
    rows, weight, grad = torch.randn(n, 5), torch.randn(k, 5, 2), torch.randn(n, 2)
    heads, vector = random_rows(n, 2, 3), random_rows(k, 2, 3)
    assert_equal_kernels(lambda by: by.products(rows, weight, sizes))
    assert_equal_kernels(lambda by: by.products(grad, weight.mT, sizes))
    assert_equal_kernels(lambda by: by.weight_gradients(rows, grad, sizes))
    assert_equal_kernels(lambda by: by.segment_dot(heads, vector, sizes), heads, vector)
    assert_equal_kernels(lambda by: by.positive(torch.tensor([[0.0, -0.0, 1e-30, -1.0, torch.nan]])).float())


@CHECKED
@given(seed=st.integers(0, 2**32 - 1), ones=st.booleans(), width=st.sampled_from([1, 2, 5, 31, 32, 127, 128]))
def test_sparse_products(seed: int, ones: bool, width: int) -> None:
    """Rows and columns without an entry, and no entry at all; the transpose; widths for which other code is faster."""
    rng = np.random.default_rng(seed)
    shape = tuple(int(size) for size in rng.integers(1, 9, 2))
    plain = ((rng.random(shape) < rng.random()) * (1.0 if ones else rng.random(shape))).astype(np.float32)
    dense, back = torch.randn(shape[1], width), torch.randn(width, shape[0]).T

    def product(by: Kernels) -> torch.Tensor:
        with using(by):
            matrix = segment_ops.SparseMatrix(sp.csr_matrix(plain))
            return torch.cat([matrix.times(dense), matrix.times_transposed(back)])

    assert_equal_kernels(product)
    whole = torch.from_numpy(plain)
    torch.testing.assert_close(product(CPU), torch.cat([whole @ dense, whole.T @ back]))


def test_the_sum_of_a_long_row_depends_on_its_length_only() -> None:
    lengths = (0, 1, 64, 65, 4097, 0, 9000)  # one layer, two, three
    shape, ends = (len(lengths), 9000), np.cumsum((0, *lengths))
    columns = np.concatenate([np.arange(n) for n in lengths])
    values = np.random.default_rng(0).random(len(columns), np.float32)
    plain, dense = sp.csr_matrix((values, columns, ends), shape), torch.randn(shape[1], 3)
    with using(GPU):
        whole, alone = (segment_ops.SparseMatrix(matrix).times(dense) for matrix in (plain, plain[4:5]))
    np.testing.assert_allclose(whole, plain.astype(float) @ dense.numpy(), rtol=1e-4, atol=1e-4)
    assert torch.equal(whole[4:5], alone)


def test_edges_of_a_new_graph_are_not_those_of_a_dead_one() -> None:
    """Graphs are distinguished by identity, not by address: the address of a dead one is reused."""
    values = torch.arange(3.0)
    for target in ([0, 0, 1], [1, 1, 1], [2, 0, 0]):
        graph = dgl.graph(([0, 1, 2], target), num_nodes=3)
        wanted = torch.zeros(3).index_add_(0, torch.tensor(target), values)
        torch.testing.assert_close(GPU.copy_e_sum(graph, values), wanted)
        del graph
