"""FedLUAR: uploads without recycled layers, the server's rule by hand, and its draw of layers."""

from __future__ import annotations

import pytest
import torch

from .rounds import PLAIN, Make, close, descend, start

RATE = 0.05
DEEP = PLAIN | {"backbone": {"dropout": 0.0, "layers": 4}}


def test_rounds_equal_slow_loops(federation: Make) -> None:
    """Five rounds: the client half by SGD by hand, the server's layers by the last update or by the mean."""
    world = federation((13, 7, 10))
    run = start(world, "fedluar", {"recycled": 2}, **DEEP, lr=RATE)
    alone = start(world, "local", clients_per_batch=1, **DEEP)
    nodes = [client.graph.num_nodes() for client in world.clients]
    model = {n: v.clone() for n, v in run.simulation.server.initial_model().items()}
    matrices = [n for n, v in model.items() if v.dim() == 2]
    update: dict[str, torch.Tensor] = {}
    score: dict[str, float] = {}
    for number in range(1, 6):
        sent = run.round(number)["model"]
        left_out = set(model) - set(sent)
        assert left_out <= set(matrices) and len(left_out) == (0 if number == 1 else 2)
        trained = [descend(clients, model, 2, RATE) for clients in alone.simulation.client_batches]
        for k, one in enumerate(trained):
            close(sent, {n: one[n] for n in sent}, k)
        after = {}
        for n, v in model.items():
            if n not in left_out:
                update[n] = sum(w / sum(nodes) * one[n] for w, one in zip(nodes, trained, strict=True)) - v
                if n in matrices:
                    score[n] = float(update[n].norm() / (v.norm() + 1e-6))
            after[n] = v + update[n]
        model = after
        close(run.simulation.server.state["model"], model)
        assert run.simulation.server.state["score"] == pytest.approx(score, rel=1e-4)


def test_layers_are_drawn_by_their_inverse_scores(federation: Make) -> None:
    run = start(federation((13, 7)), "fedluar", {"recycled": 1}, kinds=["gcn"])
    draws = [run.method.draw(run.simulation.server, [0.1, 0.2, 0.4]) for _ in range(3000)]
    count = torch.bincount(torch.tensor(draws).flatten(), minlength=3) / 3000
    torch.testing.assert_close(count, torch.tensor([4.0, 2.0, 1.0]) / 7, atol=0.03, rtol=0)


def test_one_layer_is_always_uploaded(federation: Make) -> None:
    run = start(federation((13, 7)), "fedluar", {"recycled": 9}, kinds=["gcn"])
    assert len(run.method.draw(run.simulation.server, [0.1, 0.2, 0.0])) == 2
    assert run.method.draw(run.simulation.server, [0.1]) == []
