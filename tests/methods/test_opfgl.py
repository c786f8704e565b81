"""O-pFGL against slow loops of its statistics, its surrogate graph and both stages of training."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.rng import stream

from .formulas import Model, divergence, gcn, looped, near_of
from .rounds import PLAIN, Make, close, start, stepped, tracked

SIZES = (13, 22, 17)
D, C, SEED = 12, 3, 5
SGD = PLAIN | {"lr": 0.2}
PARAMS: dict[str, Any] = {
    "epochs": 5,
    "surrogate_share": 0.4,
    "nodes": 2,
    "hops": 2,
    "condense_steps": 14,  # ten of the edges, four of the features
    "lam_smoothness": 0.3,
    "lr_features": 0.02,
    "expand": 2,
    "lam": 5.0,
    "lam_max": 3.0,
    "lam_min": 0.5,
    "sure": 0.5,
    "least_degree": 2,
}


def outlook(client: Any, steps: int = 2, weight: float = 0.9) -> tuple[list[float], list[list[float]]]:
    """Gamma of each class, and P of each node."""
    near, label = near_of(client), client.graph.ndata["label"].tolist()
    train = set(client.graph.ndata["train_mask"].nonzero().squeeze(1).tolist())
    mass = [0.0] * C
    for v in train:
        linked = [u for u in near[v] if u in train]
        mass[label[v]] += sum(label[u] == label[v] for u in linked) / len(linked) if linked else 0.0
    known = [[float(v in train and label[v] == c) for c in range(C)] for v in range(len(near))]
    p = known
    for _ in range(steps):
        p = [
            [
                min(1.0, weight * sum(p[u][c] / math.sqrt(len(near[u]) * len(near[v])) for u in near[v])
                    + (1 - weight) * known[v][c])
                for c in range(C)
            ]
            for v in range(len(near))
        ]  # fmt: skip
    p = [row if sum(row) else [1 / C] * C for row in p]
    return [1 / (1 + math.log(1 + m)) for m in mass], p


def statistics(client: Any, params: dict[str, Any]) -> list[tuple[int, torch.Tensor, torch.Tensor]]:
    """(n, mean, deviation) of each class, added nodes included."""
    gamma, p = outlook(client)
    near, label = near_of(client), client.graph.ndata["label"].tolist()
    train = client.graph.ndata["train_mask"].tolist()
    chosen = sorted(range(C), key=lambda c: gamma[c])[: params["expand"]]
    members: list[list[int]] = [[] for _ in range(C)]
    for v, row in enumerate(p):
        best = max(range(C), key=lambda c: row[c])
        if train[v]:
            members[label[v]].append(v)
        elif best in chosen and row[best] / sum(row) >= params["sure"] and len(near[v]) >= params["least_degree"]:
            members[best].append(v)
    rows, s = [client.feat.to_dense().double()], looped(client.graph, torch.float64)
    for _ in range(params["hops"]):
        rows.append(s @ rows[-1])
    x, classes = torch.cat(rows, 1), []
    for nodes in members:
        if len(nodes) < 2:
            classes.append((0, torch.zeros(x.shape[1]), torch.zeros(x.shape[1])))
            continue
        mean = sum(x[v] for v in nodes) / len(nodes)
        variance = sum((x[v] - mean) ** 2 for v in nodes) / (len(nodes) - 1)
        classes.append((len(nodes), mean, variance.sqrt()))
    return classes


def pooled(parts: list[tuple[int, torch.Tensor, torch.Tensor]]) -> tuple[int, torch.Tensor, torch.Tensor]:
    total = sum(n for n, _, _ in parts)
    mean = sum(n * m for n, m, _ in parts) / total
    spread = sum((n - 1) * s**2 + n * (m - mean) ** 2 for n, m, s in parts if n)
    return total, mean, (spread / (total - sum(n > 0 for n, _, _ in parts))).sqrt()


def edges(f: Model, x: torch.Tensor) -> torch.Tensor:
    n = len(x)
    h = torch.stack([torch.cat([x[i], x[j]]) for i in range(n) for j in range(n)]) @ f["0.weight"] + f["0.bias"]
    for i in range(2):
        h = torch.relu(F.batch_norm(h, None, None, f[f"{i}.scale"], f[f"{i}.shift"], training=True))
        h = h @ f[f"{i + 1}.weight"] + f[f"{i + 1}.bias"]
    rows = []
    for i in range(n):
        each = [torch.sigmoid((h[i * n + j, 0] + h[j * n + i, 0]) / 2) for j in range(n)]
        rows.append(torch.stack([w if i != j and w >= 0.01 else w * 0 for j, w in enumerate(each)]))
    return torch.stack(rows)


def slow_surrogate(
    classes: list[tuple[int, torch.Tensor, torch.Tensor]], p: dict[str, Any]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Features and edge weights after the server's steps."""
    draws, n, m = stream(SEED, "server"), C * p["nodes"], p["nodes"]
    x = torch.from_numpy(draws.standard_normal((n, D), dtype=np.float32)).requires_grad_(True)
    source, f = torch.Generator().manual_seed(int(draws.integers(2**63))), {}
    for i, (n_in, n_out) in enumerate(((2 * D, 128), (128, 128), (128, 1))):
        for name, shape in (("weight", (n_in, n_out)), ("bias", (n_out,))):
            f[f"{i}.{name}"] = torch.empty(shape).uniform_(-(n_in**-0.5), n_in**-0.5, generator=source)
        if i < 2:
            f |= {f"{i}.scale": torch.ones(n_out), f"{i}.shift": torch.zeros(n_out)}
    f = {name: value.requires_grad_(True) for name, value in f.items()}
    of_edges, of_features = torch.optim.Adam(f.values(), lr=1e-3), torch.optim.Adam([x], lr=p["lr_features"])
    everyone = sum(entry[0] for entry in classes)
    for step in range(p["condense_steps"]):
        w = edges(f, x)
        smooth = sum(w[i, j] * (-((x[i] - x[j]) ** 2) / 2).exp().mean() for i in range(n) for j in range(n)) / w.sum()
        a = w + torch.eye(n)
        s = torch.stack([torch.stack([a[i, j] / (a[i].sum() * a[j].sum()).sqrt() for j in range(n)]) for i in range(n)])
        h = torch.cat([x, s @ x, s @ s @ x], 1)
        loss = p["lam_smoothness"] * smooth
        for c, (count, mean, deviation) in enumerate(classes):
            block = h[c * m : c * m + m]
            gap = ((mean - block.mean(0)) ** 2).mean()
            if m > 1:
                gap = gap + ((deviation - block.std(0)) ** 2).mean()
            loss = loss + 10 * count / everyone * gap
        of_edges.zero_grad()
        of_features.zero_grad()
        loss.backward()
        (of_edges if step < 10 else of_features).step()
    return x.detach(), edges(f, x).detach()


def slow_client(client: Any, w: Model, x: torch.Tensor, a: torch.Tensor, p: dict[str, Any]) -> Model:
    label = torch.tensor([c for c in range(C) for _ in range(p["nodes"])])
    a = a + torch.eye(len(a))
    a = a / (a.sum(1, keepdim=True) * a.sum(0)) ** 0.5
    for _ in range(2):
        w = tracked(w)
        w = stepped(w, F.cross_entropy(gcn(w, x, a)[1], label), 0.2)
    operator, feat = looped(client.graph), client.feat.to_dense()
    train, truth = client.graph.ndata["train_mask"], client.graph.ndata["label"]
    taught, (gamma, likely) = gcn(w, feat, operator)[1], outlook(client)
    for _ in range(3):
        w = tracked(w)
        out = gcn(w, feat, operator)[1]
        loss = F.cross_entropy(out[train], truth[train])
        for v, row in enumerate(likely):
            lam = min(p["lam_max"], max(p["lam_min"], p["lam"] * sum(q * g for q, g in zip(row, gamma, strict=True))))
            loss = loss + lam * divergence(taught[v], out[v]) / len(likely)
        w = stepped(w, loss, 0.2)
    return w


@pytest.mark.parametrize("nodes", [1, 2])
def test_the_round_equals_slow_loops(nodes: int, federation: Make) -> None:
    world, params = federation(SIZES), PARAMS | {"nodes": nodes}
    run = start(world, "o-pfgl", params, **SGD)
    (clients,) = run.simulation.client_batches
    first = {n: v.clone() for n, v in clients.params.items()}
    uploads = run.round(1)["0"]
    summaries = [statistics(client, params) for client in world.clients]
    labelled = sum(int(client.graph.ndata["train_mask"].sum()) for client in world.clients)
    assert sum(n for summary in summaries for n, _, _ in summary) > labelled  # some nodes joined
    for k, summary in enumerate(summaries):
        for c, (n, mean, deviation) in enumerate(summary):
            assert uploads["count"][k, c] == n
            torch.testing.assert_close(uploads["prototypes"][k, c], mean.float(), rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(uploads["deviation"][k, c], deviation.float(), rtol=1e-5, atol=1e-5)
    classes = [pooled([summary[c] for summary in summaries]) for c in range(C)]
    x, w = slow_surrogate([(n, mean.float(), s.float()) for n, mean, s in classes], params)
    torch.testing.assert_close(clients.received["features"][0], x, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(clients.received["edges"][0], w, rtol=1e-5, atol=1e-5)
    for k, client in enumerate(world.clients):
        expected = slow_client(client, {n: v[k] for n, v in first.items()}, x, w, params)
        close(clients.params, expected, k)


@pytest.mark.parametrize(("epochs", "expected"), [(4, 4), (100, 6)])
def test_it_spends_at_most_the_epochs_of_all_rounds(federation: Make, epochs: int, expected: int) -> None:
    run = start(federation(SIZES), "o-pfgl", PARAMS | {"epochs": epochs}, rounds=3, **SGD)
    run.round(1)
    (clients,) = run.simulation.client_batches
    taken = sum(clients.optimiser(name).steps["0.weight"] for name in ("model", "personal"))
    assert {int(steps) for steps in taken} == {expected}
    assert [phase.rounds for phase in run.method.phases(run.simulation.config)] == [1]
