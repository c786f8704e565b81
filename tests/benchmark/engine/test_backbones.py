"""Each stacked backbone against DGL's modules, client by client; orthogonal weights against loops and SVD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl.nn
import pytest
import torch
from torch import nn

from fglbench.benchmark.engine.backbones import BACKBONES, Backbone, Params, orthogonalise
from fglbench.benchmark.engine.batch import collate
from fglbench.benchmark.engine.rng import stream
from fglbench.datasets.federation import Federation, NodeClient

D, H, C = 12, 8, 3
Make = Callable[..., Federation]


def stacked(backbone: Backbone, clients: int) -> Params:
    """Different parameters for every client, also biases."""
    draws = [backbone.init(stream(7, "test", k), D, C) for k in range(clients)]
    torch.manual_seed(0)
    return {
        name: torch.stack([params[name] for params in draws]) + 0.1 * torch.randn(clients, *draws[0][name].shape)
        for name in draws[0]
    }


def linear(weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Linear:
    module = nn.Linear(weight.shape[0], weight.shape[1], bias=bias is not None)
    with torch.no_grad():
        module.weight.copy_(weight.T)
        if bias is not None:
            module.bias.copy_(bias)
    return module


def assign(parameter: Any, value: torch.Tensor) -> None:
    with torch.no_grad():
        parameter.copy_(value.reshape(parameter.shape))


def gcn(p: Params, layers: int) -> tuple[nn.Module, Callable[..., torch.Tensor], dict[str, nn.Parameter]]:
    convs = nn.ModuleList(dgl.nn.GraphConv(*p[f"{i}.weight"].shape, norm="both") for i in range(layers))
    parameters = {}
    for i, conv in enumerate(convs):
        assign(conv.weight, p[f"{i}.weight"])
        assign(conv.bias, p[f"{i}.bias"])
        parameters |= {f"{i}.weight": conv.weight, f"{i}.bias": conv.bias}

    def run(g: dgl.DGLGraph, x: torch.Tensor) -> torch.Tensor:
        g = dgl.add_self_loop(g)
        for i, conv in enumerate(convs):
            x = conv(g, torch.relu(x) if i else x)
        return x

    return convs, run, parameters


def gat(p: Params, layers: int) -> tuple[nn.Module, Callable[..., torch.Tensor], dict[str, nn.Parameter]]:
    convs = nn.ModuleList()
    parameters = {}
    for i in range(layers):
        heads, width = p[f"{i}.left"].shape
        conv = dgl.nn.GATConv(p[f"{i}.weight"].shape[0], width, heads)
        assign(conv.fc.weight, p[f"{i}.weight"].T)
        assign(conv.attn_l, p[f"{i}.left"])
        assign(conv.attn_r, p[f"{i}.right"])
        assign(conv.bias, p[f"{i}.bias"])
        parameters |= {f"{i}.left": conv.attn_l, f"{i}.right": conv.attn_r, f"{i}.bias": conv.bias}
        convs.append(conv)

    def run(g: dgl.DGLGraph, x: torch.Tensor) -> torch.Tensor:
        g = dgl.add_self_loop(g)
        for i, conv in enumerate(convs):
            x = conv(g, torch.relu(x) if i else x).flatten(1)
        return x

    return convs, run, parameters


def sage(p: Params, layers: int) -> tuple[nn.Module, Callable[..., torch.Tensor], dict[str, nn.Parameter]]:
    convs = nn.ModuleList()
    parameters = {}
    for i in range(layers):
        self_weight, neigh_weight = p[f"{i}.weight"].chunk(2, 1)
        conv = dgl.nn.SAGEConv(*self_weight.shape, "mean")
        assign(conv.fc_self.weight, self_weight.T)
        assign(conv.fc_neigh.weight, neigh_weight.T)
        assign(conv.fc_self.bias, p[f"{i}.bias"])
        parameters |= {f"{i}.bias": conv.fc_self.bias}
        convs.append(conv)

    def run(g: dgl.DGLGraph, x: torch.Tensor) -> torch.Tensor:
        for i, conv in enumerate(convs):
            x = conv(g, torch.relu(x) if i else x)
        return x

    return convs, run, parameters


def norm(p: Params, name: str) -> list[nn.Module]:
    """BatchNorm of torch with the statistics of its input, if the parameters have one of this name."""
    if f"{name}.scale" not in p:
        return []
    module = nn.BatchNorm1d(H, track_running_stats=False)
    assign(module.weight, p[f"{name}.scale"])
    assign(module.bias, p[f"{name}.shift"])
    return [module]


def gin(p: Params, layers: int) -> tuple[nn.Module, Callable[..., torch.Tensor], dict[str, nn.Parameter]]:
    convs = nn.ModuleList()
    parameters = {}
    for i in range(layers):
        inner = linear(p[f"{i}.inner.weight"], p[f"{i}.inner.bias"])
        outer = linear(p[f"{i}.outer.weight"], p[f"{i}.outer.bias"])
        mlp = nn.Sequential(inner, *norm(p, f"{i}.inner"), nn.ReLU(), outer, *norm(p, f"{i}.outer"))
        conv = dgl.nn.GINConv(mlp, "sum", init_eps=float(p[f"{i}.eps"]), learn_eps=True)
        parameters |= {f"{i}.inner.bias": inner.bias, f"{i}.outer.bias": outer.bias, f"{i}.eps": conv.eps}
        convs.append(conv)

    def run(g: dgl.DGLGraph, x: torch.Tensor) -> torch.Tensor:
        for i, conv in enumerate(convs):
            x = conv(g, torch.relu(x) if i else x)
        return x

    return convs, run, parameters


def sgc(p: Params, layers: int) -> tuple[nn.Module, Callable[..., torch.Tensor], dict[str, nn.Parameter]]:
    conv = dgl.nn.SGConv(D, C, k=layers)
    assign(conv.fc.weight, p["0.weight"].T)
    assign(conv.fc.bias, p["0.bias"])
    return conv, lambda g, x: conv(dgl.add_self_loop(g), x), {"0.bias": conv.fc.bias}


def mlp(p: Params, layers: int) -> tuple[nn.Module, Callable[..., torch.Tensor], dict[str, nn.Parameter]]:
    linears = [linear(p[f"{i}.weight"], p[f"{i}.bias"]) for i in range(layers)]
    steps: list[nn.Module] = []
    for i, layer in enumerate(linears):
        steps += [nn.ReLU(), layer] if i else [layer]
    module = nn.Sequential(*steps)
    return module, lambda g, x: module(x), {f"{i}.bias": layer.bias for i, layer in enumerate(linears)}


REFERENCES = {"gcn": gcn, "gat": gat, "sage": sage, "gin": gin, "sgc": sgc, "mlp": mlp}
EXTRA: dict[str, dict[str, Any]] = {"gat": {"heads": 2}, "gin": {"train_eps": True, "eps": 0.3}}
CASES = [(name, EXTRA.get(name, {})) for name in sorted(REFERENCES)] + [("gin", EXTRA["gin"] | {"batch_norm": True})]


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize(("name", "extra"), CASES)
def test_agrees_with_dgl(name: str, extra: dict[str, Any], sparse: bool, layers: int, federation: Make) -> None:
    clients = federation(sparse=sparse).clients
    backbone = BACKBONES.build(name, {"hidden": H, "layers": layers, "dropout": 0, **extra})
    params = stacked(backbone, len(clients))
    for value in params.values():
        value.requires_grad_(True)
    batch = collate(clients)  # type: ignore[arg-type]
    logits = backbone.forward(params, batch).logits
    pull = torch.randn_like(logits)
    (logits * pull).sum().backward()

    for k, (client, rows, pulled) in enumerate(
        zip(clients, logits.split(batch.sizes), pull.split(batch.sizes), strict=True)
    ):
        model = {key: value[k].detach() for key, value in params.items()}
        module, run, named = REFERENCES[name](model, layers)
        expected = run(client.graph, client.feat.to_dense())  # type: ignore[union-attr]
        torch.testing.assert_close(rows, expected)
        (expected * pulled).sum().backward()
        for key, parameter in named.items():
            grad = params[key].grad
            assert grad is not None and parameter.grad is not None
            torch.testing.assert_close(grad[k], parameter.grad.reshape(grad[k].shape))
        # DGL stores some weights transposed or split: compare the sum of squares of all gradients.
        ours = sum(value.grad[k].square().sum() for value in params.values())  # type: ignore[index]
        theirs = sum(p.grad.square().sum() for p in module.parameters() if p.grad is not None)
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_linear_head_is_a_linear_map_of_the_embedding(name: str, federation: Make) -> None:
    clients = federation().clients
    backbone = BACKBONES.build(name, {"hidden": H, "linear_head": True})
    params = stacked(backbone, len(clients))
    batch = collate(clients)  # type: ignore[arg-type]
    out = backbone.forward(params, batch)
    assert out.embedding.shape == (sum(batch.sizes), H)
    for k, (rows, logits) in enumerate(
        zip(out.embedding.split(batch.sizes), out.logits.split(batch.sizes), strict=True)
    ):
        torch.testing.assert_close(logits, rows @ params["head.weight"][k] + params["head.bias"][k])


@pytest.mark.parametrize("name", [*sorted(REFERENCES), "ortho-gcn"])
def test_shared_parameters_equal_copies(name: str, federation: Make) -> None:
    """A model whose client axis is expanded takes the one-product path; copies take the client-by-client one."""
    clients = federation().clients
    backbone = BACKBONES.build(name, {"hidden": H})
    single = backbone.init(stream(0, "test"), D, C)
    batch = collate(clients)  # type: ignore[arg-type]
    shared = backbone.forward({n: v.expand(3, *v.shape) for n, v in single.items()}, batch).logits
    copies = backbone.forward({n: v.expand(3, *v.shape).clone() for n, v in single.items()}, batch).logits
    torch.testing.assert_close(shared, copies)


def test_batch_norm_leaves_a_single_node_its_shift(federation: Make) -> None:
    """One row is its own mean; other clients do not matter to it."""
    whole, other, *_ = federation(sparse=False).clients
    first = dgl.node_subgraph(whole.graph, [0], store_ids=False)  # type: ignore[union-attr]
    alone = NodeClient(first, whole.feat[:1])  # type: ignore[union-attr]
    backbone = BACKBONES.build("gin", {"hidden": H, "layers": 1, "dropout": 0, "batch_norm": True})
    params = stacked(backbone, 2)
    logits = backbone.forward(params, collate([alone, other])).logits[0]  # type: ignore[list-item]
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


@pytest.mark.parametrize("iterations", [4, 8])
@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (9, 5)])
def test_newton_keeps_directions_and_maps_singular_values(shape: tuple[int, int], iterations: int) -> None:
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
    actual = orthogonalise(weight, iterations)
    torch.testing.assert_close(actual, u @ torch.diag(torch.tensor(size, dtype=s.dtype)) @ v, rtol=1e-5, atol=1e-6)
    if iterations == 8:
        zeros = 1 if shape[0] >= shape[1] else 0  # centred rows are orthogonal to the vector of ones
        assert all(abs(value - 1) < 1e-3 for value in size[: len(size) - zeros])


@pytest.mark.parametrize("layers", [1, 2, 4, 6])
def test_agrees_with_dgl_orthogonal(layers: int, federation: Make) -> None:
    """Every client's network of GraphConv layers, the hidden ones with weights that the slow loop orthogonalised."""
    clients = federation().clients
    backbone = BACKBONES.build("ortho-gcn", {"hidden": 8, "layers": layers, "dropout": 0, "mixing": 0.7})
    draws = [backbone.init(stream(7, "test", k), 12, 3) for k in range(3)]
    params = {name: torch.stack([draw[name] for draw in draws]).requires_grad_() for name in draws[0]}
    batch = collate(clients)  # type: ignore[arg-type]
    logits = backbone.forward(params, batch).logits
    pull = torch.randn(logits.shape, generator=torch.Generator().manual_seed(0))
    grads = dict(zip(params, torch.autograd.grad((logits * pull).sum(), list(params.values())), strict=True))
    for k, (client, rows, pulled) in enumerate(
        zip(clients, logits.split(batch.sizes), pull.split(batch.sizes), strict=True)
    ):
        model = {name: value[k].detach().requires_grad_() for name, value in params.items()}
        graph, h = dgl.add_self_loop(client.graph), client.feat.to_dense()  # type: ignore[union-attr]
        for i in range(layers):
            weight = model[f"{i}.weight"]
            if 0 < i < layers - 1:
                weight = newton(0.7 * weight + 0.3 * torch.eye(8), 4)
            conv = dgl.nn.GraphConv(*weight.shape, norm="both", weight=False, bias=False)
            h = conv(graph, torch.relu(h) if i else h, weight=weight) + model.get(f"{i}.bias", 0)
        torch.testing.assert_close(rows, h)
        for name, grad in zip(model, torch.autograd.grad((h * pulled).sum(), list(model.values())), strict=True):
            torch.testing.assert_close(grads[name][k], grad)


def test_without_mixing_the_hidden_weights_do_not_matter(federation: Make) -> None:
    clients = federation().clients
    backbone = BACKBONES.build("ortho-gcn", {"hidden": 8, "mixing": 0})
    params = {n: v.expand(3, *v.shape).clone() for n, v in backbone.init(stream(0, "test"), 12, 3).items()}
    batch = collate(clients)  # type: ignore[arg-type]
    before = backbone.forward(params, batch).logits
    torch.testing.assert_close(before, backbone.forward(params | {"1.weight": torch.randn(3, 8, 8)}, batch).logits)
