"""FedProx, FedOpt and SCAFFOLD against slow loops from their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.methods import METHODS

from .rounds import Make, close


def server_path(rule: str, deltas: list[float], lr: float) -> list[float]:
    """Algorithm 2 of Reddi et al. for one scalar, in plain Python; no bias correction."""
    theta, m, v, out = 0.0, 0.0, 1e-6, []
    for d in deltas:
        if rule == "momentum":
            m = 0.9 * m + d
        elif rule == "adagrad":
            m, v = d, v + d * d
        else:
            m = 0.9 * m + 0.1 * d
            v = 0.99 * v + 0.01 * d * d if rule == "adam" else v - 0.01 * d * d * np.sign(v - d * d)
        theta += lr * m / (1 if rule == "momentum" else v**0.5 + 1e-3)
        out.append(theta)
    return out


@pytest.mark.parametrize(
    ("name", "params", "rule", "lr"),
    [
        ("fedopt", {"server_optimiser": "adam", "server_lr": 0.1}, "adam", 0.1),
        ("fedopt", {"server_optimiser": "yogi", "server_lr": 0.1}, "yogi", 0.1),
        ("fedopt", {"server_optimiser": "adagrad", "server_lr": 0.1}, "adagrad", 0.1),
        ("fedopt", {"server_lr": 0.5, "server_momentum": 0.9}, "momentum", 0.5),
        ("fedadam", {}, "adam", 0.01),
        ("fedyogi", {}, "yogi", 0.01),
    ],
)
def test_server_rules(name: str, params: dict[str, Any], rule: str, lr: float, federation: Make) -> None:
    method = METHODS.build(name, params)
    config = TrainConfig(rounds=1)
    server = Simulation(method, method.arrange(federation()), [BACKBONES.build("gcn", {"hidden": 4})], config, 0).server
    server.state["model"] = {"x": torch.zeros(1, dtype=torch.float64)}
    deltas, seen = [0.3, -0.2, 0.05, 0.5], []
    for d in deltas:
        client = server.state["model"]["x"] + d
        server.state["model"] = method.aggregate(server, {"x": client.expand(3, 1)})
        seen.append(float(server.state["model"]["x"]))
    np.testing.assert_allclose(seen, server_path(rule, deltas, lr), rtol=1e-6)


def test_proximal_term_and_its_gradient(federation: Make) -> None:
    method = METHODS.build("fedprox", {"mu": 0.7})
    simulation = Simulation(
        method, method.arrange(federation()), [BACKBONES.build("gcn", {"hidden": 4})], TrainConfig(), 0
    )
    clients = simulation.client_batches[0]
    torch.manual_seed(0)
    clients.received = {"model": {n: torch.randn_like(v) for n, v in clients.params.items()}}
    plain = METHODS.build("fedavg")
    for value in clients.params.values():
        value.requires_grad_(True)
    clients.streams = clients.streams.select(range(3))
    state = {k: g.bit_generator.state for k, g in zip(clients.ids, clients.streams("dropout"), strict=True)}
    with_term = method.local_loss(clients)
    for generator, k in zip(clients.streams("dropout"), clients.ids, strict=True):
        generator.bit_generator.state = state[k]  # the same dropout for both losses
    term = with_term - plain.local_loss(clients)
    for k in range(3):
        expected = sum(
            0.35 * (v[k] - clients.received["model"][n][k]).square().sum() for n, v in clients.params.items()
        )
        torch.testing.assert_close(term[k], expected, rtol=1e-4, atol=1e-5)
    grads = torch.autograd.grad(term.sum(), list(clients.params.values()))
    for (n, v), g in zip(clients.params.items(), grads, strict=True):
        torch.testing.assert_close(g, 0.7 * (v.detach() - clients.received["model"][n]), rtol=1e-4, atol=1e-5)


def test_scaffold_against_the_algorithm_written_out(federation: Make) -> None:
    """Three rounds with half of the clients: option II per client, gradients of the engine's loss."""
    world = federation((13, 7, 10, 9))
    method = METHODS.build("scaffold", {"lr": 0.2, "server_lr": 0.8})
    config = method.protocol(TrainConfig(rounds=3, local_epochs=3, weight_decay=0.01, participation=0.5))
    backbone = BACKBONES.build("gcn", {"hidden": 4, "dropout": 0})
    simulation = Simulation(method, method.arrange(world), [backbone], config, 3)
    slow = Simulation(METHODS.build("local"), method.arrange(world), [backbone], config, 3, clients_per_batch=1)
    x = {n: v.clone() for n, v in simulation.server.state["model"].items()}
    c = {n: torch.zeros_like(v) for n, v in x.items()}
    controls = [{n: torch.zeros_like(v) for n, v in x.items()} for _ in range(4)]
    for number in range(1, 4):
        simulation.round(method.phases(config)[0], number)
        moves, changes = [], []
        for k in simulation.server.participants:
            clients = slow.client_batches[k]
            y = {n: v.clone() for n, v in x.items()}
            for _ in range(3):
                leaf = {n: v.unsqueeze(0).clone().requires_grad_(True) for n, v in y.items()}
                loss = clients.cross_entropy(clients.forward(leaf, training=False).logits)
                grads = torch.autograd.grad(loss.sum(), list(leaf.values()))
                for (n, v), g in zip(y.items(), grads, strict=True):
                    y[n] = v - 0.2 * (g[0] + 0.01 * v - controls[k][n] + c[n])
            fresh = {n: controls[k][n] - c[n] + (x[n] - y[n]) / (3 * 0.2) for n in y}
            moves.append({n: y[n] - x[n] for n in y})
            changes.append({n: fresh[n] - controls[k][n] for n in y})
            controls[k] = fresh
        for n in x:
            x[n] = x[n] + 0.8 * sum(m[n] for m in moves) / 2
            c[n] = c[n] + 2 / 4 * sum(d[n] for d in changes) / 2
        close(simulation.server.state["model"], x, rtol=1e-4)
        close(simulation.server.state["control"], c, rtol=1e-4)
