"""Prototypes: what clients make, what pulls their embeddings, and nearest-prototype prediction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.batch import collate
from fglbench.datasets.federation import Federation
from fglbench.methods.parts.prototypes import FAR, class_means, nearest

Make = Callable[..., Federation]


def members(batch: Any, client: int, label: int) -> list[int]:
    """Training rows of a class at a client, one by one."""
    first, last = batch.offsets[client], batch.offsets[client + 1]
    return [i for i in range(first, last) if batch.masks["train"][i] and batch.label[i] == label]


def test_class_means(federation: Make) -> None:
    batch = collate(federation().clients)
    r = torch.randn(sum(batch.sizes), 4, generator=torch.Generator().manual_seed(0))
    means, counts = class_means(r, batch, 3)
    for k in range(3):
        for j in range(3):
            rows = members(batch, k, j)
            assert counts[k, j] == len(rows)
            expected = sum(r[i] for i in rows) / len(rows) if rows else torch.zeros(4)
            torch.testing.assert_close(means[k, j], expected)
    assert (counts == 0).any() and (counts > 1).any()


@pytest.mark.parametrize("squared", ["mean", "sum"])
def test_loss_and_gradient(squared: str, federation: Make, start: Callable[..., Any]) -> None:
    """CE + lambda mean_i |r_i - c^(y_i)|^2, the pull left out for a class without a prototype."""
    world = federation((13, 7, 10, 9, 8))
    run = start(world, "fedproto", {"lam": 0.7, "squared": squared}, backbone={"dropout": 0})
    cohort = run.simulation.client_batches[0]
    table = torch.randn(3, 8, generator=torch.Generator().manual_seed(1))
    table[1] = torch.nan
    cohort.received = {"prototypes": table.expand(5, 3, 8)}
    for value in cohort.params.values():
        value.requires_grad_(True)
    out, batch = cohort.forward(), cohort.batch
    slow = []
    for k in range(5):
        rows = [i for j in range(3) for i in members(batch, k, j)]
        ce = sum(-F.log_softmax(out.logits[i], 0)[batch.label[i]] for i in rows) / len(rows)
        pulls = torch.zeros(())
        for i in rows:
            if batch.label[i] != 1:
                apart = sum((out.embedding[i, a] - table[batch.label[i], a]) ** 2 for a in range(8))
                pulls = pulls + apart / (8 if squared == "mean" else 1)
        slow.append(ce + 0.7 * pulls / len(rows))
    mine = run.method.local_loss(cohort)
    torch.testing.assert_close(mine, torch.stack(slow))
    names = sorted(cohort.params)
    found = torch.autograd.grad(mine.sum(), [cohort.params[n] for n in names], retain_graph=True)
    expected = torch.autograd.grad(torch.stack(slow).sum(), [cohort.params[n] for n in names])
    torch.testing.assert_close(found, expected)


def test_nearest_prototype() -> None:
    r = torch.tensor([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]])
    tables = torch.tensor([[[0.0, 1.0], [torch.nan, torch.nan]], [[1.0, 1.0], [4.0, 5.0]]])
    scores = nearest(r, [2, 1], tables)
    torch.testing.assert_close(scores, torch.tensor([[-1.0, -FAR], [-(18**0.5), -FAR], [0.0, -5.0]]))
    assert torch.isfinite(scores.sum())
