"""Each stacked backbone against DGL's modules, client by client; orthogonal weights against loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl.nn
import pytest
import torch
from torch import nn
from torch.func import functional_call

from fglbench.benchmark.engine.backbones import BACKBONES, Backbone, Params, orthogonalise
from fglbench.benchmark.engine.batch import collate
from fglbench.benchmark.engine.rng import stream
from fglbench.datasets.federation import Federation, NodeClient

D, H, C = 12, 8, 3
MIXING = 0.7
Make = Callable[..., Federation]
Layer = tuple[nn.Module, Params]  # a module, and the values of its parameters


def stacked(backbone: Backbone, clients: int) -> Params:
    """Different parameters for every client, also biases."""
    draws = [backbone.init(stream(7, "test", k), D, C) for k in range(clients)]
    torch.manual_seed(0)
    return {
        name: torch.stack([params[name] for params in draws]) + 0.1 * torch.randn(clients, *draws[0][name].shape)
        for name in draws[0]
    }


def gcn(p: Params, layers: int) -> Layer:
    return dgl.nn.GraphConv(*p["weight"].shape, norm="both"), p


def gat(p: Params, layers: int) -> Layer:
    heads, width = p["left"].shape
    values = {"fc.weight": p["weight"].T, "attn_l": p["left"][None], "attn_r": p["right"][None], "bias": p["bias"]}
    return dgl.nn.GATConv(len(p["weight"]), width, heads), values


def sage(p: Params, layers: int) -> Layer:
    own, neighbour = p["weight"].chunk(2, 1)
    values = {"fc_self.weight": own.T, "fc_neigh.weight": neighbour.T, "fc_self.bias": p["bias"]}
    return dgl.nn.SAGEConv(*own.shape, "mean"), values


def gin(p: Params, layers: int) -> Layer:
    steps, values = nn.Sequential(), {"eps": p["eps"]}
    for name in ("inner", "outer"):
        steps.add_module(name, nn.Linear(*p[f"{name}.weight"].shape))
        values |= {f"apply_func.{name}.weight": p[f"{name}.weight"].T, f"apply_func.{name}.bias": p[f"{name}.bias"]}
        if f"{name}.scale" in p:
            steps.add_module(f"{name}-norm", nn.BatchNorm1d(H, track_running_stats=False))
            norm = f"apply_func.{name}-norm"
            values |= {f"{norm}.weight": p[f"{name}.scale"], f"{norm}.bias": p[f"{name}.shift"]}
        if name == "inner":
            steps.add_module("relu", nn.ReLU())
    return dgl.nn.GINConv(steps, "sum", learn_eps=True), values


def sgc(p: Params, layers: int) -> Layer:
    return dgl.nn.SGConv(D, C, k=layers), {"fc.weight": p["weight"].T, "fc.bias": p["bias"]}


def mlp(p: Params, layers: int) -> Layer:
    return nn.Linear(*p["weight"].shape), {"weight": p["weight"].T, "bias": p["bias"]}


def ortho(p: Params, layers: int) -> Layer:
    if "bias" in p:
        return gcn(p, layers)
    weight = newton(MIXING * p["weight"] + (1 - MIXING) * torch.eye(H), 4)
    return dgl.nn.GraphConv(H, H, norm="both", bias=False), {"weight": weight}


REFERENCES = {"gcn": gcn, "gat": gat, "sage": sage, "gin": gin, "sgc": sgc, "mlp": mlp, "ortho-gcn": ortho}
LOOPED = ("gcn", "gat", "sgc", "ortho-gcn")  # with self-loops
EXTRA: dict[str, dict[str, Any]] = {
    "gat": {"heads": 2}, "gin": {"train_eps": True, "eps": 0.3}, "ortho-gcn": {"mixing": MIXING},
}  # fmt: skip
CASES = [(name, EXTRA.get(name, {})) for name in sorted(REFERENCES)] + [("gin", EXTRA["gin"] | {"batch_norm": True})]


def by_dgl(name: str, params: Params, layers: int, graph: dgl.DGLGraph, x: torch.Tensor) -> torch.Tensor:
    """The logits of one client by DGL's modules with its parameters."""
    graph = dgl.add_self_loop(graph) if name in LOOPED else graph
    for i in range(1 if name == "sgc" else layers):
        of_layer = {n.removeprefix(f"{i}."): value for n, value in params.items() if n.startswith(f"{i}.")}
        module, values = REFERENCES[name](of_layer, layers)
        h = torch.relu(x) if i else x
        x = functional_call(module, values, (h,) if name == "mlp" else (graph, h)).flatten(1)
    return x


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(("name", "extra"), CASES)
def test_agrees_with_dgl(name: str, extra: dict[str, Any], sparse: bool, layers: int, federation: Make) -> None:
    """Logits, and the gradients of all parameters."""
    clients = federation(sparse=sparse).clients
    backbone = BACKBONES.build(name, {"hidden": H, "layers": layers, "dropout": 0, **extra})
    params = {n: value.requires_grad_() for n, value in stacked(backbone, len(clients)).items()}
    batch = collate(clients)
    logits = backbone.forward(params, batch).logits
    pull = torch.randn_like(logits)
    grads = dict(zip(params, torch.autograd.grad((logits * pull).sum(), list(params.values())), strict=True))
    split = zip(clients, batch.per_client(logits), batch.per_client(pull), strict=True)
    for k, (client, rows, pulled) in enumerate(split):
        model = {n: value[k].detach().requires_grad_() for n, value in params.items()}
        expected = by_dgl(name, model, layers, client.graph, client.feat.to_dense())
        torch.testing.assert_close(rows, expected)
        for n, grad in zip(model, torch.autograd.grad((expected * pulled).sum(), list(model.values())), strict=True):
            torch.testing.assert_close(grads[n][k], grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_linear_head_is_a_linear_map_of_the_embedding(name: str, federation: Make) -> None:
    clients = federation().clients
    backbone = BACKBONES.build(name, {"hidden": H, "linear_head": True})
    params = stacked(backbone, len(clients))
    batch = collate(clients)
    out = backbone.forward(params, batch)
    assert out.embedding.shape == (sum(batch.sizes), H)
    for k, (rows, logits) in enumerate(
        zip(out.embedding.split(batch.sizes), out.logits.split(batch.sizes), strict=True)
    ):
        torch.testing.assert_close(logits, rows @ params["head.weight"][k] + params["head.bias"][k])


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_shared_parameters_equal_copies(name: str, federation: Make) -> None:
    """A model whose client axis is expanded takes the one-product path; copies take the client-by-client one."""
    clients = federation().clients
    backbone = BACKBONES.build(name, {"hidden": H})
    single = backbone.init(stream(0, "test"), D, C)
    batch = collate(clients)
    shared = backbone.forward({n: v.expand(3, *v.shape) for n, v in single.items()}, batch).logits
    copies = backbone.forward({n: v.expand(3, *v.shape).clone() for n, v in single.items()}, batch).logits
    torch.testing.assert_close(shared, copies)


def test_batch_norm_leaves_a_single_node_its_shift(federation: Make) -> None:
    """One row is its own mean; other clients do not matter to it."""
    whole, other, *_ = federation(sparse=False).clients
    first = dgl.node_subgraph(whole.graph, [0], store_ids=False)
    alone = NodeClient(first, whole.feat[:1])
    backbone = BACKBONES.build("gin", {"hidden": H, "layers": 1, "dropout": 0, "batch_norm": True})
    params = stacked(backbone, 2)
    logits = backbone.forward(params, collate([alone, other])).logits[0]
    shift, weight, bias = (params[f"0.{name}"][0] for name in ("inner.shift", "outer.weight", "outer.bias"))
    torch.testing.assert_close(logits, shift.relu() @ weight + bias)


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
    actual = orthogonalise(stack, iterations)
    expected = torch.stack([torch.stack([newton(w, iterations) for w in row]) for row in stack])
    torch.testing.assert_close(actual, expected)
    grads = [torch.autograd.grad((out * pull).sum(), stack)[0] for out in (actual, expected)]
    torch.testing.assert_close(*grads)
    assert torch.autograd.gradcheck(lambda w: orthogonalise(w, iterations), stack[0].detach().requires_grad_())
