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
from fglbench.datasets.federation import Federation
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
        nodes = [c.graph.num_nodes() for c in federation.clients]
        theta = {k: sum(n / sum(nodes) * s[k] for n, s in zip(nodes, states, strict=True)) for k in states[0]}
    return theta


@pytest.mark.parametrize("optimiser", [{"optimiser": "adam"}, {**SGD, "momentum": 0.9}])
def test_fedavg_equals_a_plain_loop_over_clients(optimiser: dict[str, Any], federation: Make) -> None:
    world = federation()
    same(final(world, "fedavg", dropout=0, **optimiser), slow_fedavg(world, TrainConfig(rounds=3, **optimiser)))


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
