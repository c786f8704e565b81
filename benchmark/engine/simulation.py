"""The simulation of federated training: the only round loop of the project, with the messages and their bytes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

from ...datasets.federation import Federation, NodeClient
from . import lazy
from .backbone import Backbone, Params
from .client_batch import ClientBatch
from .config import TrainConfig
from .device import keep_freed, section, settle
from .evaluate import LARGE, Models
from .hostile import Attack, RobustAggregation
from .method import Arrangement, Common, Method, Phase, Server, Step
from .network import Network
from .payload import Download, Each, Seal, Tree, deliver, merge, tree_bytes
from .rng import Streams, stream
from .task import TASKS, sizes
from .transforms import DroppedClients, HomeLayers, Privacy, Stragglers
from .views import with_edges_between

# Client batches are so small that what an optimiser moves, parameters, gradients and state, stays near the cache (see
# `profile`). Constants, not measured: rounding depends on the client batches and must be the same everywhere. Up to
# `lazy.FEW` clients the bound counts whole parameters; beyond, what is stored of them, and a larger bound is faster.
FEW_BYTES = 32 * 2**20
BATCH_BYTES = 64 * 2**20
BATCH_ROWS = 2**18  # nodes of a client batch, on average, for what a step keeps of each in memory


class Simulation:
    """The clients (in client batches), the server, and the messages between them."""

    def __init__(
        self,
        method: Method,
        arrangement: Arrangement,
        backbones: Sequence[Backbone],
        config: TrainConfig,
        seed: int,
        clients_per_batch: int | None = None,
    ) -> None:
        """clients_per_batch: clients that train together; None = as many as fit `FEW_BYTES`, `BATCH_BYTES`."""
        keep_freed()
        federation = arrangement.federation
        if method.edges_between_clients:
            federation = with_edges_between(federation)
        task = TASKS[federation.task]
        backbones = task.models(backbones)
        self.method, self.config = method, config
        count = len(federation.clients)
        self.server = Server(
            backbones, federation.num_features, federation.num_classes, count, config, seed,
            stream(seed, "server"), sizes(federation, config), list(range(count)), domains=federation.domains,
        )  # fmt: skip
        self.client_batches = client_batches(federation, self.server, config, clients_per_batch)
        self.upload_bytes, self.download_bytes = [0] * count, [0] * count
        self.seconds = 0.0
        self._draws = stream(seed, "participation")
        self.privacy = Privacy(config, self.server)
        every = DroppedClients(config, self.server), Stragglers(config, self.server), HomeLayers(self.server)
        server_side = Attack(config, self.server), self.privacy, RobustAggregation(config, self.server)
        self.transforms = [each for each in (*every, *server_side) if each.active]
        for clients in self.client_batches:
            method.prepare(clients)
            for each in self.transforms:
                each.prepare(clients)
        self._message: Download = method.open(self.server)
        self._addressed = self.server.participants

    def round(self, phase: Phase, number: int) -> None:
        """Run all steps of one round with newly drawn participants. number: 1-based."""
        start, server = time.perf_counter(), self.server
        server.round = number
        chosen = list(range(server.clients)) if phase.everyone else self._participants()
        for each in self.transforms:
            chosen = each.start_round(phase, chosen)
        for step in phase.steps if chosen else ():  # if every client drops out, nothing changes
            server.participants = chosen
            acting = chosen if step.only is None else _narrowed(chosen, step.only(server))
            seal = Seal()
            seal.close(self._message, "a download")
            shared = self._shared(step) if acting else None
            uploads: list[Tree] = []
            for clients in self.client_batches:
                positions = [p for p, client in enumerate(clients.ids) if client in acting]
                if not positions:
                    continue
                active = clients if len(positions) == len(clients) else clients.select(positions)
                active.round, active.shared = number, shared
                self._deliver(active)
                with section("client half"):
                    upload = step.client(active)
                    for each in self.transforms:
                        upload = each.upload(active, upload, self._message)
                active.shared = None
                _count(self.upload_bytes, active, upload)
                seal.close(upload, "an upload")
                uploads.append(upload)
                if active is not clients:
                    clients.absorb(active, positions)
            server.participants = acting
            with section("server half"):
                merged = merge(uploads)
                for each in self.transforms:
                    merged = each.aggregate(server, merged)
                self._message, self._addressed = step.server(server, merged), acting
            seal.check()
        settle()
        self.seconds += time.perf_counter() - start

    def _participants(self) -> list[int]:
        clients = self.server.clients
        count = max(1, round(self.config.participation * clients))
        if count == clients:
            return list(range(clients))
        return sorted(self._draws.choice(clients, count, replace=False).tolist())

    def _deliver(self, clients: ClientBatch) -> None:
        """Hand the server's message to the clients of a client batch, before their step."""
        clients.received = deliver(self._message, clients.ids, self._addressed)
        _count(self.download_bytes, clients, clients.received)
        for each in self.transforms:
            each.download(clients)
            each.start_step(clients)

    def _shared(self, step: Step) -> Any:
        """Return what `step.shared` computes once for all clients; None if the step has no such function."""
        if step.shared is None:
            return None
        if isinstance(self._message, Each):
            raise RuntimeError("a step with `shared` needs a download that is the same for everyone, got Each")
        server = self.server
        common = Common(server.seed, server.round, server.features, server.classes, self.config)
        with section("client half"):
            return step.shared(self._message, common)

    def models(self) -> Models:
        """The server's and the clients' models as they stand, for evaluation; nothing is counted as traffic."""
        return Models(self.method.global_model(self.server), self.personal_models())

    def personal_models(self) -> list[Params] | None:
        """The clients' current models, one tree per client batch."""
        personal = []
        for clients in self.client_batches:
            clients.received = deliver(self._message, clients.ids, self._addressed, partial=True)
            for each in self.transforms:
                each.download(clients)
            model = self.method.personal_model(clients)
            if model is not None:
                personal.append(model)
        return personal or None


def client_batches(
    federation: Federation, server: Server, config: TrainConfig, size: int | None = None
) -> list[ClientBatch]:
    """The clients of a federation in client batches, without models yet. size: `clients_per_batch` of `Simulation`."""
    clients, size = range(len(federation.clients)), size or _fitting_batch(server, federation)
    streams, large = Streams(server.seed, clients, {}), len(federation.whole.label) >= LARGE
    chunks = [clients[start : start + size] for start in range(0, len(clients), size)]
    return [
        TASKS[federation.task].client_batch(config)(
            [federation.clients[client] for client in chunk], Network(server.backbones, chunk), config,
            streams.select(chunk), federation.num_classes, federation.num_features, sums_first=large,
        )
        for chunk in chunks
    ]  # fmt: skip


def _narrowed(chosen: list[int], only: Iterable[int]) -> list[int]:
    acting = set(only)
    return [client for client in chosen if client in acting]


def _count(ledger: list[int], clients: ClientBatch, tree: Tree) -> None:
    """Add the bytes of a message to each client's total."""
    for client, count in zip(clients.ids, tree_bytes(tree, len(clients)), strict=True):
        ledger[client] += count


def _fitting_batch(server: Server, federation: Federation) -> int:
    """Clients whose parameters, gradients and two optimiser moments fit the bound, and their nodes; at least one.

    Of weights of sparse features, only the rows that a client's data touch count, on average, with many clients.
    """
    few = server.clients <= lazy.FEW
    share, bound = (1.0, FEW_BYTES) if few else (_touched_share(federation), BATCH_BYTES)
    if server.config.batch_size:  # each step has other rows, so parameters are stored whole
        share = 1.0

    def stored(value: torch.Tensor) -> float:
        return value.numel() * (share if value.dim() == 2 and value.shape[0] == server.features else 1)

    each = max(sum(map(stored, server.initial_model(backbone).values())) for backbone in server.backbones)
    nodes: int = sum(client.graph.num_nodes() for client in federation.clients if isinstance(client, NodeClient))
    small = server.clients * BATCH_ROWS // max(nodes, 1)
    return max(1, min(server.clients, int(bound // (4 * 4 * each)), small))


def _touched_share(federation: Federation) -> float:
    """The share of the feature columns that a client touches, mean over clients; 1 where features are dense."""
    feats = [client.feat for client in federation.clients if isinstance(client, NodeClient)]
    if not feats or any(feat.layout != torch.sparse_csr for feat in feats):
        return 1.0
    return float(np.mean([len(torch.unique(feat.col_indices())) for feat in feats])) / federation.num_features
