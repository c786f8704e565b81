"""FGGP against slow loops of its views, losses, clusters and memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.rng import stream
from fglbench.methods.fggp.fggp import cluster_means

from .formulas import Model, gcn, normal
from .rounds import PLAIN, Make, close, start, stepped, tracked

SIZES = (13, 7, 10)
SEED = 1
SGD = PLAIN | {"lr": 0.05}
NEIGHBOURS, REFRESH, SHARE, RELAX, ALIGN = 2, 2, 0.4, 0.7, 0.5
PARAMS: dict[str, Any] = {
    "neighbours": NEIGHBOURS, "refresh": REFRESH, "share": SHARE, "relaxation": RELAX, "view_weight": 0.8,
    "align_weight": 1.5, "memory": 2, "nearest": 3,
}  # fmt: skip


def cosine(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(a @ b / max(float(a.norm() * b.norm()), 1e-30))


class Slow:
    """One client of FGGP, pair by pair."""

    def __init__(self, client: Any, number: int, seed: int) -> None:
        n = client.graph.num_nodes()
        self.x, self.label = client.feat.to_dense(), client.graph.ndata["label"]
        self.train = client.graph.ndata["train_mask"].bool()
        self.edges = torch.zeros(n, n)
        source, target = client.graph.edges()
        self.edges[target, source] = 1.0
        self.noise = stream(seed, "view edges", number)
        self.linked = self.edges

    @property
    def plain(self) -> torch.Tensor:
        return normal(self.edges + torch.eye(len(self.x)))

    def look_around(self, theta: Model) -> None:
        h, _ = gcn(theta, self.x, self.plain)
        self.linked = self.edges + torch.eye(len(h))
        for i in range(len(h)):
            similar = sorted((j for j in range(len(h)) if j != i), key=lambda j: -cosine(h[i], h[j]))
            for j in similar[:NEIGHBOURS]:
                self.linked[i, j] = self.linked[j, i] = 1.0
        self.linked = (self.linked > 0).float()

    def prototypes(self, h: torch.Tensor, logits: torch.Tensor) -> dict[int, torch.Tensor]:
        p, means = logits.softmax(1), {}
        kept: dict[int, list[tuple[Any, torch.Tensor]]] = {}
        for i in range(len(h)):
            j = int(self.label[i]) if self.train[i] else int(p[i].argmax())
            kept.setdefault(j, []).append((1.0 if self.train[i] else p[i, j], h[i]))
        for j, members in kept.items():
            means[j] = sum(w * row for w, row in members) / sum(w for w, _ in members)
        return dict(sorted(means.items()))

    def loss(self, theta: Model) -> torch.Tensor:
        h, logits = gcn(theta, self.x, self.plain)
        spread, n = normal(self.linked), len(h)
        codes = torch.relu(spread @ (spread @ (self.x @ theta["view.0.weight"])) @ theta["view.1.weight"])
        score = codes @ codes.T
        yes = float(self.linked.sum())
        no = max(n * n - yes, 1.0)
        apart = torch.zeros(())
        for i in range(n):
            for j in range(n):
                error = F.binary_cross_entropy_with_logits(score[i, j], self.linked[i, j])
                apart = apart + error * (no / yes if self.linked[i, j] else 1.0) / (2 * no)
        u, graph = self.noise.random((n, n), dtype=np.float32), torch.eye(n)
        for i in range(n):
            for j in range(i + 1, n):
                p = SHARE * score[i, j] / (score.max() + 1e-6) + (1 - SHARE) * self.linked[i, j]
                p, chance = p.clamp(1e-6, 1 - 1e-6), min(max(float(u[i, j]), 1e-6), 1 - 1e-6)
                soft = torch.sigmoid((torch.log(p / (1 - p)) + math.log(chance / (1 - chance))) / RELAX)
                drawn = soft + (soft.round() - soft).detach()
                at, back = torch.zeros(n, n), torch.zeros(n, n)
                at[i, j], back[j, i] = 1, 1
                graph = graph + drawn * (at + back)
        seen, other = gcn(theta, self.x, normal(graph))
        local, far = self.prototypes(h, logits), {}
        p = logits.softmax(1)
        for j in local:  # the same classes and weights, other embeddings
            rows = [i for i in range(n) if (int(self.label[i]) if self.train[i] else int(p[i].argmax())) == j]
            weight = [1.0 if self.train[i] else p[i, j] for i in rows]
            far[j] = sum(w * seen[i] for w, i in zip(weight, rows, strict=True)) / sum(weight)
        align = torch.zeros(())
        for j in local:
            near = torch.cosine_similarity(far[j], local[j], 0) / ALIGN
            rivals = [torch.cosine_similarity(far[j], far[c], 0) / ALIGN for c in local if c != j]
            rivals += [torch.cosine_similarity(far[j], local[c], 0) / ALIGN for c in local if c != j]
            align = align + torch.log(sum((r.exp() for r in rivals), near.exp())) - near
        t, y = self.train, self.label[self.train]
        total = F.cross_entropy(logits[t], y) + 0.8 * (F.cross_entropy(other[t], y) + apart)
        return total + 1.5 * align / len(local)


@pytest.mark.parametrize("block", [1 << 16, 40])
def test_rounds_equal_slow_loops(federation: Make, monkeypatch: pytest.MonkeyPatch, block: int) -> None:
    """Three rounds of models, prototypes and memory, and predictions by it. block: pairs of nodes in a block."""
    monkeypatch.setattr("fglbench.methods.fggp.views.BLOCK", block)
    world = federation(SIZES, seed=SEED)  # other seeds give ties of similarity up to rounding
    run = start(world, "fggp", PARAMS, **SGD)
    model = {n: v.clone() for n, v in run.simulation.server.initial_model().items()}
    slow_clients = [Slow(client, k, 5) for k, client in enumerate(world.clients)]
    memory: list[tuple[int, torch.Tensor]] = []
    for number in (1, 2, 3):
        uploads, sent, trained = run.round(number), dict[int, list[torch.Tensor]](), []
        for k, slow in enumerate(slow_clients):
            if (number - 1) % REFRESH == 0:
                slow.look_around(model)
            theta = dict(model)
            for _ in range(2):
                theta = tracked(theta)
                theta = stepped(theta, slow.loss(theta), 0.05)
            trained.append(theta)
            close(uploads["model"], theta, k, rtol=1e-4)
            prototypes = slow.prototypes(*gcn(theta, slow.x, slow.plain))
            assert uploads["classes"][k].tolist() == list(prototypes)
            torch.testing.assert_close(
                uploads["prototypes"][k], torch.stack(list(prototypes.values())), rtol=1e-4, atol=1e-5
            )
            for j, row in prototypes.items():
                sent.setdefault(j, []).append(row)
        model = {n: sum(s / sum(SIZES) * m[n] for s, m in zip(SIZES, trained, strict=True)) for n in model}
        for j in sorted(sent):
            memory += [(j, row / row.norm()) for row in cluster_means(torch.stack(sent[j]))]
        memory = memory[-2 * 3 :]
    held = run.simulation.server.state["memory"]
    assert held["classes"].tolist() == [j for j, _ in memory]
    torch.testing.assert_close(held["rows"], torch.stack([row for _, row in memory]), rtol=1e-4, atol=1e-5)
    (clients,) = run.simulation.client_batches
    shown = run.simulation.models().expanded(3)
    scores = run.method.predict(shown, clients.network, clients.data)
    h = torch.cat([gcn(model, slow.x, slow.plain)[0] for slow in slow_clients])
    for i in range(len(h)):
        near = sorted(memory, key=lambda entry: -cosine(h[i], entry[1]))[:3]
        vote, mass = [1e-5] * 3, sum(math.exp(cosine(h[i], row) / 0.1) for _, row in near)
        for j, row in near:
            vote[j] += math.exp(cosine(h[i], row) / 0.1) / mass
        torch.testing.assert_close(scores[i].exp(), torch.tensor(vote), rtol=1e-3, atol=1e-5)


def test_clusters_equal_slow_search() -> None:
    """Random vectors, first neighbours one by one."""
    rows = torch.from_numpy(np.random.default_rng(3).normal(size=(23, 4)).astype(np.float32))

    def grouped(points: torch.Tensor) -> list[set[int]]:
        groups = [{i} for i in range(len(points))]
        for i in range(len(points)):
            j = max((j for j in range(len(points)) if j != i), key=lambda j: cosine(points[i], points[j]))
            one, other = (next(g for g in groups if v in g) for v in (i, j))
            if one is not other:
                groups.remove(other)
                one |= other
        return groups

    parts = grouped(rows)
    while len(parts) > 1:
        means = torch.stack([rows[sorted(members)].mean(0) for members in parts])
        merged = grouped(means)
        if len(merged) in (1, len(parts)):
            break
        parts = [set().union(*(parts[i] for i in group)) for group in merged]
    expected = sorted(rows[sorted(members)].mean(0).tolist() for members in parts)
    assert len(expected) > 1
    np.testing.assert_allclose(sorted(cluster_means(rows).tolist()), expected, rtol=1e-5, atol=1e-6)
