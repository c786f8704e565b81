"""Running a few rounds of a method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES, Params
from fglbench.benchmark.engine.method import Phase, Server, Step
from fglbench.benchmark.engine.payload import Download, Tree, transform
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS

KINDS = ("gcn", "gat", "sage", "gin", "sgc")


class Run:
    """An exchange that hands out what was uploaded."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation, self.method = simulation, simulation.method

    def round(self, number: int) -> Tree:
        """One round of the last phase; the merged uploads of its steps (of the only one, or by number)."""
        kept: list[Tree] = []

        def spy(server: Callable[[Server, Tree], Download]) -> Callable[[Server, Tree], Download]:
            def keep(state: Server, uploads: Tree) -> Download:
                kept.append(transform(uploads, lambda v: [x.clone() for x in v] if isinstance(v, list) else v.clone()))
                return server(state, uploads)

            return keep

        phase = self.method.phases(self.simulation.config)[-1]
        self.simulation.round(Phase(tuple(Step(step.client, spy(step.server)) for step in phase.steps), 1), number)
        return kept[0] if len(kept) == 1 else {str(i): tree for i, tree in enumerate(kept)}

    def holdings(self) -> list[torch.Tensor]:
        """Every client's own parameters as one vector."""
        found = []
        for clients in self.simulation.client_batches:
            for position in range(len(clients)):
                own = clients.network.take(clients.params, [position])
                found.append(torch.cat([value.flatten() for _, value in sorted(own.items())]))
        return found


def begin(
    world: Federation,
    name: str,
    params: dict[str, Any] | None = None,
    *,
    kinds: Sequence[str] = KINDS,
    backbone: dict[str, Any] | None = None,
    clients_per_batch: int | None = None,
    **config: Any,
) -> Run:
    """A run before the first round of its last phase.

    kinds: architectures; backbone: their options; config: training options.
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


@pytest.fixture(scope="session")
def start() -> Callable[..., Run]:
    return begin


@pytest.fixture(scope="session")
def start_graphs() -> Callable[..., Run]:
    """As `start`, for sets of graphs: encoders of two layers of width 4, minibatches of three graphs."""

    def start(world: Federation, name: str, params: dict[str, Any] | None = None, **config: Any) -> Run:
        own: dict[str, Any] = {"kinds": ["gin"], "backbone": {"hidden": 4, "layers": 2}, "batch_size": 3, "lr": 1e-3}
        return begin(world, name, params, **{**own, **config})

    return start


@pytest.fixture(scope="session")
def final(start_graphs: Callable[..., Run]) -> Callable[..., Params]:
    """final(world, method, params, **training): the global model after two rounds on sets of graphs."""

    def train(*args: Any, **config: Any) -> Params:
        run = start_graphs(*args, **config)
        for number in (1, 2):
            run.round(number)
        model: Params = run.simulation.server.state["model"]
        return model

    return train
