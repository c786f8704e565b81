"""FCLG: contrasts and distillation losses against loops from the formulas, and its reductions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from fglbench.benchmark.engine import is_statistic
from fglbench.benchmark.engine.backbones import Params
from fglbench.benchmark.engine.graphs.graphsets import GraphBatch, GraphStack, neighbours
from fglbench.methods.fclg import FCLG, FCLGH, IntraFedAvg, IntraKL, IntraMSE, frozen
from fglbench.methods.parts.encoders import Codes, GINEncoder, between_views, to_global_from_previous

from .rounds import Make, final, start_graphs

H, LAYERS, FEATURES = 4, 2, 4  # of `start_graphs`


def equal(a: Params, b: Params) -> bool:
    return all(torch.allclose(a[name], b[name], rtol=1e-5, atol=1e-6) for name in a)


def doubles(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def slow_intra(first: torch.Tensor, second: torch.Tensor, tau: float) -> torch.Tensor:
    """1/(2B) sum [l(u, v) + l(v, u)], term by term."""
    every = [*first, *second]
    b, total = len(first), torch.zeros((), dtype=first.dtype)
    for i in range(b):
        for anchor, partner in ((i, b + i), (b + i, i)):
            denominator = sum(torch.exp(every[anchor] @ every[z] / tau) for z in range(2 * b) if z != anchor)
            total = total + torch.log(denominator) - every[anchor] @ every[partner] / tau
    return total / (2 * b)


def slow_inter(now: torch.Tensor, shared: torch.Tensor, previous: torch.Tensor, tau: float) -> torch.Tensor:
    """-log of the softmax weight of the global code, row by row."""
    values = []
    for u, s, c in zip(now, shared, previous, strict=True):
        near = torch.exp(u @ s / (u.norm() * s.norm()) / tau)
        far = torch.exp(u @ c / (u.norm() * c.norm()) / tau)
        values.append(-torch.log(near / (near + far)))
    return torch.stack(values)


def agree(actual: torch.Tensor, expected: torch.Tensor, inputs: tuple[torch.Tensor, ...]) -> None:
    torch.testing.assert_close(actual, expected)
    mine, theirs = (torch.autograd.grad(value.sum(), inputs, retain_graph=True) for value in (actual, expected))
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_contrast_between_views_is_equations_5_and_6() -> None:
    torch.manual_seed(0)
    u, v = doubles(4, 3), doubles(4, 3)
    agree(between_views(u, v, 0.5), slow_intra(u, v, 0.5), (u, v))
    agree(between_views(u[:1], v[:1], 0.5), slow_intra(u[:1], v[:1], 0.5), (u, v))


def test_contrast_between_clients_is_equation_7() -> None:
    torch.manual_seed(0)
    now, shared, previous = doubles(5, 3), doubles(5, 3), doubles(5, 3)
    inputs = (now, shared, previous)
    agree(to_global_from_previous(*inputs, 0.3), slow_inter(*inputs, 0.3), inputs)


def test_contrast_with_equal_models_is_log_2_without_a_gradient() -> None:
    torch.manual_seed(0)
    now, other = doubles(5, 3), torch.randn(5, 3, dtype=torch.float64)
    value = to_global_from_previous(now, other, other, 0.3)
    torch.testing.assert_close(value, torch.full((5,), math.log(2), dtype=torch.float64))
    (grad,) = torch.autograd.grad(value.sum(), now)
    torch.testing.assert_close(grad, torch.zeros_like(grad))


def test_distillation_losses_are_equations_2_and_3() -> None:
    torch.manual_seed(0)
    local, shared = doubles(4, 3), torch.randn(4, 3, dtype=torch.float64)
    divergence, distance = [], []
    for c, s in zip(local, shared, strict=True):
        p_c, p_s = torch.exp(c) / torch.exp(c).sum(), torch.exp(s) / torch.exp(s).sum()
        divergence.append(sum(p_s[j] * (torch.log(p_s[j]) - torch.log(p_c[j])) for j in range(3)))
        distance.append(sum((c[j] - s[j]) ** 2 for j in range(3)))
    agree(IntraKL().gap(local, shared), torch.stack(divergence), (local,))
    agree(IntraMSE().gap(local, shared), torch.stack(distance), (local,))


@pytest.fixture
def batch(graph_sets: Make) -> GraphBatch:
    """Two graphs of one client, none of the next, three of the last."""
    graphs = graph_sets().whole.graphs
    return GraphStack(graphs).batch([np.array([4, 1]), np.array([], np.int64), np.array([7, 6, 5])])


@pytest.mark.parametrize("unit", [True, False])
def test_intra_takes_each_clients_own_graphs(unit: bool, batch: GraphBatch) -> None:
    torch.manual_seed(0)
    u, v = doubles(5, 6), doubles(5, 6)
    loss = IntraFedAvg(unit_codes=unit, tau=0.7).intra(u, v, batch)
    a, b = (x / x.norm(dim=1, keepdim=True) if unit else x for x in (u, v))
    expected = [slow_intra(a[:2], b[:2], 0.7), torch.zeros(()), slow_intra(a[2:], b[2:], 0.7)]
    agree(loss, torch.stack([value.double() for value in expected]), (u, v))


def test_raw_codes_of_large_graphs_do_not_overflow() -> None:
    codes = torch.full((3, 2), 1e4)
    assert torch.isfinite(between_views(codes, codes + torch.eye(3, 2), 0.5))


def test_inter_is_averaged_over_graphs_and_in_the_variant_over_nodes(batch: GraphBatch) -> None:
    torch.manual_seed(0)
    n, owner = sum(batch.sizes), [0] * batch.sizes[0] + [2] * batch.sizes[2]
    now, shared, previous = (Codes(torch.randn(n, 6), torch.randn(5, 6)) for _ in range(3))
    for method, part, places in ((FCLG(), "graphs", [0, 0, 2, 2, 2]), (FCLGH(), "nodes", owner)):
        values = slow_inter(*(getattr(c, part) for c in (now, shared, previous)), 0.5)
        contrast = method.contrast(batch, now, shared, previous)
        for k in (0, 2):
            mine = [value for value, place in zip(values, places, strict=True) if place == k]
            torch.testing.assert_close(contrast[k], torch.stack(mine).mean())
        assert contrast[1] == 0


def test_a_frozen_copy_of_the_current_model_gives_the_current_codes(graph_sets: Make) -> None:
    (clients,) = start_graphs(graph_sets(), "fclg").simulation.client_batches
    next(iter(clients.steps()))
    now = GINEncoder(hidden=H, layers=LAYERS).encode(clients.params, clients.minibatch, neighbours, track=True)
    torch.testing.assert_close(frozen(clients, clients.params).graphs, now.graphs)


def test_running_statistics_are_those_of_the_scored_view(graph_sets: Make) -> None:
    """The first step's statistics are those of the adjacency view, for any diffusion."""
    models = []
    for alpha in (0.2, 0.9):
        running = start_graphs(graph_sets(), "fclg", {"alpha": alpha}, local_epochs=1, batch_size=None)
        running.round(1)
        models.append(running.simulation.client_batches[0].params)
    statistics = [name for name in models[0] if is_statistic(name)]
    assert all(torch.equal(models[0][name], models[1][name]) for name in statistics)
    assert not torch.equal(models[0]["0.inner.weight"], models[1]["0.inner.weight"])
    assert any(bool((models[0][name] != (1 if name.endswith("var") else 0)).any()) for name in statistics)


OFF = {"fclg": {"inter": 0}, "fclg-h": {"inter": 0}, "intra-kl": {"distillation": 0}, "intra-mse": {"distillation": 0}}


@pytest.mark.parametrize(("name", "params"), OFF.items(), ids=list(OFF))
def test_without_its_second_term_it_is_intra_fedavg(name: str, params: dict[str, Any], graph_sets: Make) -> None:
    world = graph_sets()
    plain = final(world, "intra-fedavg")
    assert equal(final(world, name, params), plain)
    assert not equal(final(world, name), plain)


@pytest.mark.parametrize("name", ["fclg", "fclg-h"])
def test_with_one_local_epoch_the_inter_term_has_no_effect(name: str, graph_sets: Make) -> None:
    world = graph_sets()
    assert equal(final(world, name, local_epochs=1), final(world, "intra-fedavg", local_epochs=1))


def test_the_earlier_model_is_that_of_the_start_of_the_epoch(graph_sets: Make) -> None:
    running = start_graphs(graph_sets((5, 3, 4)), "fclg", local_epochs=3)
    (clients,) = running.simulation.client_batches
    method, seen = running.method, []

    class Watched(FCLG):
        def local_loss(self, clients):
            value = {n: v.detach().clone() for n, v in clients.params.items() if not is_statistic(n)}
            seen.append((value, clients.state["previous"]["0.inner.weight"].clone()))
            return super().local_loss(clients)

    clients.received = {
        "model": {n: v.expand(3, *v.shape) for n, v in running.simulation.server.state["model"].items()}
    }
    assert isinstance(method, FCLG)
    Watched().client(clients)
    steps = len(seen) // 3  # per epoch
    assert steps == 2
    for epoch in range(3):
        start = seen[epoch * steps][0]["0.inner.weight"]
        for step in range(steps):
            assert torch.equal(seen[epoch * steps + step][1], start)
    assert not torch.equal(seen[0][1], seen[-1][1])
