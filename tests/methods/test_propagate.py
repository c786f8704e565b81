"""Label propagation against dense matrices built edge by edge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fglbench.benchmark.engine.batch import collate
from fglbench.benchmark.engine.segment_ops import SparseMatrix
from fglbench.datasets.federation import Federation, NodeClient
from fglbench.methods.fedgta import propagate_labels

Make = Callable[..., Federation]


def dense(client: NodeClient) -> torch.Tensor:
    """D^-1/2 (A + I) D^-1/2 of one client, float64."""
    n = client.graph.num_nodes()
    a = torch.eye(n, dtype=torch.float64)
    for u, v in zip(*(ends.tolist() for ends in client.graph.edges()), strict=True):
        a[v, u] += 1
    d = a.sum(1)
    return torch.stack([torch.stack([a[i, j] / (d[i] * d[j]).sqrt() for j in range(n)]) for i in range(n)])


@pytest.mark.parametrize(("steps", "kappa"), [(1, 0.5), (5, 0.3), (4, 1.0)])
def test_every_client_propagates_on_its_own_graph(steps: int, kappa: float, federation: Make) -> None:
    world = federation((13, 7, 10))
    batch = collate(world.clients)
    start = torch.rand(30, 3, generator=torch.Generator().manual_seed(1), requires_grad=True)
    found = propagate_labels(batch, start, steps, kappa)
    weight = torch.arange(90.0).view(30, 3)
    (grad,) = torch.autograd.grad((found * weight).sum(), start)
    row = 0
    for client in world.clients:
        a, here = dense(client), slice(row, row + client.graph.num_nodes())
        own = start.detach()[here].double().requires_grad_(True)
        y = own
        for _ in range(steps):
            y = kappa * a @ y + (1 - kappa) * own
        torch.testing.assert_close(found[here], y.float())
        (expected,) = torch.autograd.grad((y * weight[here]).sum(), own)
        torch.testing.assert_close(grad[here], expected.float())
        row = here.stop


def test_without_steps_or_neighbours_the_start_stays(federation: Make) -> None:
    batch, start = collate(federation().clients), torch.rand(30, 3)
    assert propagate_labels(batch, start, 0, 0.5) is start
    assert torch.equal(propagate_labels(batch, start, 3, 0.0), start)


def test_a_batch_with_its_own_operator_propagates_with_it(federation: Make) -> None:
    batch = collate(federation().clients)
    cycle = SparseMatrix(sp.csr_matrix((np.ones(30, np.float32), (np.arange(30), np.roll(np.arange(30), 1)))))
    start = torch.rand(30, 3)
    torch.testing.assert_close(propagate_labels(replace(batch, propagation=cycle), start, 2, 1.0), start.roll(2, 0))
