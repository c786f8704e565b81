"""Run a few rounds of a method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES, Params
from fglbench.benchmark.engine.method import Phase, Server, Step
from fglbench.benchmark.engine.payload import Download, Tree, transform
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS

Make = Callable[..., Federation]  # the type of fixtures that build federations
Penalty = Callable[[Params], torch.Tensor]
PLAIN: dict[str, Any] = {"kinds": ["gcn"], "backbone": {"dropout": 0.0}, "optimiser": "sgd", "weight_decay": 0.0}
KINDS = ("gcn", "gat", "sage", "gin", "sgc")


class Run:
    """A simulation that returns the uploads of a round."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.method = simulation, simulation.method

    def round(self, number: int) -> Tree:
        """Run one round of the last phase and return the uploads of its step, or of all steps by number."""
        kept: list[Tree] = []

        def spy(server: Callable[[Server, Tree], Download]) -> Callable[[Server, Tree], Download]:
            def keep(state: Server, uploads: Tree) -> Download:
                kept.append(transform(uploads, lambda v: [x.clone() for x in v] if isinstance(v, list) else v.clone()))
                return server(state, uploads)

            return keep

        phase = self.method.phases(self.simulation.config)[-1]
        self.simulation.round(Phase(tuple(Step(step.client, spy(step.server)) for step in phase.steps), 1), number)
        return kept[0] if len(kept) == 1 else {str(i): tree for i, tree in enumerate(kept)}

    def client_vectors(self) -> list[torch.Tensor]:
        """The parameters of each client as one vector."""
        vectors = []
        for clients in self.simulation.client_batches:
            for position in range(len(clients)):
                params = clients.network.take(clients.params, [position])
                vectors.append(torch.cat([value.flatten() for _, value in sorted(params.items())]))
        return vectors


def start(
    world: Federation,
    name: str,
    params: dict[str, Any] | None = None,
    *,
    kinds: Sequence[str] = KINDS,
    backbone: dict[str, Any] | None = None,
    clients_per_batch: int | None = None,
    **config: Any,
) -> Run:
    """Start a run and stop before the first round of its last phase.

    kinds: architectures. backbone: their options. config: training options.
    """
    method = METHODS.build(name, params)
    settings = method.protocol(TrainConfig(**{"rounds": 9, "local_epochs": 2, **config}))
    chosen = kinds if method.heterogeneous else kinds[:1]
    models = method.architecture([BACKBONES.build(kind, {"hidden": 8, **(backbone or {})}) for kind in chosen])
    simulation = Simulation(method, method.arrange(world), models, settings, 5, clients_per_batch)
    for phase in method.phases(settings)[:-1]:
        for number in range(1, phase.length(simulation.server) + 1):
            simulation.round(phase, number)
    return Run(simulation)


def start_graphs(world: Federation, name: str, params: dict[str, Any] | None = None, **config: Any) -> Run:
    """As `start`, for graph sets: encoders of two layers of width 4, minibatches of three graphs."""
    defaults: dict[str, Any] = {"kinds": ["gin"], "backbone": {"hidden": 4, "layers": 2}, "batch_size": 3, "lr": 1e-3}
    return start(world, name, params, **{**defaults, **config})


def final(world: Federation, name: str, params: dict[str, Any] | None = None, **config: Any) -> Params:
    """The global model after two rounds on graph sets."""
    run = start_graphs(world, name, params, **config)
    for number in (1, 2):
        run.round(number)
    model: Params = run.simulation.server.state["model"]
    return model


def descend(clients: Any, model: Params, steps: int, rate: float, penalty: Penalty | None = None) -> Params:
    """A model after steps of plain SGD on the loss of one client. penalty: added to the loss, of the model."""
    for _ in range(steps):
        leaf = {n: v.clone().requires_grad_(True) for n, v in model.items()}
        logits = clients.forward({n: v.unsqueeze(0) for n, v in leaf.items()}, training=False).logits
        loss = clients.loss(logits).sum() + (penalty(leaf) if penalty else 0)
        grads = torch.autograd.grad(loss, list(leaf.values()))
        model = {n: v - rate * g for (n, v), g in zip(model.items(), grads, strict=True)}
    return model


def close(actual: Params, expected: Params) -> None:
    """Assert that models are equal to 1e-5."""
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-5, atol=1e-5)
