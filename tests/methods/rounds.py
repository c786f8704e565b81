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


def tracked(model: Params) -> Params:
    """A copy with gradients."""
    return {n: v.detach().clone().requires_grad_(True) for n, v in model.items()}


def stepped(model: Params, loss: torch.Tensor, rate: float) -> Params:
    """A `tracked` model after a step of plain SGD on a loss."""
    grads = torch.autograd.grad(loss, list(model.values()))
    return {n: v.detach() - rate * g for (n, v), g in zip(model.items(), grads, strict=True)}


def descend(clients: Any, model: Params, steps: int, rate: float, penalty: Penalty | None = None) -> Params:
    """A model after steps of plain SGD on the loss of one client. penalty: added to the loss, of the model."""
    for _ in range(steps):
        model = tracked(model)
        logits = clients.forward({n: v.unsqueeze(0) for n, v in model.items()}, training=False).logits
        model = stepped(model, clients.loss(logits).sum() + (penalty(model) if penalty else 0), rate)
    return model


def close(actual: Params, expected: Params, k: int | None = None, rtol: float = 1e-5, atol: float = 1e-5) -> None:
    """Assert that models have the same names and almost the same values. k: the client, if `actual` is a stack."""
    mine = actual if k is None else {n: v[k] for n, v in actual.items()}
    torch.testing.assert_close(mine, expected, rtol=rtol, atol=atol)
