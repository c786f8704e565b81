"""FedALA against its algorithm in slow loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from .rounds import PLAIN, Make, close, descend, start, tracked

RATE = 0.05


@pytest.mark.parametrize("threshold", [0.1, 1e-9])
def test_rounds_equal_slow_loops(federation: Make, threshold: float) -> None:
    """Three rounds per client: the weights by their rule with autograd, then FedAvg's steps."""
    world, first, eta = federation((13, 7, 10)), 15, 2.0
    params = {"threshold": threshold, "first_steps": first, "eta": eta, "share": 1.0}
    run = start(world, "fedala", params, **PLAIN, lr=RATE)
    alone = start(world, "local", clients_per_batch=1, **PLAIN)
    w = {n: v.clone() for n, v in run.simulation.server.initial_model().items()}
    models = [dict(w) for _ in range(3)]
    weights = [{n: torch.ones_like(w[n]) for n in ("1.weight", "1.bias")} for _ in range(3)]
    nodes = [client.graph.num_nodes() for client in world.clients]
    moved = 0.0
    for number in (1, 2, 3):
        uploads = run.round(number)["model"]
        for k, clients in enumerate(alone.simulation.client_batches):
            theta, losses = dict(w), []
            if number > 1:
                mine, old = weights[k], models[k]
                for step in range(first if number == 2 else 1):
                    theta = tracked(w | {n: old[n] + (w[n] - old[n]) * mine[n] for n in mine})
                    logits = clients.forward({n: v.unsqueeze(0) for n, v in theta.items()}, training=False).logits
                    loss = clients.loss(logits).sum()
                    losses.append(loss.item())
                    grads = dict(zip(mine, torch.autograd.grad(loss, [theta[n] for n in mine]), strict=True))
                    mine = {n: (v - eta * grads[n] * (w[n] - old[n])).clamp(0, 1) for n, v in mine.items()}
                    if step >= 10 and np.std(losses[-10:]) < threshold:
                        break
                moved += sum(float((1 - v).sum()) for v in mine.values())
                weights[k] = mine
                theta = w | {n: old[n] + (w[n] - old[n]) * mine[n] for n in mine}
            models[k] = descend(clients, theta, 2, RATE)
            close(uploads, models[k], k, rtol=1e-4)
        w = {n: sum(s / sum(nodes) * m[n] for s, m in zip(nodes, models, strict=True)) for n in w}
    assert moved > 0.01


def test_the_sample_is_a_share_of_each_clients_training_nodes(federation: Make) -> None:
    run = start(federation((13, 7, 10)), "fedala", {"share": 0.5})
    (clients,) = run.simulation.client_batches
    rows, owner = run.method._sample(clients), clients.batch.owner
    for place in range(3):
        train_rows = clients.batch.rows["train"][owner[clients.batch.rows["train"]] == place]
        drawn = rows[owner[rows] == place]
        assert set(drawn.tolist()) <= set(train_rows.tolist())
        assert len(set(drawn.tolist())) == len(drawn) == max(1, round(0.5 * len(train_rows)))
