"""S2FGL against slow loops of its scores, terms and repository."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fglbench.methods.s2fgl import frequencies

from .formulas import Model, adjacency, gcn, looped
from .rounds import PLAIN, Make, close, start, stepped, tracked

SIZES = (30, 20, 26)
H = 8
SGD = PLAIN | {"lr": 0.05}


def order(client: Any, alpha: float) -> list[int]:
    """The nodes by decreasing label signal, computed with a matrix inverse."""
    a, train = adjacency(client.graph, torch.float64), client.graph.ndata["train_mask"].tolist()
    n = len(train)
    p = torch.linalg.inv(torch.eye(n, dtype=torch.float64) - (1 - alpha) * a / a.sum(1, keepdim=True).clamp(min=1))
    labelled = [j for j in range(n) if train[j]]
    score = [max(p[i, j] for j in labelled) + alpha * sum(p[i, j] for j in labelled) for i in range(n)]
    return sorted(range(n), key=lambda i: -score[i])


def cosine(u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return u @ v / (u.norm().clamp(min=1e-12) * v.norm().clamp(min=1e-12))


def spectrum(rows: torch.Tensor, similar: int, count: int) -> list[torch.Tensor]:
    n = len(rows)
    weight = torch.zeros(n, n)
    for i in range(n):
        cosines = [float(cosine(rows[i], rows[j])) for j in range(n)]
        for j in sorted(range(n), key=lambda j: -cosines[j])[: similar + 1]:
            weight[i, j] += cosines[j] / 2
            weight[j, i] += cosines[j] / 2
    laplacian = torch.zeros(n, n)
    for i in range(n):
        for j in range(n):
            laplacian[i, j] = (weight[i].sum() if i == j else 0) - weight[i, j]
    vectors = torch.linalg.eigh(laplacian).eigenvectors.T
    m = min(count, n // 2)
    return [*vectors[:m], *vectors[n - m :]]


def slow_loss(w: Model, client: Any, received: torch.Tensor | None, book: torch.Tensor | None, p: Any) -> torch.Tensor:
    h, logits = gcn(w, client.feat.to_dense(), looped(client.graph))
    train = client.graph.ndata["train_mask"]
    loss = F.cross_entropy(logits[train], client.graph.ndata["label"][train])
    if received is None or book is None:
        return loss
    entries = [vector for vectors in book for vector in vectors]
    nlir = torch.zeros(())
    for mine, theirs in zip(h, received, strict=True):
        log_mine = torch.stack([cosine(mine, b) for b in entries]).log_softmax(0)
        likely = torch.stack([cosine(theirs, b) for b in entries]).softmax(0)
        nlir = nlir + sum(q * (q.log() - one) for q, one in zip(likely, log_mine, strict=True)) / len(h)
    chosen = order(client, p["alpha"])[: len(h) // 5]
    r, g = h[chosen], received[chosen]
    fgma = torch.zeros(())
    pairs = (spectrum(rows.detach(), p["similar"], p["frequencies"]) for rows in (r, g))
    for u, v in zip(*pairs, strict=True):
        fgma = fgma + ((torch.outer(u, u) @ r - torch.outer(v, v) @ g) ** 2).mean()
    return loss + p["nlir"] * nlir + p["fgma"] * fgma


def test_three_rounds_equal_slow_loops(federation: Make) -> None:
    params = {"nlir": 2.0, "fgma": 3.0, "alpha": 0.8, "slots": 2, "similar": 2, "frequencies": 2, "drawn": 0.7}
    world = federation(SIZES)
    run = start(world, "s2fgl", params, **SGD)
    server, book = run.simulation.server, None
    model = server.initial_model()
    for number in (1, 2, 3):
        draws, uploads, trained, sent = copy.deepcopy(server.generator), run.round(number), [], []
        for k, client in enumerate(world.clients):
            w, received = dict(model), gcn(model, client.feat.to_dense(), looped(client.graph))[0]
            for _ in range(2):
                w = tracked(w)
                w = stepped(w, slow_loss(w, client, received, book, params), 0.05)
            close(uploads["model"], w, k, rtol=1e-4)
            trained.append(w)
            train, label = client.graph.ndata["train_mask"], client.graph.ndata["label"].tolist()
            labelled = [i for i in order(client, 0.8) if train[i]]
            h = gcn(w, client.feat.to_dense(), looped(client.graph))[0]
            sent.append([(h[i], label[i]) for i in labelled[: len(h) // 3]])
        model = {n: sum(k / sum(SIZES) * m[n] for k, m in zip(SIZES, trained, strict=True)) for n in model}
        book = torch.zeros(3, 2, H)
        for slot in range(2):
            chosen = draws.choice(3, 2, replace=False)
            for c in range(3):
                embeddings = [h for k in chosen for h, y in sent[k] if y == c]
                if embeddings:
                    book[c, slot] = sum(embeddings) / len(embeddings)
        (clients,) = run.simulation.client_batches
        run.simulation._deliver(clients)
        torch.testing.assert_close(clients.received["repository"][0], book, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_lowest_frequency_of_equal_rows_is_constant(n: int) -> None:
    """All nodes are neighbours: the lowest eigenvector is constant, the others have sum 0."""
    vectors = frequencies(torch.ones(n, 4), n, 3)
    m = min(3, n // 2)
    assert vectors.shape == (n, 2 * m)
    np.testing.assert_allclose(vectors[:, 0].abs().numpy(), n**-0.5, rtol=1e-4)
    np.testing.assert_allclose(vectors[:, 1:].sum(0).numpy(), 0, atol=1e-5)
