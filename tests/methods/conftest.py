"""Running a few rounds of a method, and what every method must hold: any size of client batch, and locality."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES, Params
from fglbench.benchmark.engine.batch import collate
from fglbench.benchmark.engine.client_batch import ClientBatch
from fglbench.benchmark.engine.method import Phase, Server, Step
from fglbench.benchmark.engine.payload import Download, Tree, leaves, transform
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.datasets.federation import Federation, NodeClient
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
        for cohort in self.simulation.client_batches:
            for position in range(len(cohort)):
                own = cohort.network.take(cohort.params, [position])
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


@pytest.fixture(scope="session")
def any_batch_size(federation: Callable[..., Federation]) -> Callable[..., None]:
    """any_batch_size(method, params, **options of start): the same uploads and models in client batches of any size."""

    def check(name: str, params: dict[str, Any] | None = None, **options: Any) -> None:
        world = federation((13, 7, 10, 9, 8, 11), without_train=(3,))
        whole, *parts = (begin(world, name, params, clients_per_batch=size, **options) for size in (6, 1, 4))
        for number in (1, 2, 3):
            expected = list(leaves(whole.round(number)))
            for part in parts:
                torch.testing.assert_close(list(leaves(part.round(number))), expected, rtol=1e-5, atol=1e-6)
        for part in parts:
            torch.testing.assert_close(part.holdings(), whole.holdings(), rtol=1e-5, atol=1e-6)

    return check


def see(cohort: ClientBatch, clients: Sequence[NodeClient]) -> None:
    """Replace the data of a client batch."""
    cohort.batch = collate(clients)
    groups = [collate([clients[p] for p in group.positions]) for group in cohort.network.groups]
    cohort.data = tuple(groups) if cohort.network.heterogeneous else (cohort.batch,)


@pytest.fixture(scope="session")
def local_only(federation: Callable[..., Federation]) -> Callable[..., None]:
    """local_only(method, params, **options of start): what is private to a client shows in no other client's upload.

    After a common first round, client 1 gets other features and labels; only its own upload of round 2 changes. And
    other labels on nodes that are not for training change no client's.
    """

    def check(name: str, params: dict[str, Any] | None = None, **options: Any) -> None:
        world = federation((13, 7, 10, 9, 8), sparse=False)
        plain, changed, blind = (begin(world, name, params, clients_per_batch=5, **options) for _ in range(3))
        for run in (plain, changed, blind):
            run.round(1)
        clients: list[Any] = list(world.clients)
        one = clients[1].graph.clone()
        one.ndata["label"] = (one.ndata["label"] + 1) % 3
        see(changed.simulation.client_batches[0], [clients[0], NodeClient(one, clients[1].feat.flip(0)), *clients[2:]])
        hidden = []
        for client in clients:
            graph = client.graph.clone()
            label, mask = graph.ndata["label"], graph.ndata["train_mask"].bool()
            graph.ndata["label"] = torch.where(mask, label, (label + 1) % 3)
            hidden.append(NodeClient(graph, client.feat))
        see(blind.simulation.client_batches[0], hidden)
        before, after, unseen = (list(leaves(run.round(2))) for run in (plain, changed, blind))
        differs = False
        for one_leaf, other, same in zip(before, after, unseen, strict=True):
            for client in range(5):
                torch.testing.assert_close(same[client], one_leaf[client])
                if client != 1:
                    torch.testing.assert_close(other[client], one_leaf[client])
            differs |= one_leaf[1].shape != other[1].shape or not torch.equal(one_leaf[1], other[1])
        assert differs

    return check
