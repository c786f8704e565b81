"""Clients with two models: a private one of any architecture, and a small shared one of the same architecture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F

from ...benchmark.engine import (
    GCN,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    Forward,
    Network,
    Params,
    Server,
    Tree,
    average,
)
from ..fedavg import LocalTraining

Nodes = Literal["train", "all"]


def rows_of(clients: ClientBatch, nodes: Nodes) -> torch.Tensor:
    """Return the rows of the clients' training nodes, or of all their nodes."""
    return clients.batch.rows["train"] if nodes == "train" else torch.arange(len(clients.batch.owner))


def mean_of(clients: ClientBatch, values: torch.Tensor, nodes: Nodes) -> torch.Tensor:
    """Return means (K,) over each client's training nodes, or all its nodes. values: (N,), one per node."""
    rows = rows_of(clients, nodes)
    return clients.mean_over(values[rows] if nodes == "train" else values, rows)


def kl(teacher: torch.Tensor, student: torch.Tensor) -> torch.Tensor:
    """Return KL(teacher || student) = sum_c p_c (log p_c - log q_c) (N,). Arguments: log-probabilities (N, C)."""
    return F.kl_div(student, teacher.detach(), reduction="none", log_target=True).sum(1)


def neighbour_kl(teacher: torch.Tensor, student: torch.Tensor, batch: Batch, *, mean: bool = False) -> torch.Tensor:
    """Return (N,) sums over j in N(i) and i itself of KL(teacher_j || student_i); with `mean` divided by |N(i)| + 1.

    The student's row is the same in all terms, so the neighbours' distributions are added first, without values per
    edge: sum_j p_j log p_j - (sum_j p_j) . log q_i.
    """
    log_p = teacher.detach()
    p = log_p.exp()
    negentropy = (p * log_p).sum(1, keepdim=True)
    total = p + batch.sum @ p
    value = (negentropy + batch.sum @ negentropy).squeeze(1) - (total * student).sum(1)
    return value / (batch.degrees + 1) if mean else value


SHARED = "shared."


def shared_backbone(backbones: Sequence[Backbone]) -> GCN:
    """Return the shared architecture: a GCN of 2 layers (FedGKC) with the clients' width, head and largest dropout."""
    first = backbones[0]
    return GCN(
        hidden=first.hidden,
        layers=2,
        dropout=max(backbone.dropout for backbone in backbones),
        input_dropout=max(backbone.input_dropout for backbone in backbones),
        linear_head=first.linear_head,
    )


def as_shared(params: Params) -> Params:
    return {SHARED + name: value for name, value in params.items()}


def shared_part(params: Params) -> Params:
    """Return the shared model's parameters without the prefix of their names."""
    return {name.removeprefix(SHARED): value for name, value in params.items() if name.startswith(SHARED)}


class DualModel(LocalTraining):
    """The private and the shared model are trained together, each on a separate loss; the server averages the shared
    models. The private models are scored.

    clients.params contains both, the shared model's names with a prefix, so one optimiser trains both. A subclass's
    `local_loss` is the sum of both losses, in which teachers are detached: its gradient is then that of each model's
    loss.
    """

    delivers = "personal"
    heterogeneous = True

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        one = Network([shared_backbone(clients.network.backbones)], clients.ids)
        clients.params |= as_shared(one.init(clients.streams.seed, clients.features, clients.classes))

    def open(self, server: Server) -> Download:
        server.state["model"] = server.initial_model(shared_backbone(server.backbones))
        return {"model": server.state["model"]}

    def pair(self, clients: ClientBatch) -> tuple[Forward, Forward]:
        """Return a training pass of the private and of the shared models on the clients' data."""
        return clients.forward(), self.shared_forward(clients, training=True)

    def shared_forward(self, clients: ClientBatch, *, training: bool) -> Forward:
        backbone = shared_backbone(clients.network.backbones)
        streams = clients.streams if training else None
        return backbone.forward(shared_part(clients.params), clients.batch, streams)

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(as_shared(clients.received["model"]))
        self.teach(clients)
        return {"model": shared_part(clients.params)}

    def teach(self, clients: ClientBatch) -> None:
        """Run the local epochs of a round."""
        clients.fit(self.local_loss)

    def server(self, server: Server, uploads: Tree) -> Download:
        server.state["model"] = average(uploads["model"], self.weights(server, uploads))
        return {"model": server.state["model"]}

    def weights(self, server: Server, uploads: Tree) -> torch.Tensor:
        """Return the aggregation weights (participants,), with sum 1."""
        return server.weights

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        raise NotImplementedError
