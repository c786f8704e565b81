"""The exchange: who takes part in a round, what crosses, and what it weighs. The only round loop of the project."""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch

from ...datasets.federation import Federation, GraphClient, NodeClient
from . import lazy
from .backbones import Backbone, Params
from .cohort import Cohort, Skip
from .config import TrainConfig
from .device import settle
from .evaluate import Evaluator, Models
from .graphs.classification import GraphEvaluator
from .graphs.clustering import ClusteringEvaluator
from .graphs.graphcohort import GraphCohort, cut
from .graphs.graphmodel import graph_models
from .graphs.labelledcohort import LabelledGraphCohort
from .messages import Download, Each, Seal, Tree, deliver, merge, tree_bytes
from .method import Arrangement, Common, Method, Phase, Server, Step, at_home, crossing
from .network import Network
from .privacy import Privacy
from .random import Streams, stream
from .timing import section

# A cohort is cut so that what its optimiser moves, parameters with gradients and state, stays near the cache (see
# `profile`). Constants, and no measurement of the machine: what rounds by cohorts must come out alike everywhere. Up to
# `lazy.FEW` clients the bound counts whole parameters; beyond, what is stored of them, and a larger bound is faster.
FEW_BYTES = 32 * 2**20
COHORT_BYTES = 64 * 2**20
MODEL, HOME = "model", "layers at home"  # the name of uploaded models, and of what is kept of them in a client's state
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)


@dataclass(frozen=True)
class Task:
    """What differs between tasks: the cohort that holds the clients' data, who scores, and the clients' weights.

    sizes: (K,) aggregation weights before normalisation. epoch: most optimiser steps that a client takes in an epoch.
    models: what becomes of the architectures that a method runs with.
    """

    cohort: type[Cohort]
    evaluator: type[Evaluator]
    sizes: Callable[[Federation, TrainConfig], torch.Tensor]
    epoch: Callable[[Federation, TrainConfig], int]
    models: Callable[[Sequence[Backbone]], Sequence[Backbone]] = tuple


def _node_sizes(federation: Federation, config: TrainConfig) -> torch.Tensor:
    """A client without a training node has nothing to teach and weighs 0."""
    held = [c.graph.num_nodes() for c in federation.clients if isinstance(c, NodeClient)]
    train = [int(c.graph.ndata["train_mask"].sum()) for c in federation.clients if isinstance(c, NodeClient)]
    own = {"nodes": held, "train_nodes": train, "uniform": [1] * len(held)}[config.weighting]
    return torch.tensor([n if t else 0 for n, t in zip(own, train, strict=True)], dtype=torch.float32)


def _graph_sizes(federation: Federation, config: TrainConfig) -> torch.Tensor:
    """Graphs held, or those that train, or equal weights; a client with nothing to train on weighs 0."""
    held, train = _graph_counts(federation)
    own = {"nodes": held, "train_nodes": train, "uniform": [1] * len(held)}[config.weighting]
    return torch.tensor([n if t else 0 for n, t in zip(own, train, strict=True)], dtype=torch.float32)


def _graph_counts(federation: Federation) -> tuple[list[int], list[int]]:
    """Each client's graphs, and those of them that it trains on: all where no label is used."""
    clients = [c for c in federation.clients if isinstance(c, GraphClient)]
    held = [len(c.graphs) for c in clients]
    train = [int(c.masks["train"].sum()) if c.masks else n for c, n in zip(clients, held, strict=True)]
    return held, train


def _minibatches(federation: Federation, config: TrainConfig) -> int:
    _, train = _graph_counts(federation)
    return max(len(cut(np.arange(n), config.batch_size)) for n in train)


TASKS = {
    "node": Task(Cohort, Evaluator, _node_sizes, lambda federation, config: 1),
    "graph": Task(GraphCohort, ClusteringEvaluator, _graph_sizes, _minibatches),
    "graph-classification": Task(LabelledGraphCohort, GraphEvaluator, _graph_sizes, _minibatches, graph_models),
}


@dataclass
class Half:
    """A client half that is due. place: of its step in the round, and of its cohort in the run. upload: what came."""

    place: tuple[int, int]
    step: Step
    cohort: Cohort
    upload: Tree = field(default_factory=dict)

    def take(self) -> None:
        """Run it by itself."""
        with section("client half"):
            self.upload = self.step.client(self.cohort)


class Exchange:
    """The clients (as cohorts), the server, and the messages between them."""

    _epochs: list[int] | None = None  # of each client in this round; None: all that there are

    def __init__(
        self,
        method: Method,
        arrangement: Arrangement,
        backbones: Sequence[Backbone],
        config: TrainConfig,
        seed: int,
        cohort_size: int | None = None,
    ) -> None:
        """cohort_size: clients that train in one program; None = as many as fit `FEW_BYTES`, `COHORT_BYTES`."""
        _keep_freed_memory()
        federation = arrangement.federation
        task = TASKS[federation.task]
        backbones = task.models(backbones)
        self.method, self.config = method, config
        clients = len(federation.clients)
        self.server = Server(
            backbones, federation.num_features, federation.num_classes, clients, config, seed,
            stream(seed, "server"), task.sizes(federation, config), list(range(clients)), domains=federation.domains,
        )  # fmt: skip
        size = cohort_size or _fitting_cohort(self.server, federation)
        streams = Streams(seed, range(clients), {})
        chunks = [range(clients)[start : start + size] for start in range(0, clients, size)]
        self.cohorts = [
            task.cohort(
                [federation.clients[client] for client in chunk], Network(backbones, chunk), config,
                streams.select(chunk), federation.num_classes, federation.num_features,
            )
            for chunk in chunks
        ]  # fmt: skip
        self.upload_bytes, self.download_bytes = [0] * clients, [0] * clients
        self.seconds = 0.0
        self._draw, self._fate, self._pace = (stream(seed, of) for of in ("participation", "failure", "straggle"))
        self.privacy = Privacy(config, self.server)
        for cohort in self.cohorts:
            method.prepare(cohort)
            if self.server.domains:
                cohort.state[HOME] = {name: value.clone() for name, value in at_home(cohort.params).items()}
        self._message: Download = method.open(self.server)
        self._addressed = self.server.participants

    def round(self, phase: Phase, number: int) -> None:
        """All steps of one round, with freshly drawn participants. number: 1-based."""
        start = time.perf_counter()
        for half in self.halves(phase, number):
            half.take()
        settle()
        self.seconds += time.perf_counter() - start

    def halves(self, phase: Phase, number: int) -> Iterator[Half]:
        """The same, one client half after the other: who asks for one takes it before asking for the next."""
        self.server.round = number
        chosen = list(range(self.server.clients)) if phase.everyone else self._working(self._participants())
        self._epochs = None if phase.everyone else self._finished()
        for place, step in enumerate(phase.steps if chosen else ()):  # where everyone fails nothing changes
            yield from self._step(step, chosen, place)

    def _participants(self) -> list[int]:
        clients = self.server.clients
        count = max(1, round(self.config.participation * clients))
        if count == clients:
            return list(range(clients))
        return sorted(self._draw.choice(clients, count, replace=False).tolist())

    def _working(self, chosen: list[int]) -> list[int]:
        """Those who do not fail in this round."""
        if not self.config.failure:
            return chosen
        fails = self._fate.random(self.server.clients) < self.config.failure
        return [client for client in chosen if not fails[client]]

    def _finished(self) -> list[int] | None:
        """The local epochs that each client does in this round: all, or of one that straggles 1 to all, drawn evenly
        (Li et al., MLSys 2020, systems heterogeneity). A greater probability makes more stragglers of the same draws.
        """
        if not self.config.straggle:
            return None
        full, clients = self.config.local_epochs, self.server.clients
        if full == 1:
            raise Skip("a client that straggles does at least one local epoch, and there is one")
        late, fewer = self._pace.random(clients) < self.config.straggle, self._pace.integers(1, full + 1, clients)
        return [int(n) if slow else full for slow, n in zip(late, fewer, strict=True)]

    def _step(self, step: Step, chosen: list[int], place: int) -> Iterator[Half]:
        self.server.participants = chosen
        if step.only is not None:
            acting = set(step.only(self.server))
            chosen = [client for client in chosen if client in acting]
        seal = Seal()
        seal.close(self._message, "a download")
        shared = self._shared(step) if chosen else None
        uploads: list[Tree] = []
        for number, cohort in enumerate(self.cohorts):
            positions = [p for p, client in enumerate(cohort.clients) if client in chosen]
            if not positions:
                continue
            active = cohort if len(positions) == len(cohort) else cohort.select(positions)
            active.round = self.server.round
            active.received = deliver(self._message, active.clients, self._addressed)
            self._count(self.download_bytes, active, active.received)
            self._completed(active)
            active.shared = shared
            active.epochs = tuple(self._epochs[client] for client in active.clients) if self._epochs else None
            half = Half((place, number), step, active)
            yield half
            with section("client half"):
                upload = self._sent(active, half.upload)
                upload = self.privacy.clipped(upload, active.received, self._message)
            active.shared = active.epochs = None
            self._count(self.upload_bytes, active, upload)
            seal.close(upload, "an upload")
            uploads.append(upload)
            if active is not cohort:
                cohort.absorb(active, positions)
        self.server.participants = chosen
        with section("server half"):
            self._message, self._addressed = (
                step.server(self.server, self.privacy.noised(self.server, merge(uploads))),
                chosen,
            )
        seal.check()

    def _sent(self, cohort: Cohort, upload: Tree) -> Tree:
        """An upload without the layers that clients of their own domains keep; they are remembered."""
        if not self.server.domains or MODEL not in upload:
            return upload
        kept = at_home(upload[MODEL]) or at_home(cohort.params)  # of a method that does not send them, as they stand
        cohort.state[HOME] = {name: value.clone() for name, value in kept.items()}
        return {**upload, MODEL: crossing(upload[MODEL])}

    def _completed(self, cohort: Cohort) -> None:
        """Where clients have domains of their own, a received model gets the layers that each of them has kept."""
        if self.server.domains and MODEL in cohort.received:
            cohort.received = {**cohort.received, MODEL: cohort.received[MODEL] | cohort.state[HOME]}

    def _shared(self, step: Step) -> Any:
        if step.shared is None:
            return None
        if isinstance(self._message, Each):
            raise RuntimeError("a step with `shared` needs a download that is the same for everyone, got Each")
        server = self.server
        common = Common(server.seed, server.round, server.features, server.classes, self.config)
        with section("client half"):
            return step.shared(self._message, common)

    @staticmethod
    def _count(ledger: list[int], cohort: Cohort, tree: Tree) -> None:
        for client, count in zip(cohort.clients, tree_bytes(tree, len(cohort)), strict=True):
            ledger[client] += count

    def models(self) -> Models:
        """The server's and the clients' models as they stand, for evaluation; nothing is counted as traffic."""
        return Models(self.method.global_model(self.server), self.personal_models())

    def personal_models(self) -> list[Params] | None:
        """The clients' own models as they stand, one tree a cohort."""
        personal = []
        for cohort in self.cohorts:
            cohort.received = deliver(self._message, cohort.clients, self._addressed, partial=True)
            self._completed(cohort)
            model = self.method.personal_model(cohort)
            if model is not None:
                personal.append(model)
        return personal or None


def _fitting_cohort(server: Server, federation: Federation) -> int:
    """Clients whose parameters, gradients and two optimiser moments fit the bound; at least one.

    Of weights of sparse features, only the rows that a client's data touch count, on average, with many clients.
    """
    few = server.clients <= lazy.FEW
    share, bound = (1.0, FEW_BYTES) if few else (_touched_share(federation), COHORT_BYTES)

    def stored(value: torch.Tensor) -> float:
        return value.numel() * (share if value.dim() == 2 and value.shape[0] == server.features else 1)

    each = max(sum(map(stored, server.initial_model(backbone).values())) for backbone in server.backbones)
    return max(1, min(server.clients, int(bound // (4 * 4 * each))))


def _touched_share(federation: Federation) -> float:
    """The share of the feature columns that a client touches, mean over clients; 1 where features are dense."""
    feats = [client.feat for client in federation.clients if isinstance(client, NodeClient)]
    if not feats or any(feat.layout != torch.sparse_csr for feat in feats):
        return 1.0
    return float(np.mean([len(torch.unique(feat.col_indices())) for feat in feats])) / federation.num_features


@cache
def _keep_freed_memory() -> bool:
    """Tell glibc to serve blocks of up to 32 MiB from its heap and to keep 1 GiB of free heap; True where it took it.

    Its defaults hand such blocks back to the system at each free and map them anew: a page fault every 4 KiB of fresh
    gradients, which made the input product of a Cora round three times as slow. Elsewhere (musl, macOS, Windows)
    nothing happens.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_MMAP_THRESHOLD, 32 * 2**20)) and bool(mallopt(_TRIM_THRESHOLD, 2**30))
