"""FedTGP's server: margin, loss and gradient against the formulas, and its training."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fglbench.methods.fedtgp import PrototypeNet, margin

from .rounds import Make, start

SIZES = (13, 7, 10, 9, 8)


def drawn(n: int = 9, classes: int = 4, h: int = 5) -> tuple[torch.Tensor, torch.Tensor]:
    source = torch.Generator().manual_seed(2)
    label = torch.arange(n) % classes
    return torch.randn(n, h, generator=source, dtype=torch.float64) + label.unsqueeze(1), label


def test_margin_is_the_widest_gap_to_the_next_class() -> None:
    sent, label = drawn()
    centres = [sum(c for c, y in zip(sent, label, strict=True) if y == j) / int((label == j).sum()) for j in range(4)]
    gaps = [min(math.dist(centres[j], centres[i]) for i in range(4) if i != j) for j in range(4)]
    assert margin(sent, label, 100.0) == pytest.approx(max(gaps))
    assert margin(sent, label, 0.1) == 0.1
    assert margin(sent[:1], label[:1], 7.0) == 7.0  # one class: no gap


def slow_loss(params: list[torch.Tensor], sent: torch.Tensor, label: torch.Tensor, delta: float) -> torch.Tensor:
    """The mean over uploads of -log(e^-(d_y + delta) / (e^-(d_y + delta) + sum_{j != y} e^-d_j)), term by term."""
    e, inner, inner_bias, outer, outer_bias = params
    prototypes = [outer @ torch.relu(inner @ row + inner_bias) + outer_bias for row in e]
    total = torch.zeros((), dtype=sent.dtype)
    for c, y in zip(sent, label.tolist(), strict=True):
        d = [(c - p).square().sum().sqrt() for p in prototypes]
        numerator = torch.exp(-(d[y] + delta))
        total = total - torch.log(numerator / (numerator + sum(torch.exp(-d[j]) for j in range(len(d)) if j != y)))
    return total / len(sent)


def test_a_server_step_descends_the_loss() -> None:
    """One step is lr times the gradient that autograd finds for the formula, in float64."""
    sent, label = drawn()
    net = PrototypeNet.fresh(np.random.default_rng(0), 4, 5)
    arrays = [net.e, net.inner, net.inner_bias, net.outer, net.outer_bias]
    params = [torch.from_numpy(a.astype(np.float64)).requires_grad_(True) for a in arrays]
    grads = torch.autograd.grad(slow_loss(params, sent, label, 1.3), params)
    double = PrototypeNet(*(p.detach().numpy().copy() for p in params))
    double.step(sent.numpy(), np.eye(4)[label.numpy()], 1.3, 0.1)
    stepped = [double.e, double.inner, double.inner_bias, double.outer, double.outer_bias]
    for before, grad, after in zip(params, grads, stepped, strict=True):
        torch.testing.assert_close(torch.from_numpy(after), before.detach() - 0.1 * grad, rtol=1e-7, atol=1e-10)
        assert grad.abs().max() > 0


def test_a_step_at_distance_zero_is_finite() -> None:
    net = PrototypeNet.fresh(np.random.default_rng(0), 3, 4)
    net.step(net.forward()[1].copy(), np.eye(3, dtype=np.float32), 1.0, 0.01)
    assert all(np.isfinite(a).all() for a in (net.e, net.inner, net.outer))


def test_server_training_is_sgd_over_shuffled_batches(federation: Make) -> None:
    run = start(federation(SIZES), "fedtgp", {"server_epochs": 3, "server_batch": 4, "server_lr": 0.05})
    net = run.simulation.server.state["net"]
    arrays = (net.e, net.inner, net.inner_bias, net.outer, net.outer_bias)
    params = [torch.from_numpy(a.copy()).requires_grad_(True) for a in arrays]
    order = np.random.Generator(np.random.SFC64())
    order.bit_generator.state = run.simulation.server.generator.bit_generator.state
    upload = run.round(1)
    sent, label = torch.cat(upload["prototypes"]), torch.cat(upload["classes"])
    delta = margin(sent, label, 100.0)
    optimiser = torch.optim.SGD(params, lr=0.05)
    for _ in range(3):
        for batch in torch.from_numpy(order.permutation(len(sent))).split(4):
            optimiser.zero_grad()
            slow_loss(params, sent[batch], label[batch], delta).backward()
            optimiser.step()
    e, inner, inner_bias, outer, outer_bias = params
    expected = torch.relu(e @ inner.T + inner_bias) @ outer.T + outer_bias
    torch.testing.assert_close(run.simulation.server.state["prototypes"], expected.detach(), rtol=1e-5, atol=1e-6)
