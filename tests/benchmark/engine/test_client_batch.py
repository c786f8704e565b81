"""The same numbers for any size of client batch; stacked optimisers against torch.optim, one instance per client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbone import Network
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.optim import StackedOptimiser
from fglbench.benchmark.engine.payload import Own
from fglbench.benchmark.engine.rng import Streams, stream
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.benchmark.engine.train import train
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS
from fglbench.registry import UserError

Make = Callable[..., Federation]
CONFIGS: dict[str, dict[str, Any]] = {
    "adam kept": {"optimiser": "adam"},
    "adam anew": {"optimiser": "adam", "keep_optimiser": False},
    "sgd momentum": {"optimiser": "sgd", "lr": 0.1, "momentum": 0.9},
    "clipped": {"optimiser": "sgd", "lr": 1.0, "grad_clip": 0.05},
    "partial": {"optimiser": "adam", "participation": 0.5},
}


def trained_params(
    federation: Federation, method: str, backbones: list[str], clients_per_batch: int, **config: Any
) -> list[torch.Tensor]:
    """All parameters of the clients after three rounds, client by client."""
    built = METHODS.build(method)
    settings = built.protocol(TrainConfig(**{"rounds": 3, "local_epochs": 2, **config}))
    models = [
        BACKBONES.build(name, {"hidden": 8} | ({} if name == "gin" else {"input_dropout": 0.2})) for name in backbones
    ]
    simulation = Simulation(built, built.arrange(federation), models, settings, 5, clients_per_batch)
    for number in range(1, 4):
        simulation.round(built.phases(settings)[0], number)
    personal = []
    for clients in simulation.client_batches:
        for position in range(len(clients)):
            params = clients.network.take(clients.params, [position])
            personal.append(torch.cat([value.flatten() for _, value in sorted(params.items())]))
    return personal


@pytest.mark.parametrize(
    ("backbone", "config"),
    [
        *(("gcn", config) for config in CONFIGS),
        *((name, "partial") for name in BACKBONES.names() if name not in ("gcn", "gine")),
    ],
)
def test_numbers_do_not_depend_on_the_client_batch_size(backbone: str, config: str, federation: Make) -> None:
    world = federation((13, 7, 10, 9), without_train=(3,))
    whole = trained_params(world, "fedavg", [backbone], 4, **CONFIGS[config])
    for size in (1, 3):
        torch.testing.assert_close(
            trained_params(world, "fedavg", [backbone], size, **CONFIGS[config]), whole, rtol=1e-5, atol=1e-6
        )


MIXED: dict[str, dict[str, Any]] = {
    "clipped": {"optimiser": "sgd", "lr": 1.0, "grad_clip": 0.05},
    "straggle": {"optimiser": "adam", "lr": 0.05, "local_epochs": 3, "straggle": 0.9},
    "partial": {"optimiser": "adam", "participation": 0.5},
}


@pytest.mark.parametrize("method", ["local", "fedproto", "fml"])
@pytest.mark.parametrize("config", MIXED)
def test_mixed_architectures_do_not_depend_on_the_client_batch_size(method: str, config: str, federation: Make) -> None:
    """One client has one architecture, so in a client batch of one each value has one row."""
    world = federation((13, 7, 10, 9, 8), without_train=(3,))
    whole = trained_params(world, method, ["gcn", "gat"], 5, **MIXED[config])
    alone = trained_params(world, method, ["gcn", "gat"], 1, **MIXED[config])
    torch.testing.assert_close(alone, whole, rtol=1e-5, atol=1e-6)


def test_mixed_architectures_on_sets_of_graphs_do_not_depend_on_the_client_batch_size(labelled_sets: Make) -> None:
    world = labelled_sets((14, 6, 9, 8))  # different numbers of minibatches
    config = {"batch_size": 3, "optimiser": "adam", "lr": 0.05}
    whole = trained_params(world, "local", ["gin", "gcn"], 4, **config)
    torch.testing.assert_close(trained_params(world, "local", ["gin", "gcn"], 1, **config), whole, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("wrong", "got"), [(torch.Tensor.mean, "Tensor of shape ()"), (id, "int")])
def test_a_loss_that_is_not_one_per_client_is_refused(wrong: Any, got: str, federation: Make) -> None:
    class Wrong(METHODS.cls("fedavg")):
        def local_loss(self, clients: Any) -> Any:
            return wrong(super().local_loss(clients))

    models, message = [BACKBONES.build("gcn", {"hidden": 8})], "return one loss per client, a tensor of shape (3,)"
    with pytest.raises(UserError) as caught:
        train(federation(), Wrong(), models, TrainConfig(rounds=1), 0)
    assert f"Wrong.local_loss returns {got}: {message}" in str(caught.value)


def test_dropout_draws_depend_on_the_client_only() -> None:
    alone = Streams(3, [1], {}).keep("dropout", [40_001], 0.3)
    among = Streams(3, [0, 1, 2], {}).keep("dropout", [17, 40_001, 5], 0.3)
    assert torch.equal(alone, among[17:-5])
    assert abs(alone.float().mean().item() - 0.7) < 4 * (0.21 / 40_001) ** 0.5  # four standard errors
    other = Streams(3, [2], {}).keep("dropout", [40_001], 0.3)
    agreement = (alone == other).float().mean().item()  # independent: 0.7^2 + 0.3^2
    assert abs(agreement - 0.58) < 4 * (0.58 * 0.42 / 40_001) ** 0.5


def test_streams_differ_by_seed_purpose_and_client() -> None:
    draws = {
        tuple(stream(seed, purpose, client).integers(0, 2**31, 4))
        for seed in (0, 1)
        for purpose in ("dropout", "server")
        for client in (None, 0, 1)
    }
    assert len(draws) == 12


def test_participation_draws_the_share_of_clients(federation: Make) -> None:
    world = federation((6, 6, 6, 6, 6))
    method, config = METHODS.build("fedavg"), TrainConfig(rounds=1, participation=0.4)
    simulation = Simulation(method, method.arrange(world), [BACKBONES.build("gcn", {"hidden": 4})], config, 0)
    seen = set()
    for number in range(1, 21):
        simulation.round(method.phases(config)[0], number)
        assert len(simulation.server.participants) == 2
        seen |= set(simulation.server.participants)
    assert seen == {0, 1, 2, 3, 4}
    model = sum(v.numel() for v in simulation.server.state["model"].values())
    assert sum(simulation.upload_bytes) == sum(simulation.download_bytes) == 20 * 2 * 4 * model
    assert np.ptp(simulation.upload_bytes) > 0


CASES: list[dict[str, Any]] = [
    {"optimiser": "adam", "lr": 0.02, "weight_decay": 0.1},
    {"optimiser": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
    {"optimiser": "sgd", "lr": 0.1},
    {"optimiser": "adam", "grad_clip": 1.0},  # some gradients are longer,
]


# Shapes of a stack, (name, row) of each client's parameters, the clients of each step, the steps in the end, and if the
# clients have several architectures: four have 0, 1, 0, 1, and all have the parameter c.
LAYOUTS: dict[str, tuple[Any, ...]] = {
    "one": (
        {"a": (3, 4, 2), "b": (3, 5)}, [[("a", k), ("b", k)] for k in range(3)],
        [None, [0, 2], None, [1], [0, 1], None], [[5, 5, 4], [5, 5, 4]], False,
    ),
    "several": (
        {Own(0, "a"): (2, 4, 2), Own(1, "b"): (2, 5), "c": (4, 3)},
        [[(Own(k % 2, "ab"[k % 2]), k // 2), ("c", k)] for k in range(4)],
        [None, [0, 3], None, [1], [2, 3], [1, 3], None], [[4, 4], [5, 6], [4, 5, 4, 6]], True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_stacked_optimiser_equals_one_optimiser_per_client(layout: str, case: dict[str, Any]) -> None:
    """Also if only some clients take a step."""
    torch.manual_seed(0)
    shapes, places, sequence, steps, mixed = LAYOUTS[layout]
    config, clients = TrainConfig(**case), range(len(places))
    stack = {name: torch.randn(shape) for name, shape in shapes.items()}
    singles = [[torch.nn.Parameter(stack[name][row].clone()) for name, row in each] for each in places]
    kind = torch.optim.Adam if config.optimiser == "adam" else torch.optim.SGD
    extra = {} if config.optimiser == "adam" else {"momentum": config.momentum}
    references = [kind(each, config.lr, weight_decay=config.weight_decay, **extra) for each in singles]
    network = Network([BACKBONES.build("gcn"), BACKBONES.build("gat")], clients)
    optimiser = StackedOptimiser(config, **({"clients": clients, "network": network} if mixed else {}))
    for active in sequence:
        grads = {name: 0.3 * torch.randn_like(value) for name, value in stack.items()}
        optimiser.step(stack, grads, active)
        for k in clients if active is None else active:
            for (name, row), parameter in zip(places[k], singles[k], strict=True):
                parameter.grad = grads[name][row].clone()
            if config.grad_clip is not None:
                torch.nn.utils.clip_grad_norm_(singles[k], config.grad_clip)
            references[k].step()
    for k in clients:
        for (name, row), parameter in zip(places[k], singles[k], strict=True):
            torch.testing.assert_close(stack[name][row], parameter.detach())
    assert [counts.tolist() for counts in optimiser.steps.values()] == steps


@pytest.mark.parametrize("case", CASES)
def test_a_gradient_may_be_a_view_of_any_strides(case: dict[str, Any]) -> None:
    torch.manual_seed(1)
    config, start = TrainConfig(**case), torch.randn(3, 4, 2)
    views = [torch.randn(3, 9, 2)[:, 2:6], torch.randn(3, 2, 4).transpose(1, 2), torch.randn(3, 1, 1).expand(3, 4, 2)]
    assert not any(view.is_contiguous() for view in views)
    strided, dense = {"w": start.clone()}, {"w": start.clone()}
    strided_optimiser, dense_optimiser = StackedOptimiser(config), StackedOptimiser(config)
    for view in views:
        strided_optimiser.step(strided, {"w": view})
        dense_optimiser.step(dense, {"w": torch.tensor(view.tolist())})
        torch.testing.assert_close(strided["w"], dense["w"], rtol=0, atol=0)


def test_reset_removes_the_state_of_the_optimiser() -> None:
    config = TrainConfig(optimiser="adam")
    params, grads = {"a": torch.zeros(1, 3)}, {"a": torch.ones(1, 3)}
    optimiser = StackedOptimiser(config)
    optimiser.step(params, grads)
    optimiser.reset()
    params["a"].zero_()
    optimiser.step(params, grads)
    torch.testing.assert_close(params["a"], torch.full((1, 3), -config.lr))  # Adam's first step is the rate
