"""LG-FedAvg: the shared head and its mean."""

from __future__ import annotations

import torch

from fglbench.benchmark.engine import Facts
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.methods import METHODS

from .rounds import Make, start

H, C = 8, 3


def test_head_is_the_weighted_mean_and_encoders_stay_apart(federation: Make) -> None:
    world = federation((13, 7, 10, 9, 8))
    run = start(world, "lg-fedavg", clients_per_batch=5)
    for number in (1, 2):
        head = run.round(number)["head"]
    nodes = [client.graph.num_nodes() for client in world.clients]
    clients = run.simulation.client_batches[0]
    scored = run.simulation.models().personal[0]
    for name in ("head.weight", "head.bias"):
        mean = sum(n / sum(nodes) * params for n, params in zip(nodes, head[name], strict=True))
        assert not torch.allclose(head[name][0], head[name][1])
        for client in range(5):  # five architectures: each client is the only one of its group
            torch.testing.assert_close(scored[f"{client}:{name}"][0], mean)
    for name, value in clients.params.items():
        if "head." not in name:
            assert torch.equal(value, scored[name])


def test_clients_train_from_the_common_head(federation: Make) -> None:
    run = start(federation((13, 7, 10)), "lg-fedavg", lr=1e-12, weight_decay=0.0)
    head = run.round(1)["head"]
    common = run.simulation.server.initial_model()
    for name in head:
        torch.testing.assert_close(head[name], common[name].expand_as(head[name]))


def test_unequal_widths_are_refused_with_the_sizes(federation: Make) -> None:
    method = METHODS.build("lg-fedavg")
    given = [BACKBONES.build("gcn", {"hidden": 16}), BACKBONES.build("sgc", {"hidden": 32})]
    reason = method.skip(Facts.of(federation()), method.architecture(given))
    assert reason is not None and "16, 32" in reason
    assert method.skip(Facts.of(federation()), method.architecture(given[:1])) is None
