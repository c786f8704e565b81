"""FedStruct against loops over the whole graph, and its reductions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.batch import collate
from fglbench.benchmark.engine.views import whole_client
from fglbench.datasets.federation import Federation
from fglbench.methods.fedstruct import largest

from .formulas import Model
from .rounds import PLAIN, Make, close, start

SIZES = (13, 7, 10)
SGD = PLAIN | {"lr": 0.2}


def walks(world: Federation, hops: int, powers: str) -> torch.Tensor:
    """P^L of the whole graph with self-loops, or the mean of the powers, entry by entry."""
    n = len(world.whole.label)
    step = torch.eye(n)
    for u, v in zip(*(ends.tolist() for ends in world.whole.graph.edges()), strict=True):
        step[v, u] = 1
    step = step / step.sum(1, keepdim=True)
    matrices = [torch.linalg.matrix_power(step, i + 1) for i in range(hops)]
    return matrices[-1] if powers == "last" else sum(matrices) / hops


def slow_logits(w: Model, s: torch.Tensor, world: Federation, k: int, bar: torch.Tensor) -> torch.Tensor:
    """Nodes of client k: a GCN of two layers on its graph, plus the mixed vectors of all nodes."""
    client = world.clients[k]
    ids, x = client.graph.ndata["global_id"].tolist(), client.feat.to_dense()
    near = [{v} for v in range(len(ids))]
    for u, v in zip(*(ends.tolist() for ends in client.graph.edges()), strict=True):
        near[v].add(u)

    def mixed(rows: Any) -> list[torch.Tensor]:
        return [sum(rows[u] / (len(near[u]) * len(near[v])) ** 0.5 for u in sorted(near[v])) for v in range(len(near))]

    h = [torch.relu(row @ w["0.weight"] + w["0.bias"]) for row in mixed(x)]
    h = [row @ w["1.weight"] + w["1.bias"] for row in mixed(h)]
    score = []
    for row in s:
        centred = (row - row.mean()) / (((row - row.mean()) ** 2).mean() + 1e-5) ** 0.5
        hidden = torch.relu(centred @ w["structure.0.weight"] + w["structure.0.bias"])
        score.append(hidden @ w["structure.1.weight"] + w["structure.1.bias"])
    return torch.stack([h[v] + sum(bar[i, u] * score[u] for u in range(len(s))) for v, i in enumerate(ids)])


@pytest.mark.parametrize(("hops", "powers"), [(1, "last"), (3, "last"), (3, "mean")])
def test_two_rounds_equal_slow_loops(hops: int, powers: str, federation: Make) -> None:
    world, rate = federation(SIZES), 0.1
    params = {"width": 5, "hops": hops, "powers": powers, "keep": 0, "lr_vectors": rate}
    run = start(world, "fedstruct", params, **SGD)
    bar, state = walks(world, hops, powers), run.simulation.server.state
    model, s = run.simulation.server.initial_model(), state["vectors"].detach().clone()
    mean, square = torch.zeros_like(s), torch.zeros_like(s)
    for number in (1, 2):
        uploads, trained, total = run.round(number), [], torch.zeros_like(s)
        for k, client in enumerate(world.clients):
            w, train, gradient = dict(model), client.graph.ndata["train_mask"], torch.zeros_like(s)
            for _ in range(2):
                w = {n: v.detach().requires_grad_(True) for n, v in w.items()}
                vectors = s.clone().requires_grad_(True)
                logits = slow_logits(w, vectors, world, k, bar)[train]
                loss = F.cross_entropy(logits, client.graph.ndata["label"][train])
                *grads, of_vectors = torch.autograd.grad(loss, [*w.values(), vectors])
                gradient += of_vectors / 2
                w = {n: v.detach() - 0.2 * g for (n, v), g in zip(w.items(), grads, strict=True)}
            trained.append(w)
            total += SIZES[k] / sum(SIZES) * gradient
            reached = bar[client.graph.ndata["global_id"]].sum(0) > 0
            torch.testing.assert_close(uploads["gradient_of_vectors"][k], gradient[reached], rtol=1e-5, atol=1e-5)
            close(uploads["model"], w, k)
        model = {n: sum(k / sum(SIZES) * m[n] for k, m in zip(SIZES, trained, strict=True)) for n in model}
        mean, square = 0.9 * mean + 0.1 * total, 0.999 * square + 0.001 * total**2
        s = s - rate * (mean / (1 - 0.9**number)) / ((square / (1 - 0.999**number)).sqrt() + 1e-8)
        certain = total.abs() > 1e-6  # Adam turns rounding of gradients near 0 into whole steps
        torch.testing.assert_close(state["vectors"][certain], s[certain], rtol=1e-4, atol=1e-4)
        s = state["vectors"].detach().clone()


def test_equal_vectors_add_a_constant_to_fedavg(federation: Make) -> None:
    """Layer norm maps equal entries to zeros, so all nodes get the same class scores."""
    run = start(federation(SIZES), "fedstruct", **SGD)
    (clients,), shown = run.simulation.client_batches, run.method.global_model(run.simulation.server)
    flat = {n: v.expand(3, *v.shape) for n, v in (shown | {"vectors": torch.ones_like(shown["vectors"])}).items()}
    gnn = clients.forward(flat, training=False).logits
    more = run.method.predict_own(flat, clients) - gnn
    torch.testing.assert_close(more, more[:1].expand_as(more), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("keep", [0, 4])
def test_without_a_graph_in_the_model_clients_predict_as_on_the_whole_graph(keep: int, federation: Make) -> None:
    """Exchanged rows equal those of the whole graph."""
    world = federation(SIZES)
    run = start(world, "fedstruct", {"hops": 3, "keep": keep}, **{**SGD, "kinds": ["mlp"]})
    run.round(1)
    (clients,), shown = run.simulation.client_batches, run.simulation.models()
    on_own = run.method.predict_own(shown.expanded(3), clients)
    on_whole = run.method.predict(shown.expanded(1), clients.network.select([0]), (collate([whole_client(world)]),))
    ids = torch.cat([client.graph.ndata["global_id"] for client in world.clients])
    torch.testing.assert_close(on_own, on_whole[ids], rtol=1e-4, atol=1e-5)


def test_the_largest_entries_of_rows() -> None:
    """Against sorting each row, equal entries included."""
    dense = np.random.default_rng(0).integers(0, 5, (20, 9)).astype(np.float32)
    entries = largest(sp.csr_matrix(dense), 3).toarray()
    for row, kept_row in zip(dense, entries, strict=True):
        kept = sorted(range(9), key=lambda j: (-row[j], j))[:3]
        assert kept_row.tolist() == [row[j] if j in kept else 0 for j in range(9)]
    assert (largest(sp.csr_matrix(dense), 0).toarray() == dense).all()
