"""FedSpray against slow loops of its three steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from .formulas import Model, divergence, gcn, looped
from .rounds import PLAIN, Make, close, start, stepped, tracked

SIZES, P, RATE, SURE = (13, 7, 10), 5, 0.05, 0.42
PARAMS: dict[str, Any] = {"width": P, "lambda_1": 2.0, "sure": SURE}


def test_rounds_equal_slow_loops(federation: Make) -> None:
    world = federation(SIZES)
    run = start(world, "fedspray", PARAMS, **PLAIN, lr=RATE)
    (clients,) = run.simulation.client_batches
    model = {n: v.clone() for n, v in run.simulation.server.initial_model().items()}
    models = [dict(model) for _ in SIZES]
    common = {n: v.clone() for n, v in run.simulation._message["model"].items()}
    table = [torch.full((P,), 0.01 * c) for c in range(3)]
    nodes: list[dict[int, torch.Tensor]] = [{} for _ in SIZES]
    silent, taught = 0, 0
    for number in (1, 2, 3):
        uploads, sent, trained = run.round(number), [], []
        for k, client in enumerate(world.clients):
            x, label = client.feat.to_dense(), client.graph.ndata["label"]
            train = client.graph.ndata["train_mask"].nonzero().squeeze(1).tolist()
            s = looped(client.graph)
            nodes[k] = nodes[k] or {i: torch.full((P,), 0.1) for i in train}

            def code(p: Model, i: int, x: torch.Tensor = x) -> torch.Tensor:
                return torch.relu(x[i] @ p["encoder.weight"] + p["encoder.bias"])

            def structured(p: Model, i: int, z: torch.Tensor, code: Any = code) -> torch.Tensor:
                return (code(p, i) + z) @ p["structured.weight"] + p["structured.bias"]

            targets = {}
            for i in range(len(x)):
                soft = (code(common, i) @ common["plain.weight"] + common["plain.bias"]).softmax(0)
                if i in train:
                    targets[i] = structured(common, i, nodes[k][i])
                elif float(soft.max()) > SURE:
                    targets[i] = structured(common, i, sum(soft[c] * table[c] for c in range(3)))
            silent, taught = silent + len(x) - len(targets), taught + len(targets) - len(train)
            for _ in range(2):
                p = tracked(models[k])
                z = gcn(p, x, s)[1]
                apart = sum(divergence(row, z[i]) for i, row in targets.items()) / len(targets)
                models[k] = stepped(p, F.cross_entropy(z[train], label[train]) + 2.0 * apart, RATE)
            seen = gcn(models[k], x, s)[1]
            theta = common | {f"z{i}": z for i, z in nodes[k].items()}
            for _ in range(2):
                p = tracked(theta)
                plain = torch.stack([code(p, i) @ p["plain.weight"] + p["plain.bias"] for i in train])
                apart = sum(divergence(seen[i], structured(p, i, p[f"z{i}"])) for i in train) / len(train)
                theta = stepped(p, F.cross_entropy(plain, label[train]) + apart, RATE)
            nodes[k] = {i: theta[f"z{i}"] for i in train}
            trained.append({n: theta[n] for n in common})
            sent.append({c: [nodes[k][i] for i in train if label[i] == c] for c in range(3)})
            close(uploads["model"], trained[k], k, rtol=1e-4)
            assert uploads["classes"][k].tolist() == [c for c in range(3) if sent[k][c]]
        common = {n: sum(z / sum(SIZES) * t[n] for z, t in zip(SIZES, trained, strict=True)) for n in common}
        for c in range(3):
            share = [len(rows[c]) / sum(map(len, rows.values())) for rows in sent]
            means = [sum(rows[c]) / len(rows[c]) if rows[c] else torch.zeros(P) for rows in sent]
            table[c] = sum(w * m for w, m in zip(share, means, strict=True)) / sum(share)
        torch.testing.assert_close(run.simulation.server.state["proxies"], torch.stack(table), rtol=1e-4, atol=1e-5)
    for k, theta in enumerate(models):
        close(clients.params, theta, k, rtol=1e-4)

    assert silent > 0 < taught  # both kinds of nodes exist


def test_initial_values_are_those_of_the_released_code(federation: Make) -> None:
    """Weights (in, out) and biases are uniform in +-1 / sqrt(out)."""
    model = start(federation(SIZES), "fedspray", {"width": 100}).simulation._message["model"]
    for name, width in {"encoder": 100, "structured": 3, "plain": 3}.items():
        entries = torch.cat([model[f"{name}.weight"].flatten(), model[f"{name}.bias"].flatten()])
        assert 0.95 * width**-0.5 < entries.abs().max() <= width**-0.5


def test_a_class_that_no_client_has_keeps_its_proxy(federation: Make) -> None:
    run = start(federation(SIZES), "fedspray", PARAMS)
    server = run.simulation.server
    upload = {
        "model": {"w": torch.ones(3, 1)}, "prototypes": [torch.ones(1, P)] * 3,
        "classes": [torch.tensor([0]), torch.tensor([0]), torch.tensor([2])], "counts": [torch.ones(1)] * 3,
    }  # fmt: skip
    server.participants = [0, 1, 2]
    assert run.method.server(server, upload)["proxies"][:, 0].tolist() == pytest.approx([1.0, 0.01, 1.0])
