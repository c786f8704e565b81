"""Stacked encoders of graph sets against DGL's modules per client: outputs, gradients, statistics."""

from __future__ import annotations

import dgl
import dgl.nn
import numpy as np
import pytest
import torch
from torch import nn

from fglbench.benchmark.engine import is_statistic
from fglbench.benchmark.engine.backbones import Params
from fglbench.benchmark.engine.graphs.graphsets import GraphStack, neighbours, normalised
from fglbench.methods.parts.encoders import GCNEncoder, GINEncoder, Head, named

from .rounds import Make

PICKS = [np.array([4, 1]), np.array([], np.int64), np.array([7, 6, 5])]  # the second client is absent


def perturbed(draws: list[Params]) -> Params:
    """Different parameters per client. Large biases leave few dead channels, which BatchNorm would amplify."""
    torch.manual_seed(0)
    stacked = {name: torch.stack([draw[name] for draw in draws]) for name in draws[0]}
    scale = {name: 1.5 if name.endswith("er.bias") else 0.1 for name in stacked}
    return {name: value + scale[name] * torch.rand_like(value) for name, value in stacked.items()}


def linear(params: Params, name: str) -> nn.Linear:
    module = nn.Linear(*params[f"{name}.weight"].shape)
    module.load_state_dict({"weight": params[f"{name}.weight"].T, "bias": params[f"{name}.bias"]})
    return module


def slope(params: Params, i: int) -> nn.PReLU:
    module = nn.PReLU()
    module.load_state_dict({"weight": params[f"{i}.slope"]})
    return module


def gin(params: Params, layers: int) -> tuple[nn.ModuleList, nn.ModuleList]:
    convs, norms = nn.ModuleList(), nn.ModuleList()
    for i in range(layers):
        inner, outer = linear(params, f"{i}.inner"), linear(params, f"{i}.outer")
        convs.append(dgl.nn.GINConv(nn.Sequential(inner, nn.ReLU(), outer), "sum"))
        norm = nn.BatchNorm1d(len(params[f"{i}.norm.weight"]))
        norm.load_state_dict(named(params, f"{i}.norm"), strict=False)
        norms.append(norm)
    return convs, norms


def through(convs: nn.ModuleList, norms: nn.ModuleList, graph: dgl.DGLGraph) -> torch.Tensor:
    h, outputs = graph.ndata["feat"], []
    for conv, norm in zip(convs, norms, strict=True):
        h = norm(torch.relu(conv(graph, h)))
        outputs.append(h)
    return torch.cat(outputs, 1)


@pytest.mark.parametrize("training", [True, False])
def test_gin_encoder_agrees_with_dgl(training: bool, graph_sets: Make) -> None:
    graphs, encoder = graph_sets().whole.graphs, GINEncoder(hidden=6, layers=3)
    batch = GraphStack(graphs).batch(PICKS)
    params = perturbed([encoder.draw(4, torch.Generator().manual_seed(k)) for k in range(3)])
    start = {name: value.clone() for name, value in params.items()}
    trained = [value.requires_grad_(True) for name, value in params.items() if not is_statistic(name)]
    codes = encoder.encode(params, batch, neighbours, training=training, track=training)
    pull = torch.randn_like(codes.nodes)
    grads = torch.autograd.grad((codes.nodes * pull).sum() + codes.graphs.sum(), trained)
    names = [name for name in params if not is_statistic(name)]
    grad_of = dict(zip(names, grads, strict=True))
    graph_rows, node_rows = codes.graphs.split(batch.counts), codes.nodes.split(batch.sizes)
    for k, pick in enumerate(PICKS):
        if not len(pick):  # absent client: no gradient, unchanged running statistics
            assert all(not grad[k].any() for grad in grads)
            assert all(torch.equal(params[n][k], start[n][k]) for n in params if is_statistic(n))
            continue
        convs, norms = gin({name: value[k] for name, value in start.items()}, 3)
        norms.train(training)
        graph = dgl.batch([graphs[i] for i in pick])
        nodes = through(convs, norms, graph)
        torch.testing.assert_close(node_rows[k], nodes)
        pooled = dgl.ops.segment_reduce(graph.batch_num_nodes(), nodes)
        torch.testing.assert_close(graph_rows[k], pooled)
        ((nodes * pull.split(batch.sizes)[k]).sum() + pooled.sum()).backward()
        # BatchNorm removes the mean: some gradients are small differences of terms as large as the largest gradient.
        scale = max(float(p.grad.abs().max()) for p in (*convs.parameters(), *norms.parameters()))
        for i, (conv, norm) in enumerate(zip(convs, norms, strict=True)):
            inner, outer = conv.apply_func[0], conv.apply_func[2]
            for name, grad in (
                (f"{i}.inner.weight", inner.weight.grad.T), (f"{i}.inner.bias", inner.bias.grad),
                (f"{i}.outer.weight", outer.weight.grad.T), (f"{i}.outer.bias", outer.bias.grad),
                (f"{i}.norm.weight", norm.weight.grad), (f"{i}.norm.bias", norm.bias.grad),
            ):  # fmt: skip
                torch.testing.assert_close(grad_of[name][k] / scale, grad / scale)
            for statistic in ("running_mean", "running_var"):
                torch.testing.assert_close(params[f"{i}.norm.{statistic}"][k].detach(), getattr(norm, statistic))


def test_gcn_encoder_agrees_with_dgl(graph_sets: Make) -> None:
    graphs, encoder = graph_sets().whole.graphs, GCNEncoder(hidden=6, layers=3)
    batch = GraphStack(graphs).batch(PICKS)
    params = perturbed([encoder.draw(4, torch.Generator().manual_seed(k)) for k in range(3)])
    codes = encoder.encode(params, batch, normalised)
    for k, pick in enumerate(PICKS):
        if len(pick):
            plain, pooled = dgl.batch([graphs[i] for i in pick]), []
            graph = dgl.add_self_loop(plain)
            h, mine = graph.ndata["feat"], {name: value[k] for name, value in params.items()}
            for i in range(3):
                conv = dgl.nn.GraphConv(*mine[f"{i}.weight"].shape, norm="both")
                conv.load_state_dict({"weight": mine[f"{i}.weight"], "bias": mine[f"{i}.bias"]})
                h = slope(mine, i)(conv(graph, h))
                pooled.append(dgl.ops.segment_reduce(plain.batch_num_nodes(), h))
            torch.testing.assert_close(codes.nodes.split(batch.sizes)[k], h)
            torch.testing.assert_close(codes.graphs.split(batch.counts)[k], torch.cat(pooled, 1))


@pytest.mark.parametrize("activation", ["relu", "prelu"])
def test_head_is_three_layers_plus_a_linear_map(activation: str) -> None:
    head = Head(inputs=5, out=3, activation=activation)
    params = perturbed([head.draw(0, torch.Generator().manual_seed(k)) for k in range(2)])
    rows = torch.randn(7, 5)
    outputs = head(params, rows, (3, 4))
    for k, (client_rows, out) in enumerate(zip(rows.split((3, 4)), outputs.split((3, 4)), strict=True)):
        mine = {name: value[k] for name, value in params.items()}
        h = client_rows
        for i in range(3):
            h = (torch.relu if activation == "relu" else slope(mine, i))(linear(mine, f"{i}")(h))
        torch.testing.assert_close(out, h + linear(mine, "shortcut")(client_rows))
