"""FedExP against its algorithm in slow loops."""

from __future__ import annotations

import pytest

from .rounds import PLAIN, Make, close, descend, start

RATE = 0.5


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3])
def test_rounds_equal_slow_loops(federation: Make, epsilon: float) -> None:
    """Three rounds: the step of each one by hand, then the scored mean of the last two models."""
    world = federation((13, 7, 10))
    run = start(world, "fedexp", {"epsilon": epsilon}, **PLAIN, lr=RATE)
    alone = start(world, "local", clients_per_batch=1, **PLAIN)
    nodes = [client.graph.num_nodes() for client in world.clients]
    share = [n / sum(nodes) for n in nodes]
    model = {n: v.clone() for n, v in run.simulation.server.initial_model().items()}
    path, steps = [model], []
    for number in (1, 2, 3):
        run.round(number)
        trained = [descend(clients, model, 2, RATE) for clients in alone.simulation.client_batches]
        spread, length = 0.0, 0.0
        mean = {n: sum(w * one[n] for w, one in zip(share, trained, strict=True)) - v for n, v in model.items()}
        for w, one in zip(share, trained, strict=True):
            spread += w * sum(float((one[n] - v).square().sum()) for n, v in model.items())
        length = sum(float(v.square().sum()) for v in mean.values())
        steps.append(max(1.0, spread / (2 * (length + 3 * epsilon))))
        model = {n: v + steps[-1] * mean[n] for n, v in model.items()}
        path.append(model)
        close(run.simulation.server.state["model"], model)
        scored = run.method.global_model(run.simulation.server)
        close(scored, model if number == 1 else {n: (v + path[-2][n]) / 2 for n, v in model.items()})
