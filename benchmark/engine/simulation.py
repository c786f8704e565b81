"""The simulation of federated training: the round loop, the messages and their bytes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...datasets.federation import Federation, NodeClient
from . import lazy
from .backbone import Backbone, Network, Params
from .client_batch import ClientBatch
from .config import TrainConfig
from .device import keep_freed, section, settle
from .evaluate import LARGE, TASKS, Models, sizes
from .hostile import Attack, RobustAggregation
from .method import Arrangement, Common, Method, Phase, Server, Step
from .payload import Download, Each, Seal, Tree, deliver, merge, tree_bytes
from .rng import Streams, stream
from .transforms import DroppedClients, HomeLayers, Privacy, Stragglers
from .views import with_edges_between

# Bounds on parameters, gradients and optimiser state of a client batch: more bytes use the cache less, fewer take more
# calls (see `profile`). They are constants because rounding depends on the client batches and must be the same on every
# machine. `FEW_BYTES`, for up to `lazy.FEW` clients, counts whole parameters; `BATCH_BYTES` counts stored rows
# (`features`).
FEW_BYTES = 32 * 2**20
BATCH_BYTES = 128 * 2**20
BATCH_ROWS = 2**18  # most nodes of a client batch, on average: a step keeps values of each node in memory


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
        """clients_per_batch: clients per client batch; None = as many as the bounds above allow."""
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
        transforms = (
            DroppedClients(config, self.server), Stragglers(config, self.server), HomeLayers(self.server),
            Attack(config, self.server), self.privacy, RobustAggregation(config, self.server),
        )  # fmt: skip
        self.transforms = [transform for transform in transforms if transform.active]
        for clients in self.client_batches:
            method.prepare(clients)
            for transform in self.transforms:
                transform.prepare(clients)
        self._message: Download = method.open(self.server)
        self._addressed = self.server.participants

    def round(self, phase: Phase, number: int) -> None:
        """Run all steps of one round with newly drawn participants. number: 1-based."""
        start, server = time.perf_counter(), self.server
        server.round = number
        chosen = list(range(server.clients)) if phase.everyone else self._draw_participants()
        for transform in self.transforms:
            chosen = transform.start_round(phase, chosen)
        for step in phase.steps if chosen else ():  # if every client drops out, nothing changes
            server.participants = acting = chosen
            if step.only is not None:
                only = set(step.only(server))
                acting = [client for client in chosen if client in only]
            seal = Seal()
            seal.close(self._message, "a download")
            shared = self._shared(step) if acting else None
            uploads: list[Tree] = []
            takes_part = set(acting)
            for clients in self.client_batches:
                positions = [p for p, client in enumerate(clients.ids) if client in takes_part]
                if not positions:
                    continue
                active = clients if len(positions) == len(clients) else clients.select(positions)
                active.round, active.shared = number, shared
                self._deliver(active)
                with section("client half"):
                    upload = step.client(active)
                    for transform in self.transforms:
                        upload = transform.upload(active, upload, self._message)
                active.shared = None
                _count_bytes(self.upload_bytes, active, upload)
                seal.close(upload, "an upload")
                uploads.append(upload)
                if active is not clients:
                    clients.absorb(active, positions)
            server.participants = acting
            with section("server half"):
                merged = merge(uploads)
                for transform in self.transforms:
                    merged = transform.aggregate(server, merged)
                self._message, self._addressed = step.server(server, merged), acting
            seal.check()
        settle()
        self.seconds += time.perf_counter() - start

    def _draw_participants(self) -> list[int]:
        clients = self.server.clients
        count = max(1, round(self.config.participation * clients))
        if count == clients:
            return list(range(clients))
        return sorted(self._draws.choice(clients, count, replace=False).tolist())

    def _deliver(self, clients: ClientBatch) -> None:
        clients.received = deliver(self._message, clients.ids, self._addressed)
        _count_bytes(self.download_bytes, clients, clients.received)
        for transform in self.transforms:
            transform.download(clients)
            transform.start_step(clients)

    def _shared(self, step: Step) -> Any:
        """Return the result of `step.shared`, computed once for all clients; None if the step has no such function."""
        if step.shared is None:
            return None
        if isinstance(self._message, Each):
            raise RuntimeError("a step with `shared` needs a download that is the same for everyone, got Each")
        server = self.server
        common = Common(server.seed, server.round, server.features, server.classes, self.config)
        with section("client half"):
            return step.shared(self._message, common)

    def models(self) -> Models:
        """The current models of server and clients, for evaluation; no bytes are counted."""
        return Models(self.method.global_model(self.server), self.personal_models())

    def personal_models(self) -> list[Params] | None:
        """The clients' current models, one tree per client batch."""
        personal = []
        for clients in self.client_batches:
            clients.received = deliver(self._message, clients.ids, self._addressed, partial=True)
            for transform in self.transforms:
                transform.download(clients)
            model = self.method.personal_model(clients)
            if model is not None:
                personal.append(model)
        return personal or None


def client_batches(
    federation: Federation, server: Server, config: TrainConfig, size: int | None = None
) -> list[ClientBatch]:
    """The clients of a federation in client batches, without models. size: `clients_per_batch` of `Simulation`."""
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


def _count_bytes(totals: list[int], clients: ClientBatch, message: Tree) -> None:
    for client, count in zip(clients.ids, tree_bytes(message, len(clients)), strict=True):
        totals[client] += count


def _fitting_batch(server: Server, federation: Federation) -> int:
    """The largest number of clients (at least 1) whose parameters, gradients, two moments and nodes fit the bounds.

    With many clients, only the mean share of touched rows of the input weights counts (`features`).
    """
    few = server.clients <= lazy.FEW
    share, bound = (1.0, FEW_BYTES) if few else (_touched_share(federation), BATCH_BYTES)
    if server.config.batch_size:  # each step touches other rows, so parameters are stored whole
        share = 1.0

    def stored(value: torch.Tensor) -> float:
        return value.numel() * (share if value.dim() == 2 and value.shape[0] == server.features else 1)

    each = max(sum(map(stored, server.initial_model(backbone).values())) for backbone in server.backbones)
    nodes: int = sum(client.graph.num_nodes() for client in federation.clients if isinstance(client, NodeClient))
    by_nodes = server.clients * BATCH_ROWS // max(nodes, 1)
    return max(1, min(server.clients, int(bound // (4 * 4 * each)), by_nodes))


def _touched_share(federation: Federation) -> float:
    """The share of the feature columns that a client touches, mean over clients; 1 for dense features."""
    feats = [client.feat for client in federation.clients if isinstance(client, NodeClient)]
    if not feats or any(feat.layout != torch.sparse_csr for feat in feats):
        return 1.0
    return float(np.mean([len(torch.unique(feat.col_indices())) for feat in feats])) / federation.num_features
