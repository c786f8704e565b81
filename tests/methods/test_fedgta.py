"""FedGTA against loops from its formulas, and its reductions."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from fglbench.benchmark.engine.payload import deliver

from .rounds import Make, close, start

GCN: dict[str, Any] = {"kinds": ["gcn"]}


def slow_profile(client: Any, logits: torch.Tensor, params: dict[str, Any]) -> tuple[list[float], float]:
    """Moments and confidence of one client, node by node, in double precision."""
    n, classes = logits.shape
    neighbours: list[list[int]] = [[i] for i in range(n)]
    for u, v in zip(*(ends.tolist() for ends in client.graph.edges()), strict=True):
        neighbours[v].append(u)
    degree = [len(near) for near in neighbours]
    train, label = client.graph.ndata["train_mask"].tolist(), client.graph.ndata["label"].tolist()
    hot = [[float(c == label[i]) for c in range(classes)] for i in range(n)]
    y0 = [hot[i] if train[i] else row for i, row in enumerate(logits.double().softmax(1).tolist())]
    y, kappa = y0, params.get("kappa", 0.5)
    for _ in range(params.get("steps", 5)):
        y = [
            [
                kappa * sum(y[j][c] / math.sqrt(degree[i] * degree[j]) for j in neighbours[i]) + (1 - kappa) * y0[i][c]
                for c in range(classes)
            ]
            for i in range(n)
        ]

    def soft(row: list[float], temperature: float) -> list[float]:
        weights = [math.exp(value / temperature) for value in row]
        return [w / sum(weights) for w in weights]

    flat = [soft(row, params.get("temperature", 20.0)) for row in y]
    if params.get("as_released"):
        y = [hot[i] if train[i] else soft(row, 1.0) for i, row in enumerate(y)]
        flat = [hot[i] if train[i] else row for i, row in enumerate(flat)]
    confidence = sum(
        degree[i] * sum(math.exp(-1) + (p * math.log(p) if p > 0 else 0.0) for p in flat[i]) for i in range(n)
    )
    orders = range(1, params.get("orders", 10) + 1)
    mean = [sum(row[c] for row in y) / n for c in range(classes)]
    moments = [sum(row[c] ** q for row in y) / n for q in orders for c in range(classes)]
    if params.get("moments", "hybrid") == "hybrid":
        moments += [sum((row[c] - mean[c]) ** q for row in y) / n for q in orders for c in range(classes)]
    return moments, confidence


@pytest.mark.parametrize(
    "params", [{}, {"as_released": True}, {"moments": "raw", "orders": 4, "steps": 2, "kappa": 0.8, "temperature": 3.0}]
)
def test_profile_equals_loops(params: dict[str, Any], federation: Make) -> None:
    world = federation((13, 7, 10, 9), without_train=(3,))
    run = start(world, "fedgta", params, **GCN)
    upload = run.round(1)
    clients = run.simulation.client_batches[0]
    with torch.no_grad():
        logits = clients.forward(upload["model"], training=False).logits.split(clients.batch.sizes)
    for k, client in enumerate(world.clients):
        moments, confidence = slow_profile(client, logits[k], params)
        torch.testing.assert_close(upload["moments"][k], torch.tensor(moments), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(upload["confidence"][k], torch.tensor(confidence), rtol=1e-5, atol=1e-6)


def slow_rule(upload: dict[str, Any], similarity: float) -> dict[str, list[torch.Tensor]]:
    """The personal models, client by client."""
    q, h, clients = upload["moments"], upload["confidence"], len(upload["confidence"])
    models: dict[str, list[torch.Tensor]] = {name: [] for name in upload["model"]}
    for i in range(clients):
        peers = [j for j in range(clients) if float(q[i] @ q[j] / (q[i].norm() * q[j].norm())) > similarity]
        for name, value in upload["model"].items():
            models[name].append(sum(h[j] * value[j] for j in peers) / sum(h[j] for j in peers))
    return models


def test_server_averages_peers_by_confidence(federation: Make) -> None:
    run = start(federation((13, 7, 10, 9, 8)), "fedgta", {"similarity": 0.9}, **GCN)
    for number in (1, 2):
        upload = run.round(number)
        expected = slow_rule(upload, 0.9)
        close(run.simulation.server.state["personal"], {n: torch.stack(v) for n, v in expected.items()}, atol=1e-6)
    q = torch.nn.functional.normalize(upload["moments"], dim=1)
    assert 0.3 < ((q @ q.T) > 0.9).float().mean() < 1  # the threshold did tell clients apart


def test_similarity_threshold_gives_local_training_or_one_model(federation: Make) -> None:
    world = federation((13, 7, 10))
    alone, local = start(world, "fedgta", {"similarity": 0.9999999}, **GCN), start(world, "local", **GCN)
    together = start(world, "fedgta", {"similarity": -1}, **GCN)
    for number in (1, 2, 3):
        upload = alone.round(number)
        local.round(number)
        upload_together = together.round(number)
    params = local.simulation.client_batches[0].params
    assert all(torch.equal(upload["model"][name], params[name]) for name in params)
    h = upload_together["confidence"]
    for name, value in together.simulation.server.state["personal"].items():
        mean = sum(w * v for w, v in zip(h / h.sum(), upload_together["model"][name], strict=True))
        torch.testing.assert_close(value, mean.expand_as(value), rtol=1e-5, atol=1e-6)


def test_absent_clients_keep_their_last_download(federation: Make) -> None:
    run = start(federation((6, 6, 6, 6, 6)), "fedgta", participation=0.4, **GCN)
    simulation = run.simulation
    last = {name: v.expand(5, *v.shape) for name, v in simulation.server.initial_model().items()}
    for number in range(1, 6):
        run.round(number)
        sent = deliver(simulation._message, range(5), simulation.server.participants)["model"]
        for client in range(5):
            if client not in simulation.server.participants:
                assert all(torch.equal(sent[name][client], last[name][client]) for name in last)
            else:
                assert not torch.equal(sent["0.weight"][client], last["0.weight"][client])
        last = sent
        models = simulation.models()  # every client has a model to be scored, also if it took no part
        assert models.personal is not None and all(len(v) == 5 for v in models.personal[0].values())
