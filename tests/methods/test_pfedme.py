"""pFedMe against Algorithm 1 in slow loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from fglbench.benchmark.engine.backbones import Params

from .rounds import PLAIN, Make, close, descend, start

RATE = 0.05


def test_without_a_rate_the_global_model_stays(federation: Make) -> None:
    run = start(federation((13, 7, 10)), "pfedme", {"eta": 0.0}, kinds=["gcn"])
    first = {name: value.clone() for name, value in run.simulation.server.state["model"].items()}
    for number in (1, 2):
        run.round(number)
    close(run.simulation.server.state["model"], first, rtol=0, atol=1e-6)


@pytest.mark.parametrize("inner", [1, 2, 5])
def test_rounds_equal_slow_loops(federation: Make, inner: int) -> None:
    """Two rounds of three steps per client: regularisation and SGD by hand, w after each local round."""
    world, lam, eta, beta = federation((13, 7, 10)), 2.0, 0.3, 1.5
    params = {"lam": lam, "eta": eta, "inner": inner, "beta": beta}
    run = start(world, "pfedme", params, **PLAIN, lr=RATE, local_epochs=3)
    alone = start(world, "local", clients_per_batch=1, **PLAIN)
    w = {n: v.clone() for n, v in run.simulation.server.initial_model().items()}
    nodes = [client.graph.num_nodes() for client in world.clients]
    thetas: list[Params] = []

    def penalty(start: Params, model: Params) -> torch.Tensor:
        return lam / 2 * sum(((v - start[n]) ** 2).sum() for n, v in model.items())

    for number in (1, 2):
        uploads, followed, thetas = run.round(number)["model"], [], []
        for k, clients in enumerate(alone.simulation.client_batches):
            theta, local, left = dict(w), dict(w), 3
            while left:
                theta = descend(clients, theta, min(inner, left), RATE, partial(penalty, local))
                left -= min(inner, left)
                local = {n: v - eta * lam * (v - theta[n]) for n, v in local.items()}
            followed.append(local)
            thetas.append(theta)
            close(uploads, local, k)
        mean = {n: sum(s / sum(nodes) * one[n] for s, one in zip(nodes, followed, strict=True)) for n in w}
        w = {n: (1 - beta) * v + beta * mean[n] for n, v in w.items()}
    close(run.simulation.server.state["model"], w)
    (scored,) = run.simulation.personal_models()
    for k in range(3):
        close(scored, thetas[k], k)


def test_a_straggler_does_fewer_local_rounds(federation: Make) -> None:
    """A client that trains one of three epochs uploads as in rounds of one epoch; the other uploads do not change."""
    world, params = federation((13, 7, 10)), {"lam": 2.0, "eta": 0.3, "inner": 1}
    one, full = (start(world, "pfedme", params, **PLAIN, local_epochs=epochs) for epochs in (1, 3))
    late = start(world, "pfedme", params, **PLAIN, local_epochs=3)
    step = late.method.client

    def hurried(clients: Any) -> Any:
        clients.epochs = (3, 1, 3)
        try:
            return step(clients)
        finally:
            clients.epochs = None

    object.__setattr__(late.method, "client", hurried)
    few, all_of_them, mixed = (run.round(1)["model"] for run in (one, full, late))
    for k, same in enumerate((all_of_them, few, all_of_them)):
        close(mixed, {n: v[k] for n, v in same.items()}, k, atol=1e-6)
