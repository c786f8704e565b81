"""FGSSL against its formulas, and its identities."""

from __future__ import annotations

from typing import Any

import dgl
import pytest
import torch

from fglbench.methods.fgssl import neighbour_divergence
from fglbench.registry import UserError

from .rounds import Make, start

GCN: dict[str, Any] = {"kinds": ["gcn"], "local_epochs": 2}
NO_VIEWS = {"weak_edges": 0.0, "weak_features": 0.0, "strong_edges": 0.0, "strong_features": 0.0}


def slow_divergence(
    student: torch.Tensor, teacher: torch.Tensor, graph: dgl.DGLGraph, omega: float
) -> list[torch.Tensor]:
    losses = []
    for i in range(graph.num_nodes()):
        near = graph.predecessors(i).tolist()
        if not near:
            losses.append((student * 0).sum())
            continue
        mine, fixed = (torch.stack([torch.exp(z[i] @ z[j] / omega) for j in near]) for z in (student, teacher))
        mine, fixed = mine / mine.sum(), fixed / fixed.sum()
        losses.append(sum(q * torch.log(q / p) for p, q in zip(mine, fixed, strict=True)))
    return losses


def test_neighbour_divergence() -> None:
    generator = torch.Generator().manual_seed(0)
    graph = dgl.graph(([0, 1, 1, 2, 3, 2, 0, 4], [1, 0, 2, 1, 1, 0, 4, 0]), num_nodes=6)  # node 5 is isolated
    student, teacher = (torch.randn(6, 3, generator=generator) for _ in range(2))
    student.requires_grad_(True)
    divergence = neighbour_divergence(student, teacher, graph, 0.7)
    expected = torch.stack(slow_divergence(student, teacher, graph, 0.7))
    torch.testing.assert_close(divergence, expected)
    weights = torch.arange(6.0)
    torch.testing.assert_close(
        torch.autograd.grad((divergence * weights).sum(), student),
        torch.autograd.grad((expected * weights).sum(), student),
    )
    far = neighbour_divergence(100 * student, 100 * teacher, graph, 0.01)  # similarities of tens of thousands
    assert torch.isfinite(far).all() and torch.isfinite(torch.autograd.grad(far.sum(), student)[0]).all()


def slow_contrast(
    left: torch.Tensor, right: torch.Tensor, i: int, train: list[int], label: torch.Tensor, everyone: bool
) -> torch.Tensor:
    """FNSC of anchor i at temperature 0.3. everyone: all samples in the denominator."""
    f = {j: torch.exp(torch.cosine_similarity(left[i], right[j], dim=0) / 0.3) for j in train}
    positive = [p for p in train if label[p] == label[i]]
    negative = sum(f[q] for q in train if label[q] != label[i])
    below = [sum(f.values()) if everyone else f[p] + negative for p in positive]
    return sum(-torch.log(f[p] / b) for p, b in zip(positive, below, strict=True)) / len(positive)


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"symmetric": True, "rivals": "all"},
        {"distil_nodes": "all"},
        {"target": "initial"},
        {"target": "local", "symmetric": True, "rivals": "all"},
    ],
)
def test_the_objective_written_out(params: dict[str, Any], federation: Make) -> None:
    """Loss and gradient per client from loops over its nodes, without augmentation and dropout.

    If the target is the client's model, both passes have gradients, and a node has cosine 1 with its other view.
    """
    world = federation((13, 7, 10))
    options = {"contrast_weight": 1.5, "distil_weight": 0.8, "temperature": 0.3, "distil_temperature": 0.6}
    game = start(world, "fgssl", {**NO_VIEWS, **options, **params}, backbone={"dropout": 0.0}, **GCN)
    first = {n: v.unsqueeze(0) for n, v in game.simulation.server.state["model"].items()}
    game.round(1)
    clients, method = game.simulation.client_batches[0], game.simulation.method
    w = {n: v.unsqueeze(0) for n, v in game.simulation.server.state["model"].items()}
    clients.received = {"model": {n: v.expand(3, *v.shape[1:]) for n, v in w.items()}}
    for value in clients.params.values():
        value.requires_grad_(True)
    loss = method.local_loss(clients)
    grads = torch.autograd.grad(loss.sum(), list(clients.params.values()))
    alone = start(world, "local", backbone={"dropout": 0.0}, clients_per_batch=1, **GCN)
    for k, single in enumerate(alone.simulation.client_batches):
        leaf = {n: v[k : k + 1].detach().clone().requires_grad_(True) for n, v in clients.params.items()}
        local = single.forward(leaf, training=False)
        with torch.no_grad():
            fixed, initial = (single.forward(model, training=False) for model in (w, first))
        target = {"global": fixed, "initial": initial, "local": local}[params.get("target", "global")]
        train, label, graph = single.batch.rows["train"].tolist(), single.batch.label, single.batch.graph

        divergence = slow_divergence(local.logits, fixed.logits, graph, 0.6)
        total = local.logits.sum() * 0
        for i in train:
            total = total - torch.log_softmax(local.logits[i], 0)[label[i]]
            contrast = slow_contrast(local.pre[-1], target.pre[-1], i, train, label, "rivals" in params)
            if params.get("symmetric"):
                contrast = (contrast + slow_contrast(target.pre[-1], local.pre[-1], i, train, label, True)) / 2
            total = total + 1.5 * contrast
            if "distil_nodes" not in params:
                total = total + 0.8 * divergence[i]
        total = total / len(train)
        if "distil_nodes" in params:
            total = total + 0.8 * sum(divergence) / graph.num_nodes()
        torch.testing.assert_close(loss[k], total, rtol=1e-5, atol=1e-5)
        expected = torch.autograd.grad(total, list(leaf.values()))
        for mine, other in zip(grads, expected, strict=True):
            torch.testing.assert_close(mine[k], other[0], rtol=1e-4, atol=1e-5)


def test_views_take_the_strength_of_their_side(federation: Make) -> None:
    """Rates of 0 keep the graph of one side and not that of the other."""
    still = {"strong_edges": 0.0, "strong_features": 0.0}
    game = start(federation((30, 20, 25)), "fgssl", {"local_view": "strong", "global_view": "weak", **still}, **GCN)
    clients, method = game.simulation.client_batches[0], game.simulation.method
    assert method.view(clients, method.local_view, "local")[0].graph is clients.batch.graph
    seen = method.view(clients, method.global_view, "global")[0]
    assert seen.graph.num_edges() < clients.batch.graph.num_edges()


def test_the_ablations_cannot_be_switched_on(federation: Make) -> None:
    with pytest.raises(UserError, match="distil_weight"):
        start(federation(), "fgssl-fnsc", {"distil_weight": 1.0})


def test_target_of_the_contrast_of_views(federation: Make) -> None:
    """With dropout a local target is a training pass and a frozen one is not; the initial model stays."""
    game = start(federation(), "fgssl", {"target": "initial"}, backbone={"dropout": 0.5}, **GCN)
    first = {n: v.clone() for n, v in game.simulation.server.state["model"].items()}
    for number in (1, 2, 3):
        game.round(number)
    clients, method = game.simulation.client_batches[0], game.simulation.method
    for n, value in clients.state["initial"].items():
        torch.testing.assert_close(value, first[n].expand_as(value), rtol=0, atol=0)
    one, two = (method.other_target(clients, clients.data).logits for _ in range(2))
    torch.testing.assert_close(one, two, rtol=0, atol=0)
    assert not one.requires_grad
    mine = start(federation(), "fgssl", {"target": "local"}, backbone={"dropout": 0.5}, **GCN)
    one, two = (
        mine.simulation.method.other_target(
            mine.simulation.client_batches[0], mine.simulation.client_batches[0].data
        ).logits
        for _ in "ab"
    )
    assert not torch.equal(one, two)
