"""FedProto: clients that exchange class prototypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch

from ..benchmark.engine import METHODS, Server, Tree, option
from .parts.prototypes import PrototypeDistance, last_table, weighted_mean


@METHODS.register("fedproto")
class FedProto(PrototypeDistance):
    """Tan et al., AAAI 2022 (arXiv 2105.00243), for clients of any architecture with embeddings of width h.

    Client k: CE + lam mean_{i in T_k} mean_h (r_i - c^(y_i))^2, r_i the embedding (input of the linear head), c the
    received prototypes, T_k the training nodes. Server: c^(j) = mean over the clients K_j that have class j of c_k^(j);
    a class that no client sent in a round keeps its last prototype. Messages: up C_k h scalars and
    C_k int64 class numbers (with `server_weights` "samples" also C_k int64 counts), down C h scalars.

    Departures: prototypes are computed after training and without dropout; the released code averages the last training
    pass. With lam = 0 it is local training of the same models.
    """

    family = "prototypes"
    summary = "clients exchange the mean embedding of each class and no weights"
    title = "FedProto"
    venue = "AAAI 2022"
    paper_url = "https://arxiv.org/abs/2105.00243"
    code_url = "https://github.com/yuetan031/FedProto"
    tasks = ("node", "graph-classification")

    server_weights: Literal["clients", "samples"] = option(
        "clients", "c^(j): uniform mean over clients (code), or weighted by training nodes of class j (paper)"
    )

    def extras(self, counts: torch.Tensor, held: Sequence[torch.Tensor]) -> Tree:
        if self.server_weights == "clients":
            return {}
        return {"counts": [count[classes] for count, classes in zip(counts, held, strict=True)]}

    def combine(self, server: Server, uploads: Tree, sent: torch.Tensor, classes: torch.Tensor) -> torch.Tensor:
        if self.server_weights == "clients":
            return super().combine(server, uploads, sent, classes)
        weight = torch.cat(uploads["counts"]).to(sent.dtype)
        return weighted_mean(sent, classes, weight, last_table(server, sent.shape[1]))
