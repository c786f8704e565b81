"""Class prototypes: clients compute and send them, and use the server's prototypes in loss and prediction.

A global prototype table is (C, h); the row of a class is nan until a client sends a prototype of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from ...benchmark.engine import Batch, ClientBatch, Download, Network, Params, Server, Tree, option, segment_sum
from .personal import CommonWidth

FAR = 1e9  # larger than any distance of embeddings


def class_counts(batch: Batch, classes: int, rows: torch.Tensor | None = None) -> torch.Tensor:
    """Return the number (K, C) of each client's training nodes (or `rows`) per class."""
    rows = batch.rows["train"] if rows is None else rows
    slot = batch.owner[rows] * classes + batch.label[rows]
    return torch.bincount(slot, minlength=batch.clients * classes).view(batch.clients, classes)


def class_means(
    embedding: torch.Tensor, batch: Batch, classes: int, rows: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return mean embeddings (K, C, h) of each client's training nodes (or `rows`) per class, 0 without any, and their
    counts (K, C)."""
    rows = batch.rows["train"] if rows is None else rows
    slot, count = batch.owner[rows] * classes + batch.label[rows], class_counts(batch, classes, rows)
    total = segment_sum(embedding[rows], slot, batch.clients * classes).view(batch.clients, classes, -1)
    return total / count.clamp(min=1).unsqueeze(2), count


def of_held(counts: torch.Tensor, *tables: torch.Tensor) -> list[list[torch.Tensor]]:
    """Return the classes that each client has by counts (K, C), and its rows for them of each table (K, C, ...)."""
    held = [count.nonzero().squeeze(1) for count in counts]
    return [held, *([rows[classes] for rows, classes in zip(table, held, strict=True)] for table in tables)]


def distance(embedding: torch.Tensor, batch: Batch, prototypes: torch.Tensor) -> torch.Tensor:
    """Return r_i - c^(y_i) (n_train, h) for the training rows; 0 without gradient if the class has no prototype yet.

    prototypes: (K, C, h), each client's table.
    """
    rows = batch.rows["train"]
    r = embedding[rows]
    target = prototypes[batch.owner[rows], batch.label[rows]]
    return r - torch.where(target.isnan(), r.detach(), target)


def nearest(embedding: torch.Tensor, sizes: Sequence[int], prototypes: torch.Tensor) -> torch.Tensor:
    """Return minus the Euclidean distance (N, C) to each prototype of the client's table (K, C, h); -FAR for nan."""
    parts = []
    for rows, table in zip(embedding.split(list(sizes)), prototypes, strict=True):
        parts.append(torch.cdist(rows, table.nan_to_num()).neg().masked_fill(table.isnan().any(1), -FAR))
    return torch.cat(parts)


class PrototypeExchange(CommonWidth):
    """Base of methods whose clients, of any architecture, exchange only class prototypes.

    After its training client k computes c_k^(j) = mean of the embeddings r_i of its training nodes of class j, without
    dropout. Messages: up (C_k, h) prototypes and (C_k,) int64 class numbers, C_k the classes of k's training nodes;
    down the (C, h) global table. Server, unless a subclass has its own rule: c^(j) = mean over the clients that have
    class j; a class that no client sent in a round keeps its last prototype.
    """

    def client(self, clients: ClientBatch) -> Tree:
        clients.fit(self.local_loss)
        return self.prototypes(clients)

    @torch.no_grad()
    def prototypes(self, clients: ClientBatch) -> Tree:
        """Return the upload."""
        embedding = clients.forward(training=False).embedding
        means, counts = class_means(embedding, clients.batch, clients.classes)
        means = self.compressed(clients, means, counts)
        held, sent = of_held(counts, means)
        return {"prototypes": sent, "classes": held} | self.extras(counts, held)

    def compressed(self, clients: ClientBatch, means: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
        """Return the prototypes as they are sent. means: (K, C, h); counts: (K, C) training nodes."""
        return means

    def extras(self, counts: torch.Tensor, held: Sequence[torch.Tensor]) -> Tree:
        """Return further uploads. counts: (K, C) training nodes per class; held: each client's class numbers."""
        return {}

    def server(self, server: Server, uploads: Tree) -> Download:
        sent, classes = torch.cat(uploads["prototypes"]), torch.cat(uploads["classes"])
        server.state["prototypes"] = self.combine(server, uploads, sent, classes)
        return {"prototypes": server.state["prototypes"]}

    def combine(self, server: Server, uploads: Tree, sent: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        """Return the global table (C, h). sent: all uploaded prototypes (n, h); classes: (n,)."""
        return weighted_mean(sent, classes, torch.ones(len(sent)), last_table(server, sent.shape[1]))

    def table(self, clients: ClientBatch) -> torch.Tensor | None:
        """Return the received table of each client (K, C, h), None before the first one."""
        table: torch.Tensor | None = clients.received.get("prototypes")
        return table


def weighted_mean(sent: torch.Tensor, classes: torch.Tensor, weight: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """Return the mean of the prototypes of each class (C, h); the row of `old` for a class that no client sent.

    sent: (n, h) prototypes; classes, weight: (n,).
    """
    total = segment_sum(sent * weight.unsqueeze(1), classes, len(old))
    mass = segment_sum(weight, classes, len(old)).unsqueeze(1)
    return torch.where(mass > 0, total / mass, old)


def last_table(server: Server, width: int) -> torch.Tensor:
    """Return the table (C, width) of the last round, all nan before the first one."""
    table: torch.Tensor = server.state.get("prototypes", torch.full((server.classes, width), torch.nan))
    return table


class PrototypeDistance(PrototypeExchange):
    """Client k: CE + lam R, R the distance between the embeddings r_i of its training nodes and the received prototypes
    of their classes; R = 0 in the first round, and for a class without prototype."""

    lam: float = option(1.0, "lambda, weight of R (FedProto's code)", ge=0, tune=[0.1, 1.0, 10.0])
    squared: Literal["mean", "sum"] = option(
        "mean", "R: squared difference averaged over nodes and the h entries (code), or summed over entries"
    )
    inference: Literal["classifier", "prototype"] = option(
        "classifier", "predict by the client's classifier (our choice), or by the nearest prototype (paper)"
    )

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        out = clients.forward()
        loss, table = clients.cross_entropy(out.logits), self.table(clients)
        if self.lam == 0 or table is None:
            return loss
        square = distance(out.embedding, clients.batch, table).square()
        node_loss = square.mean(1) if self.squared == "mean" else square.sum(1)
        return loss + self.lam * clients.mean_over(node_loss, clients.batch.rows["train"])

    def personal_model(self, clients: ClientBatch) -> Params | None:
        table = None if self.inference == "classifier" else self.table(clients)
        return clients.params if table is None else clients.params | {"prototypes": table}

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        if "prototypes" not in params:
            return super().predict(params, network, data)
        embedding = network.forward(params, data).embedding
        return nearest(embedding, network.sizes(data), params["prototypes"])
