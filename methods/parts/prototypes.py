"""Class prototypes: what clients make of their embeddings, what they send, and what they do with the answer.

A global prototype table is (C, h); the row of a class that no one has sent yet is nan.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from ...benchmark.engine import Batch, ClientBatch, Download, Network, Params, Server, Tree, segment_sum
from ...registry import option
from .personal import CommonWidth

FAR = 1e9  # a distance no embedding reaches


def class_means(embedding: torch.Tensor, batch: Batch, classes: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(K, C, h) mean embedding of each client's training nodes of each class (0 without any), (K, C) their numbers."""
    rows = batch.rows["train"]
    cell = batch.owner[rows] * classes + batch.label[rows]
    count = torch.bincount(cell, minlength=batch.clients * classes)
    total = segment_sum(embedding[rows], cell, batch.clients * classes)
    mean = total / count.clamp(min=1).unsqueeze(1)
    return mean.view(batch.clients, classes, -1), count.view(batch.clients, classes)


def distance(embedding: torch.Tensor, batch: Batch, prototypes: torch.Tensor) -> torch.Tensor:
    """(n_train, h) r_i - c^(y_i) for the training rows; 0 without gradient where the class has no prototype yet.

    prototypes: (K, C, h), each client's table.
    """
    rows = batch.rows["train"]
    r = embedding[rows]
    target = prototypes[batch.owner[rows], batch.label[rows]]
    return r - torch.where(target.isnan(), r.detach(), target)


def nearest(embedding: torch.Tensor, sizes: Sequence[int], prototypes: torch.Tensor) -> torch.Tensor:
    """(N, C) minus the Euclidean distance to each prototype of the client's table (K, C, h); FAR for a nan row."""
    parts = []
    for rows, table in zip(embedding.split(list(sizes)), prototypes, strict=True):
        parts.append(torch.cdist(rows, table.nan_to_num()).neg().masked_fill(table.isnan().any(1), -FAR))
    return torch.cat(parts)


class PrototypeExchange(CommonWidth):
    """Clients of any architecture that exchange class prototypes and nothing else.

    Client k: CE + lam R, R the distance between the embeddings r_i of its training nodes and the received prototypes of
    their classes; R = 0 in the first round, and for a class without a prototype. Then c_k^(j) = mean of r_i over its
    training nodes of class j, without dropout. Messages: up (C_k, h) prototypes and (C_k,) int64 class numbers, C_k the
    classes k has training nodes of; down the (C, h) global table. Subclasses give the server's rule.
    """

    lam: float = option(1.0, "lambda, weight of R (FedProto's code)", ge=0, tune=[0.1, 1.0, 10.0])
    squared: Literal["mean", "sum"] = option(
        "mean", "R: squared difference averaged over nodes and the h entries (code), or summed over entries"
    )
    inference: Literal["classifier", "prototype"] = option(
        "classifier", "predict by the own classifier (our choice), or by the nearest prototype (paper)"
    )

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        out = clients.forward()
        loss = clients.cross_entropy(out.logits)
        if self.lam == 0 or "prototypes" not in clients.received:
            return loss
        square = distance(out.embedding, clients.batch, clients.received["prototypes"]).square()
        each = square.mean(1) if self.squared == "mean" else square.sum(1)
        return loss + self.lam * clients.mean_over(each, clients.batch.rows["train"])

    def client(self, clients: ClientBatch) -> Tree:
        clients.fit(self.local_loss)
        with torch.no_grad():
            embedding = clients.forward(training=False).embedding
        means, counts = class_means(embedding, clients.batch, clients.classes)
        held = [count.nonzero().squeeze(1) for count in counts]
        return {
            "prototypes": [mean[classes] for mean, classes in zip(means, held, strict=True)],
            "classes": held,
        } | self.extras(counts, held)

    def extras(self, counts: torch.Tensor, held: Sequence[torch.Tensor]) -> Tree:
        """What else goes up. counts: (K, C) training nodes of each class; held: each client's class numbers."""
        return {}

    def server(self, server: Server, uploads: Tree) -> Download:
        server.state["prototypes"] = self.combine(server, uploads)
        return {"prototypes": server.state["prototypes"]}

    def combine(self, server: Server, uploads: Tree) -> torch.Tensor:
        """The server's rule: the uploaded prototypes to the global table (C, h)."""
        raise NotImplementedError

    def personal_model(self, clients: ClientBatch) -> Params | None:
        if self.inference == "classifier" or "prototypes" not in clients.received:
            return clients.params
        return clients.params | {"prototypes": clients.received["prototypes"]}

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        if "prototypes" not in params:
            return super().predict(params, network, data)
        embedding = network.forward(params, data).embedding
        return nearest(embedding, network.sizes(data), params["prototypes"])
