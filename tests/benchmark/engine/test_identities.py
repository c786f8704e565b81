"""Equalities: FedAvg and an independent loop over clients; methods that reduce to one another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl.nn
import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbone import initial
from fglbench.benchmark.engine.backbones import BACKBONES, Params
from fglbench.benchmark.engine.outcome import Outcome
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.benchmark.engine.train import train
from fglbench.datasets.federation import Federation, NodeClient
from fglbench.methods import METHODS

Make = Callable[..., Federation]
SGD = {"optimiser": "sgd", "lr": 0.3, "weight_decay": 1e-3}


def final(
    federation: Federation, method: str, params: dict[str, Any] | None = None, dropout: float = 0.5, **config: Any
) -> Params:
    """The global model after three rounds."""
    built = METHODS.build(method, params)
    settings = built.protocol(TrainConfig(rounds=3, **config))
    backbone = BACKBONES.build("gcn", {"hidden": 8, "dropout": dropout})
    simulation = Simulation(built, built.arrange(federation), [backbone], settings, 5)
    for number in range(1, 4):
        simulation.round(built.phases(settings)[0], number)
    model = built.global_model(simulation.server)
    return model if model is not None else {n: v[0] for n, v in simulation.client_batches[0].params.items()}


def same(a: Params, b: Params) -> None:
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=1e-5, atol=1e-6)


def slow_fedavg(federation: Federation, config: TrainConfig) -> Params:
    """FedAvg as a loop over clients with DGL's modules and torch's optimisers; no dropout, optimisers kept."""
    backbone = BACKBONES.build("gcn", {"hidden": 8, "dropout": 0})
    theta = initial(backbone, 5, federation.num_features, federation.num_classes)
    models, optimisers = [], []
    for _ in federation.clients:
        model = torch.nn.ModuleList([dgl.nn.GraphConv(12, 8, norm="both"), dgl.nn.GraphConv(8, 3, norm="both")])
        models.append(model)
        if config.optimiser == "adam":
            optimisers.append(torch.optim.Adam(model.parameters(), config.lr, weight_decay=config.weight_decay))
        else:
            optimisers.append(
                torch.optim.SGD(
                    model.parameters(), config.lr, weight_decay=config.weight_decay, momentum=config.momentum
                )
            )
    for _ in range(config.rounds):
        states = []
        for client, model, optimiser in zip(federation.clients, models, optimisers, strict=True):
            assert isinstance(client, NodeClient)
            with torch.no_grad():
                for i, conv in enumerate(model):
                    conv.weight.copy_(theta[f"{i}.weight"])
                    conv.bias.copy_(theta[f"{i}.bias"])
            graph, mask = dgl.add_self_loop(client.graph), client.graph.ndata["train_mask"]
            for _ in range(config.local_epochs):
                optimiser.zero_grad()
                logits = model[1](graph, torch.relu(model[0](graph, client.feat.to_dense())))
                F.cross_entropy(logits[mask], client.graph.ndata["label"][mask]).backward()
                optimiser.step()
            states.append({k: v.detach().clone() for k, v in model.state_dict().items()})
        nodes = [c.graph.num_nodes() for c in federation.clients]  # type: ignore[union-attr]
        theta = {k: sum(n / sum(nodes) * s[k] for n, s in zip(nodes, states, strict=True)) for k in states[0]}  # type: ignore[misc]
    return theta


@pytest.mark.parametrize("optimiser", [{"optimiser": "adam"}, {**SGD, "momentum": 0.9}])
def test_fedavg_equals_a_plain_loop_over_clients(optimiser: dict[str, Any], federation: Make) -> None:
    world = federation()
    same(final(world, "fedavg", dropout=0, **optimiser), slow_fedavg(world, TrainConfig(rounds=3, **optimiser)))


def test_fedavg_with_one_uniform_step_descends_the_sum_of_client_losses(federation: Make) -> None:
    world = federation()
    backbone = BACKBONES.build("gcn", {"hidden": 8, "dropout": 0})
    theta = {n: v.requires_grad_(True) for n, v in initial(backbone, 5, 12, 3).items()}
    for _ in range(3):
        total = torch.zeros(())
        for client in world.clients:
            assert isinstance(client, NodeClient)
            graph, mask = dgl.add_self_loop(client.graph), client.graph.ndata["train_mask"]
            conv = dgl.nn.GraphConv(12, 8, norm="both", weight=False, bias=False)
            h = torch.relu(conv(graph, client.feat.to_dense(), weight=theta["0.weight"]) + theta["0.bias"])
            conv = dgl.nn.GraphConv(8, 3, norm="both", weight=False, bias=False)
            logits = conv(graph, h, weight=theta["1.weight"]) + theta["1.bias"]
            total = total + F.cross_entropy(logits[mask], client.graph.ndata["label"][mask]) / len(world.clients)
        grads = torch.autograd.grad(total, list(theta.values()))
        theta = {n: (v - 0.3 * g).detach().requires_grad_(True) for (n, v), g in zip(theta.items(), grads, strict=True)}
    config = {**SGD, "weight_decay": 0.0, "local_epochs": 1, "weighting": "uniform"}
    same(final(world, "fedavg", dropout=0, **config), theta)


def test_fedprox_with_one_epoch_is_fedavg_but_not_with_more(federation: Make) -> None:
    same(final(federation(), "fedprox", {"mu": 5}, local_epochs=1), final(federation(), "fedavg", local_epochs=1))
    far, near = final(federation(), "fedavg", **SGD), final(federation(), "fedprox", {"mu": 2}, **SGD)
    start = initial(BACKBONES.build("gcn", {"hidden": 8}), 5, 12, 3)

    def moved(model: Params) -> float:
        return sum(float((model[n] - start[n]).square().sum()) for n in model)

    assert moved(near) < moved(far)


def test_scaffold_with_one_step_is_fedavg(federation: Make) -> None:
    config = {**SGD, "local_epochs": 1, "weighting": "uniform"}
    same(final(federation(), "scaffold", {"lr": 0.3}, **config), final(federation(), "fedavg", **config))


def test_scaffold_with_more_steps_is_not_fedavg(federation: Make) -> None:
    config = {**SGD, "local_epochs": 4, "weighting": "uniform"}
    a, b = final(federation(), "scaffold", {"lr": 0.3}, **config), final(federation(), "fedavg", **config)
    assert not torch.allclose(a["1.weight"], b["1.weight"], rtol=1e-4)


def test_presets_are_their_method_on_their_architecture(federation: Make) -> None:
    world, config = federation(), TrainConfig(rounds=3)

    def scores(name: str, backbone: str) -> tuple[list[float], int]:
        out: Outcome = train(world, METHODS.build(name), [BACKBONES.build(backbone, {"hidden": 8})], config, 1)
        return out.history["val"], out.upload_bytes

    for preset, method, backbone in (
        ("fedmlp", "fedavg", "mlp"), ("fedprox-mlp", "fedprox", "mlp"), ("scaffold-mlp", "scaffold", "mlp"),
        ("locgcn", "local", "gcn"), ("fedgcn", "fedavg", "gcn"),
    ):  # fmt: skip
        assert scores(preset, "sage") == scores(method, backbone)
