"""FedAux against its formulas in slow loops over dense matrices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.batch import collate
from fglbench.methods.fedaux import smoothed

from .formulas import gcn, looped
from .rounds import Make, close, start, stepped, tracked

GCN: dict[str, Any] = {"kinds": ["gcn"]}


def kernel_mean(h: torch.Tensor, aux: torch.Tensor, sigma: float) -> torch.Tensor:
    """Mean over all pairs of nodes, weighted by the kernel."""
    rows = []
    place = [torch.dot(row, aux) / (row.norm() * aux.norm()) for row in h]
    for s in place:
        weights = [torch.exp(-((s - t) ** 2) / sigma**2) for t in place]
        rows.append(sum(w * row for w, row in zip(weights, h, strict=True)) / sum(weights))
    return torch.stack(rows)


@pytest.mark.parametrize("sigma", [0.25, 0.5, 1.0, 10.0])
def test_smoothed_values_and_gradients_equal_loops_over_pairs(federation: Make, sigma: float) -> None:
    batch = collate(federation((13, 7, 10)).clients)
    source = torch.Generator().manual_seed(3)
    h, aux = torch.randn(30, 5, generator=source), torch.randn(3, 5, generator=source)
    weight = torch.randn(30, 5, generator=source)
    fast, slow = [], []
    for values, make in ((fast, None), (slow, kernel_mean)):
        hidden, vector = h.clone().requires_grad_(True), aux.clone().requires_grad_(True)
        if make is None:
            out = smoothed(hidden, vector, batch, sigma)
        else:
            out = torch.cat([make(part, a, sigma) for part, a in zip(hidden.split(batch.sizes), vector, strict=True)])
        values += [out, *torch.autograd.grad((out * weight).sum(), [hidden, vector])]
    torch.testing.assert_close(fast, slow, rtol=1e-5, atol=1e-5)


def test_a_wide_kernel_takes_the_clients_mean(federation: Make) -> None:
    batch = collate(federation((13, 7, 10)).clients)
    h = torch.randn(30, 5, generator=torch.Generator().manual_seed(3))
    mean = torch.cat([part.mean(0).expand_as(part) for part in batch.per_client(h)])
    torch.testing.assert_close(smoothed(h, torch.ones(3, 5), batch, 1e4), mean)


def test_two_rounds_equal_a_slow_loop_over_clients(federation: Make) -> None:
    """Autograd through the n x n kernel, SGD by hand, the mixture written out."""
    world, lr = federation((13, 7, 10)), 0.2
    plain: dict[str, Any] = {"backbone": {"dropout": 0.0}, "optimiser": "sgd", "weight_decay": 0.0, "local_epochs": 3}
    run = start(world, "fedaux", {"sigma": 0.5, "scale": 7.0}, lr=lr, **plain, **GCN)
    first = run.simulation.server.initial_model()
    received = [first, first, first]
    for number in (1, 2):
        uploads = run.round(number)["model"]
        trained = []
        for k, client in enumerate(world.clients):
            graph, x, a = client.graph, client.feat.to_dense(), looped(client.graph)
            w, train = dict(received[k]), graph.ndata["train_mask"]
            for _ in range(3):
                w = tracked(w)
                h = gcn(w, x, a)[1]
                both = torch.cat([h, kernel_mean(h, w["aux"], 0.5)], 1)
                loss = F.cross_entropy((both @ w["head.weight"] + w["head.bias"])[train], graph.ndata["label"][train])
                w = stepped(w, loss, lr)
            trained.append(w)
            close(uploads, w, k)
        received = []
        for i in range(3):
            near = [torch.exp(7.0 * torch.cosine_similarity(trained[i]["aux"], t["aux"], dim=0)) for t in trained]
            received.append({n: sum(a * t[n] for a, t in zip(near, trained, strict=True)) / sum(near) for n in first})
    for k in range(3):
        close(run.simulation.server.state["personal"], received[k], k)


def test_models_are_mixed_by_similarity_of_vectors(federation: Make) -> None:
    """Vectors with large angles, unlike those of the first rounds."""
    run = start(federation((13, 7, 10)), "fedaux", {"scale": 3.0}, **GCN)
    source = torch.Generator().manual_seed(2)
    first = run.simulation.server.initial_model()
    models = {n: torch.randn(3, *v.shape, generator=source) for n, v in first.items()}
    run.method.server(run.simulation.server, {"model": models})
    aux = models["aux"]
    for i in range(3):
        near = [torch.exp(3 * torch.dot(aux[i], a) / (aux[i].norm() * a.norm())) for a in aux]
        for n, value in models.items():
            expected = sum(w * v for w, v in zip(near, value, strict=True)) / sum(near)
            torch.testing.assert_close(run.simulation.server.state["personal"][n][i], expected, rtol=1e-5, atol=1e-5)


def test_a_linear_head_of_the_backbone_changes_nothing(federation: Make) -> None:
    """FedAux has its own one."""
    runs = [start(federation((6, 7)), "fedaux", backbone={"linear_head": head}, **GCN) for head in (False, True)]
    for run in runs:
        run.round(1)
    torch.testing.assert_close(runs[0].client_vectors(), runs[1].client_vectors(), rtol=0, atol=0)
