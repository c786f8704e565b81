"""FedPPN against loops over nodes: propagation, training, prototypes and predictions."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .formulas import near_of
from .rounds import PLAIN, Make, close, start, stepped, tracked

HEAD: dict[str, Any] = PLAIN | {"backbone": {"dropout": 0.0, "linear_head": True}}
RATE, ALPHA, SHARE = 0.05, 0.3, 0.6


def propagated(client: Any, start_rows: torch.Tensor, propagation: str) -> torch.Tensor:
    """Two steps, node by node."""
    near, z = near_of(client), start_rows
    degree = [len(nodes) + 1 for nodes in near]
    for _ in range(2):
        rows = []
        for i, nodes in enumerate(near):
            if propagation == "sum":
                total = sum((z[j] for j in nodes), torch.zeros(8))
            else:
                total = sum(z[j] / (degree[i] * degree[j]) ** 0.5 for j in [*nodes, i])
            rows.append(ALPHA * total + (1 - ALPHA) * start_rows[i])
        z = torch.stack(rows)
    return z


@pytest.mark.parametrize("propagation", ["normalised", "sum"])
def test_rounds_equal_slow_loops(propagation: str, federation: Make) -> None:
    world = federation((13, 7, 10))
    params = {"alpha": ALPHA, "share": SHARE, "propagation": propagation}
    run = start(world, "fedppn", params, **PLAIN, lr=RATE)
    alone = start(world, "local", clients_per_batch=1, **HEAD)
    models = [{n: v[0] for n, v in clients.params.items()} for clients in alone.simulation.client_batches]
    table = torch.zeros(3, 8)

    def outputs(k: int, model: Any, received: bool) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Embedding, logits, and the logits of the propagated prototypes."""
        clients, label = alone.simulation.client_batches[k], world.clients[k].graph.ndata["label"]
        out = clients.forward({n: v.unsqueeze(0) for n, v in model.items()}, training=False)
        if not received:
            return out.embedding, out.logits, out.logits
        seeds = torch.zeros(len(label), 8)
        for i in clients.batch.rows["train"].tolist():
            seeds[i] = table[label[i]]
        z = propagated(world.clients[k], seeds, propagation)
        return out.embedding, out.logits, z @ model["head.weight"] + model["head.bias"]

    for number in (1, 2):
        sent, fresh = run.round(number), dict[int, list[torch.Tensor]]()
        for k, clients in enumerate(alone.simulation.client_batches):
            rows, label = clients.batch.rows["train"], clients.batch.label
            for _ in range(2):
                leaf = tracked(models[k])
                _, own, other = outputs(k, leaf, number > 1)
                parts = (own, other, SHARE * own + (1 - SHARE) * other) if number > 1 else (own,)
                loss = sum(F.cross_entropy(part[rows], label[rows]) for part in parts)
                models[k] = stepped(leaf, loss, RATE)
            r = outputs(k, models[k], False)[0]
            for j, prototype in zip(sent["classes"][k].tolist(), sent["prototypes"][k], strict=True):
                mean = torch.stack([r[i] for i in rows.tolist() if label[i] == j]).mean(0)
                torch.testing.assert_close(prototype, mean, rtol=1e-5, atol=1e-5)
                fresh.setdefault(j, []).append(mean)
        table = torch.stack([torch.stack(fresh[j]).mean(0) if j in fresh else table[j] for j in range(3)])
    (scored,) = run.simulation.personal_models()
    (clients,) = run.simulation.client_batches
    predicted = run.method.predict_own(scored, clients).split(clients.batch.sizes)
    for k, model in enumerate(models):
        close({n: scored[n] for n in model}, model, k)
        _, own, other = outputs(k, model, True)
        torch.testing.assert_close(predicted[k], SHARE * own + (1 - SHARE) * other, rtol=1e-5, atol=1e-5)


def test_classifier_inference_uses_the_network_alone(federation: Make) -> None:
    run = start(federation((13, 7, 10)), "fedppn", {"inference": "classifier"})
    run.round(1)
    (scored,), (clients,) = run.simulation.personal_models(), run.simulation.client_batches
    torch.testing.assert_close(
        run.method.predict_own(scored, clients), clients.forward(training=False).logits, rtol=1e-5, atol=1e-6
    )
