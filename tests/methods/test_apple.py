"""APPLE against its algorithm in slow loops, and against FedAvg with fixed relationships."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from fglbench.methods import METHODS

from .rounds import PLAIN, Make, close, start


def test_one_step_with_equal_relationships_is_fedavg_at_a_smaller_rate(federation: Make) -> None:
    """theta_i moves by lr p_ii grad L_i, and personal models mix them by p_i: lr / K times the mean gradient."""
    world, training = federation((13, 7, 10)), {**PLAIN, "local_epochs": 1, "weighting": "uniform"}
    mine = start(world, "apple", {"rate": 0.0}, **training, lr=0.3)
    mean = start(world, "fedavg", **training, lr=0.1)
    for number in (1, 2, 3):
        mine.round(number), mean.round(number)
        (models,) = mine.simulation.personal_models()
        for name, value in mean.simulation.server.state["model"].items():
            torch.testing.assert_close(models[name], value.expand_as(models[name]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("schedule", ["exponential", "cosine"])
def test_rounds_equal_slow_loops(federation: Make, schedule: str) -> None:
    """Three of nine rounds per client: relationships and their regularisation by autograd through the mixture."""
    world, lr, rate, mu = federation((13, 7, 10)), 0.5, 0.2, 0.7
    params = {"rate": rate, "mu": mu, "last": 0.3, "schedule": schedule}
    run = start(world, "apple", params, **PLAIN, lr=lr)
    alone = start(world, "local", clients_per_batch=1, **PLAIN)
    first = run.simulation.server.initial_model()
    cores = [{n: v.clone() for n, v in first.items()} for _ in range(3)]
    share = torch.tensor([13 / 30, 7 / 30, 10 / 30])
    relation = [share.clone() for _ in range(3)]
    fades = {"exponential": (1.0, 0.001**0.5, 0.0), "cosine": (1.0, 0.5, 0.0)}[schedule]  # until round 2 of 9
    for number in (1, 2, 3):
        uploads, trained = run.round(number)["model"], []
        for k, clients in enumerate(alone.simulation.client_batches):
            core, p = cores[k], relation[k]
            for _ in range(2):
                leaf = {n: v.clone().requires_grad_(True) for n, v in core.items()}
                numbers = p.clone().requires_grad_(True)
                held = [leaf if j == k else cores[j] for j in range(3)]
                model = {n: sum(numbers[j] * held[j][n] for j in range(3)) for n in leaf}
                logits = clients.forward({n: v.unsqueeze(0) for n, v in model.items()}, training=False).logits
                loss = clients.cross_entropy(logits).sum() + fades[number - 1] * mu * ((numbers - share) ** 2).sum()
                *grads, pull = torch.autograd.grad(loss, [*leaf.values(), numbers])
                core = {n: v - lr * g for (n, v), g in zip(core.items(), grads, strict=True)}
                p = p - rate * pull
            trained.append(core)
            relation[k] = p
            close(uploads, core, k)
        cores = trained
    (scored,) = run.simulation.personal_models()
    for k in range(3):
        close(scored, {n: sum(relation[k][j] * cores[j][n] for j in range(3)) for n in first}, k)
    assert max(float((p - share).abs().max()) for p in relation) > 0.01


def test_regularisation_weight_falls_to_zero() -> None:
    for schedule in ("exponential", "cosine"):
        method = METHODS.build("apple", {"schedule": schedule})
        values = [method.fading(number, 100) for number in range(12)]
        assert values[0] == 1 and values[10] == values[11] == 0
        assert all(a > b > 0 for a, b in pairwise(values[:10]))
    assert METHODS.build("apple", {"last": 0.0}).fading(0, 100) == 0
