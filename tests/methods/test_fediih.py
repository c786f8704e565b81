"""FedIIH against slow loops of its routing, training, statistics and mixture."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F

from .formulas import Model
from .rounds import PLAIN, Make, close, start, stepped, tracked

GCN: dict[str, Any] = {"kinds": ["gcn"]}
SGD = PLAIN | {"lr": 0.2}
SIZES = (13, 7, 10)
H = 8


def unit(v: torch.Tensor) -> torch.Tensor:
    return v / v.norm().clamp(min=1e-12)


def routed(rows: list[list[torch.Tensor]], near: list[list[int]], times: int) -> list[list[torch.Tensor]]:
    """Route rows[node][factor] neighbour by neighbour."""
    x = [[unit(v) for v in node] for node in rows]
    u = x
    for _ in range(times):
        updated = []
        for i in range(len(x)):
            total = list(x[i])
            for j in near[i]:
                likely = torch.stack([x[j][m] @ u[i][m] for m in range(len(total))]).softmax(0)
                total = [t + likely[m] * x[j][m] for m, t in enumerate(total)]
            updated.append([unit(t) for t in total])
        u = updated
    return u


def hidden(w: Model, client: Any, factors: int, layers: int, times: int) -> tuple[list[Any], list[list[int]]]:
    x, near = client.feat.to_dense(), [[] for _ in range(client.graph.num_nodes())]
    for u, v in zip(*(ends.tolist() for ends in client.graph.edges()), strict=True):
        near[v].append(u)
    rows = [[F.leaky_relu(row @ w[f"{m}.weight"] + w[f"{m}.bias"]) for m in range(factors)] for row in x]
    for _ in range(layers):
        rows = [[F.leaky_relu(v) for v in node] for node in routed(rows, near, times)]
    return rows, near


def logits(w: Model, rows: list[Any]) -> torch.Tensor:
    return torch.stack([sum(v @ w[f"head.{m}.weight"] for m, v in enumerate(node)) + w["head.bias"] for node in rows])


def kl(mu: torch.Tensor, var: torch.Tensor, mu0: torch.Tensor, var0: torch.Tensor) -> torch.Tensor:
    normal = torch.distributions.Normal
    return torch.distributions.kl_divergence(normal(mu, var.sqrt()), normal(mu0, var0.sqrt())).sum()


def test_two_rounds_equal_slow_loops(federation: Make) -> None:
    world, factors, layers, times, scale = federation(SIZES), 3, 2, 2, 4.0
    params = {"factors": factors, "convolutions": layers, "routings": times, "scale": scale}
    run = start(world, "fediih", params, **SGD)
    received = [run.simulation.server.initial_model()] * 3
    for number in (1, 2):
        uploads, trained, latent = run.round(number), [], []
        for k, client in enumerate(world.clients):
            w, train = dict(received[k]), client.graph.ndata["train_mask"]
            for _ in range(2):
                w = tracked(w)
                out = logits(w, hidden(w, client, factors, layers, times)[0])[train]
                w = stepped(w, F.cross_entropy(out, client.graph.ndata["label"][train]), 0.2)
            rows, near = hidden(w, client, factors, layers, times)
            for _ in range(2):
                rows = [[F.leaky_relu(v) for v in node] for node in routed(rows, near, times)]
            mean = torch.stack([torch.stack([row[m] for row in rows]).mean(0) for m in range(factors)])
            close(uploads["model"], w, k)
            torch.testing.assert_close(uploads["mean"][k], mean, rtol=1e-5, atol=1e-5)
            trained.append(w)
            latent.append(mean.double())
        received = []
        for i in range(3):
            mixed = {"head.bias": sum(t["head.bias"] for t in trained) / 3}
            for m in range(factors):
                near_to = []
                for j in range(3):
                    (a, b), (va, vb) = (latent[i][m], latent[j][m]), (latent[i][m].exp(), latent[j][m].exp())
                    js = (kl(a, va, (a + b) / 2, (va + vb) / 2) + kl(b, vb, (a + b) / 2, (va + vb) / 2)) / 2
                    near_to.append(float(torch.exp(scale * (1 - js / math.log(2)))))
                for n in (f"{m}.weight", f"{m}.bias", f"head.{m}.weight"):
                    mixed[n] = sum(s * t[n] for s, t in zip(near_to, trained, strict=True)) / sum(near_to)
            received.append(mixed)
    for k in range(3):
        close(run.simulation.server.state["personal"], received[k], k)


def test_factors_are_mixed_separately(federation: Make) -> None:
    """Clients 0 and 1 share factor 0, clients 1 and 2 share factor 1; all other factors are distant."""
    run = start(federation(SIZES), "fediih", {"scale": 50.0}, **GCN)
    source = torch.Generator().manual_seed(2)
    models = {n: torch.randn(3, *v.shape, generator=source) for n, v in run.simulation.server.initial_model().items()}
    means = torch.zeros(3, 2, H)
    means[2, 0], means[0, 1] = 3.0, -3.0
    run.method.server(run.simulation.server, {"model": models, "mean": means})
    personal = run.simulation.server.state["personal"]
    for n, first, second in (
        ("0.weight", (0, 1), (0, 1)),
        ("1.weight", (0,), (1, 2)),
        ("head.0.weight", (0, 1), (0, 1)),
    ):
        torch.testing.assert_close(personal[n][0], models[n][list(first)].mean(0), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(personal[n][1], models[n][list(second)].mean(0), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(personal["head.bias"], models["head.bias"].mean(0).expand(3, -1))


def test_routing_of_one_factor_is_a_normalised_sum(federation: Make) -> None:
    """Any number of routings multiplies unit rows by A + I once."""
    run = start(federation(SIZES), "fediih", {"factors": 1, "routings": 5}, **GCN)
    (clients,) = run.simulation.client_batches
    rows = torch.randn(30, H, generator=torch.Generator().manual_seed(1))
    graph = clients.batch.graph
    a = torch.eye(30)
    u, v = graph.edges()
    a[v, u] = 1
    outputs = clients.network.backbones[0].route(rows, clients.batch)
    torch.testing.assert_close(outputs, F.normalize(a @ F.normalize(rows, dim=1), dim=1), rtol=1e-5, atol=1e-6)
