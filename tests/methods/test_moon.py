"""MOON against its formula."""

from __future__ import annotations

from typing import Any

import torch

from .rounds import Make, start

GCN: dict[str, Any] = {"kinds": ["gcn"], "local_epochs": 2}


def test_a_round_equals_slow_loops(federation: Make) -> None:
    """Round 2 per client: the contrast by loops, SGD by hand, then the weighted mean."""
    world, training = federation((13, 7, 10)), {"optimiser": "sgd", "lr": 0.3, "weight_decay": 0.0}
    options = {**GCN, **training, "backbone": {"dropout": 0.0}}
    game = start(world, "moon", {"mu": 2.0, "temperature": 0.4}, **options)
    alone = start(world, "local", clients_per_batch=1, **options)
    game.round(1)
    w = {n: v.clone() for n, v in game.simulation.server.state["model"].items()}
    before = {n: v.clone() for n, v in game.simulation.client_batches[0].params.items()}
    game.round(2)
    finals = []
    for k, clients in enumerate(alone.simulation.client_batches):
        with torch.no_grad():
            near = clients.forward({n: v.unsqueeze(0) for n, v in w.items()}, training=False).embedding
            far = clients.forward({n: v[k : k + 1] for n, v in before.items()}, training=False).embedding
        theta = {n: v.unsqueeze(0).clone() for n, v in w.items()}
        for _ in range(2):
            leaf = {n: v.clone().requires_grad_(True) for n, v in theta.items()}
            out = clients.forward(leaf, training=False)
            loss, nodes = clients.cross_entropy(out.logits).sum(), len(near)
            for i in range(nodes):
                r = out.embedding[i]
                up = torch.exp(torch.cosine_similarity(r, near[i], dim=0) / 0.4)
                down = torch.exp(torch.cosine_similarity(r, far[i], dim=0) / 0.4)
                loss = loss + 2.0 * -torch.log(up / (up + down)) / nodes
            grads = torch.autograd.grad(loss, list(leaf.values()))
            theta = {n: v - 0.3 * g for (n, v), g in zip(theta.items(), grads, strict=True)}
        finals.append(theta)
    for n, value in game.simulation.server.state["model"].items():
        expected = sum(size / 30 * theta[n][0] for size, theta in zip((13, 7, 10), finals, strict=True))
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)
