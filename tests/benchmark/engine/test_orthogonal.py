"""The orthogonal backbone: Newton iterations against loops and SVD, layers against DGL's GraphConv."""

from __future__ import annotations

from collections.abc import Callable

import dgl.nn
import pytest
import torch

from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.backbones.convolutional import orthogonalise
from fglbench.benchmark.engine.batch import collate
from fglbench.benchmark.engine.rng import stream
from fglbench.datasets.federation import Federation

Make = Callable[..., Federation]


def newton(weight: torch.Tensor, iterations: int) -> torch.Tensor:
    """Ortho-GConv's transformation of one matrix, line by line, always through the n x n matrix."""
    rows = []
    for row in weight:
        rows.append(row - row.mean())
    z = torch.stack(rows)
    s = z @ z.T + 1e-5 * torch.eye(len(z), dtype=z.dtype)
    norm = torch.sqrt((s * s).sum())
    s = s / norm
    b = torch.eye(len(z), dtype=z.dtype)
    for _ in range(iterations):
        b = 1.5 * b - 0.5 * b @ b @ b @ s
    return b @ z / torch.sqrt(norm)


@pytest.mark.parametrize("iterations", [0, 1, 4])
@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (9, 5)])
def test_batched_newton_equals_a_loop(shape: tuple[int, int], iterations: int) -> None:
    torch.manual_seed(0)
    stack = torch.randn(2, 3, *shape, dtype=torch.float64, requires_grad=True)
    pull = torch.randn(2, 3, *shape, dtype=torch.float64)
    found = orthogonalise(stack, iterations)
    expected = torch.stack([torch.stack([newton(w, iterations) for w in row]) for row in stack])
    torch.testing.assert_close(found, expected)
    grads = [torch.autograd.grad((out * pull).sum(), stack)[0] for out in (found, expected)]
    torch.testing.assert_close(*grads)
    assert torch.autograd.gradcheck(lambda w: orthogonalise(w, iterations), stack[0].detach().requires_grad_())


@pytest.mark.parametrize("iterations", [4, 8])
@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (9, 5)])
def test_it_keeps_directions_and_maps_singular_values(shape: tuple[int, int], iterations: int) -> None:
    """SVD and Newton's iteration on numbers: b <- 1.5 b - 0.5 b^3 s pushes every singular value but the zero to 1."""
    torch.manual_seed(0)
    weight = torch.randn(*shape, dtype=torch.float64)
    u, s, v = torch.linalg.svd(weight - weight.mean(1, keepdim=True), full_matrices=False)
    ridge = torch.cat([s**2, torch.zeros(shape[0] - len(s), dtype=s.dtype)]) + 1e-5
    norm = (ridge**2).sum().sqrt()
    size = []
    for value in s.tolist():
        b = 1.0
        for _ in range(iterations):
            b = 1.5 * b - 0.5 * b**3 * float((value**2 + 1e-5) / norm)
        size.append(b * value / float(norm) ** 0.5)
    found = orthogonalise(weight, iterations)
    torch.testing.assert_close(found, u @ torch.diag(torch.tensor(size, dtype=s.dtype)) @ v, rtol=1e-5, atol=1e-6)
    if iterations == 8:
        zeros = 1 if shape[0] >= shape[1] else 0  # centred rows are orthogonal to the vector of ones
        assert all(abs(one - 1) < 1e-3 for one in size[: len(size) - zeros])


@pytest.mark.parametrize("layers", [1, 2, 4, 6])
def test_agrees_with_dgl(layers: int, federation: Make) -> None:
    """Every client's network of GraphConv layers, the hidden ones with weights that the slow loop orthogonalised."""
    clients = federation().clients
    backbone = BACKBONES.build("ortho-gcn", {"hidden": 8, "layers": layers, "dropout": 0, "mixing": 0.7})
    own = [backbone.init(stream(7, "test", k), 12, 3) for k in range(3)]
    params = {name: torch.stack([one[name] for one in own]).requires_grad_() for name in own[0]}
    batch = collate(clients)  # type: ignore[arg-type]
    logits = backbone.forward(params, batch).logits
    pull = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0))
    grads = dict(zip(params, torch.autograd.grad((logits * pull).sum(), list(params.values())), strict=True))
    for k, (client, rows, pulled) in enumerate(
        zip(clients, logits.split(batch.sizes), pull.split(batch.sizes), strict=True)
    ):
        mine = {name: value[k].detach().requires_grad_() for name, value in params.items()}
        graph, h = dgl.add_self_loop(client.graph), client.feat.to_dense()  # type: ignore[union-attr]
        for i in range(layers):
            weight = mine[f"{i}.weight"]
            if 0 < i < layers - 1:
                weight = newton(0.7 * weight + 0.3 * torch.eye(8), 4)
            conv = dgl.nn.GraphConv(*weight.shape, norm="both", weight=False, bias=False)
            h = conv(graph, torch.relu(h) if i else h, weight=weight) + mine.get(f"{i}.bias", 0)
        torch.testing.assert_close(rows, h)
        for name, grad in zip(mine, torch.autograd.grad((h * pulled).sum(), list(mine.values())), strict=True):
            torch.testing.assert_close(grads[name][k], grad)


def test_without_mixing_the_hidden_weights_do_not_matter(federation: Make) -> None:
    clients = federation().clients
    backbone = BACKBONES.build("ortho-gcn", {"hidden": 8, "mixing": 0})
    params = {n: v.expand(3, *v.shape).clone() for n, v in backbone.init(stream(0, "test"), 12, 3).items()}
    batch = collate(clients)  # type: ignore[arg-type]
    before = backbone.forward(params, batch).logits
    torch.testing.assert_close(before, backbone.forward(params | {"1.weight": torch.randn(3, 8, 8)}, batch).logits)
