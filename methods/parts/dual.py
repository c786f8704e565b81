"""Clients with two models: a private one of any architecture, and a small one whose architecture all share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
    """Row numbers of the clients' training nodes, or of all their nodes."""
    return clients.batch.rows["train"] if nodes == "train" else torch.arange(len(clients.batch.owner))


def mean_of(clients: ClientBatch, values: torch.Tensor, nodes: Nodes) -> torch.Tensor:
    """(N,) one value per node -> (K,) each client's mean over its training nodes, or over all its nodes."""
    rows = rows_of(clients, nodes)
    return clients.mean_over(values[rows] if nodes == "train" else values, rows)


def kl(teacher: torch.Tensor, student: torch.Tensor) -> torch.Tensor:
    """(N,) KL(teacher || student) = sum_c p_c (log p_c - log q_c)."""
    return F.kl_div(student, teacher.detach(), reduction="none", log_target=True).sum(1)


def neighbour_kl(teacher: torch.Tensor, student: torch.Tensor, batch: Batch, *, mean: bool = False) -> torch.Tensor:
    """(N,) sum over j in N(i) and i itself of KL(teacher_j || student_i); with `mean` divided by |N(i)| + 1.

    The student's row is the same in each term, so the neighbours' distributions are added up first, and nothing is
    computed edge by edge: sum_j p_j log p_j - (sum_j p_j) . log q_i.
    """
    log_p = teacher.detach()
    p = log_p.exp()
    negentropy = (p * log_p).sum(1, keepdim=True)
    total = p + batch.sum @ p
    value = (negentropy + batch.sum @ negentropy).squeeze(1) - (total * student).sum(1)
    return value / (batch.degrees + 1) if mean else value


SHARED = "shared."


def shared_backbone(backbones: Sequence[Backbone]) -> GCN:
    """The shared architecture: GCN of 2 layers (FedGKC) of the clients' width and head, with their largest dropouts."""
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
    """The shared model's parameters, under their own names."""
    return {name.removeprefix(SHARED): value for name, value in params.items() if name.startswith(SHARED)}


@dataclass
class Pair:
    """What both models leave on the clients' own data, rows in client order."""

    private: Forward
    shared: Forward


class DualModel(LocalTraining):
    """The private and the shared model train together, each on its own loss; the server averages the shared ones.

    clients.params holds both, the shared model's names prefixed, so one optimiser steps both and each keeps its state.
    A subclass's `local_loss` is the sum of both losses, with everything detached that the other model teaches: then
    the gradient of the sum is each model's own. The private models are what is delivered and scored.
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

    def pair(self, clients: ClientBatch) -> Pair:
        """A training pass of both models."""
        return Pair(clients.forward(), self.shared_forward(clients, training=True))

    def shared_forward(self, clients: ClientBatch, *, training: bool) -> Forward:
        backbone = shared_backbone(clients.network.backbones)
        streams = clients.streams if training else None
        return backbone.forward(shared_part(clients.params), clients.batch, streams)

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(as_shared(clients.received["model"]))
        self.teach(clients)
        return {"model": shared_part(clients.params)}

    def teach(self, clients: ClientBatch) -> None:
        """The local epochs of a round."""
        clients.fit(self.local_loss)

    def server(self, server: Server, uploads: Tree) -> Download:
        server.state["model"] = average(uploads["model"], self.weights(server, uploads))
        return {"model": server.state["model"]}

    def weights(self, server: Server, uploads: Tree) -> torch.Tensor:
        """(participants,) aggregation weights, summing to 1."""
        return server.weights

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        raise NotImplementedError
