"""FedDC against its algorithm in slow loops, and its identities."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from .rounds import Make, close, start

GCN: dict[str, Any] = {"kinds": ["gcn"], "local_epochs": 2}


@pytest.mark.parametrize("participation", [1.0, 0.5])
@pytest.mark.parametrize("sized", [False, True])
@pytest.mark.parametrize("correction", ["update", "state", "none"])
def test_three_rounds_equal_the_algorithm(correction: str, sized: bool, participation: float, federation: Make) -> None:
    """Per client: autograd of the whole objective, plain SGD and server means by hand."""
    world, alpha, lr, steps = federation((13, 7, 10, 9)), 0.3, 0.2, 2
    params = {"alpha": alpha, "lr": lr, "correction": correction, "clip": None, "client_size": sized}
    train = [int(client.graph.ndata["train_mask"].sum()) for client in world.clients]
    s = [4 * n / sum(train) if sized else 1.0 for n in train]  # as the released code's weight_list
    assert not sized or max(s) > 1.2 * min(s)
    options = {**GCN, "weight_decay": 0.0, "backbone": {"dropout": 0.0}}
    game = start(world, "feddc", params, participation=participation, **options)
    alone = start(world, "local", clients_per_batch=1, **options)
    w = {n: v.clone() for n, v in game.simulation.server.state["model"].items()}
    zero = {n: torch.zeros_like(v) for n, v in w.items()}
    h, v, mean = [dict(zero) for _ in range(4)], [dict(zero) for _ in range(4)], dict(zero)
    for number in (1, 2, 3):
        game.round(number)
        chosen, thetas = game.simulation.server.participants, {}
        for k in chosen:
            clients, theta = alone.simulation.client_batches[k], {n: x.clone() for n, x in w.items()}
            for _ in range(steps):
                leaf = {n: x.clone().requires_grad_(True) for n, x in theta.items()}
                out = clients.forward({n: x.unsqueeze(0) for n, x in leaf.items()}, training=False)
                loss = clients.cross_entropy(out.logits).sum()
                for n, x in leaf.items():
                    loss = loss + alpha / s[k] / 2 * (h[k][n] + x - w[n]).square().sum()
                    if correction == "update":
                        loss = loss + (x * (v[k][n] - mean[n] / s[k])).sum() / (lr * steps)
                    if correction == "state":  # v is SCAFFOLD's control variate here
                        loss = loss + (x * (mean[n] / s[k] - v[k][n])).sum()
                grads = torch.autograd.grad(loss, list(leaf.values()))
                theta = {n: x - lr * g for (n, x), g in zip(theta.items(), grads, strict=True)}
            thetas[k] = theta
        old_mean = mean
        if correction == "update":
            mean = {n: sum(s[k] * (thetas[k][n] - w[n]) for k in chosen) / len(chosen) for n in w}
        for k in chosen:
            moved = {n: thetas[k][n] - w[n] for n in w}
            h[k] = {n: h[k][n] + moved[n] for n in w}
            if correction == "update":
                v[k] = moved
            else:
                v[k] = {n: v[k][n] - old_mean[n] / s[k] - moved[n] / (lr * steps) for n in w}
        if correction == "state":
            mean = {n: sum(size * state[n] for size, state in zip(s, v, strict=True)) / 4 for n in w}
        w = {n: sum(t[n] for t in thetas.values()) / len(chosen) + sum(drift[n] for drift in h) / 4 for n in w}
        close(game.simulation.server.state["model"], w, rtol=1e-4)


def test_both_corrections_agree_in_the_second_round(federation: Make) -> None:
    """Before that the states are the last updates."""
    one, two = (start(federation(), "feddc", {"correction": c}, **GCN) for c in ("update", "state"))
    for number in (1, 2):
        one.round(number)
        two.round(number)
    close(two.simulation.server.state["model"], one.simulation.server.state["model"], rtol=1e-4, atol=1e-6)
