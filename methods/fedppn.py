"""FedPPN: global class prototypes, propagated over each client's graph, are classified together with its own model."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch

from ..benchmark.engine import METHODS, ClientBatch, Params, Tree, affine, option
from .parts.prototypes import PrototypeExchange


@METHODS.register("fedppn")
class FedPPN(PrototypeExchange):
    """Liu et al., IEEE TAI 6(3), 2025 (DOI 10.1109/TAI.2024.3490557), for clients of any architecture.

    A client has a graph network with embeddings of width h and a linear classifier g. With the received prototypes c,
    Z_0 has the row c^(y_i) for training node i and zero otherwise; Z_l = alpha A_hat Z_(l-1) + (1 - alpha) Z_0 for
    `steps` steps, A_hat = D^-1/2 (A + I) D^-1/2, without gradient. The E epochs minimise
        CE(z) + CE(g(Z)) + CE(a z + (1 - a) g(Z)),
    z the network's logits, over the training nodes; before any prototype was received CE(z) alone. Predictions are
    a z + (1 - a) g(Z). Then c_k^(j) = mean embedding of its training nodes of class j. Server: c^(j) = mean over the
    clients that have class j; a class that no client sent in a round keeps its prototype, one that no client ever sent
    has zero rows.
    Messages: up C_k h scalars and C_k int64 class numbers, down C h scalars; models are not sent. In the first round,
    and with the three losses' last two left out, it is local training.

    Departures. Written from the abstract and the released code. The code's propagation is written as the normalised one
    and sums over neighbours without normalisation (`propagation` "sum"); FedGB normalises with self-loops, as here.
    Prototypes are computed without dropout. FedGB predicts by z (`inference` "classifier").
    """

    family = "prototypes"
    summary = "propagates global class prototypes over the client's graph and classifies them beside its own model"
    title = "FedPPN"
    venue = "IEEE TAI 2025"
    paper_url = "https://doi.org/10.1109/TAI.2024.3490557"
    code_url = "https://github.com/poipoipoi233/FedPPN"
    travels = False
    predicts_by_state: ClassVar[bool] = True

    steps: int = option(2, "steps of the propagation (code: 2 on Cora, tuned over 1 to 3)", ge=0, tune=[1, 2, 3])
    alpha: float = option(
        0.5,
        "share of the neighbours in a step (code: 0.5 on Cora, 0.3 on CiteSeer and PubMed, tuned over 0.1 to 0.9)",
        ge=0,
        le=1,
        tune=[0.1, 0.5, 0.9],
    )
    share: float = option(0.5, "a, share of the network's logits (code: 0.5)", ge=0, le=1)
    propagation: Literal["normalised", "sum"] = option(
        "normalised", "A_hat with self-loops (FedGB), or the sum over neighbours (released code)"
    )
    inference: Literal["ensemble", "classifier"] = option(
        "ensemble", "predict by both classifications (paper), or by the network alone (FedGB)"
    )

    def client(self, clients: ClientBatch) -> Tree:
        spread = self.spread(clients)

        def loss(clients: ClientBatch) -> torch.Tensor:
            logits = clients.forward().logits
            own = clients.cross_entropy(logits)
            if spread is None:
                return own
            of_prototypes = self.classified(clients, clients.params, spread)
            both = self.share * logits + (1 - self.share) * of_prototypes
            return own + clients.cross_entropy(of_prototypes) + clients.cross_entropy(both)

        clients.fit(loss)
        return self.prototypes(clients)

    @torch.no_grad()
    def spread(self, clients: ClientBatch) -> torch.Tensor | None:
        """Return Z (N, h), None before any prototype was received."""
        table = self.table(clients)
        if table is None:
            return None
        batch, rows = clients.batch, clients.batch.rows["train"]
        known = table[batch.owner[rows], batch.label[rows]].nan_to_num()
        start = known.new_zeros(len(batch.label), known.shape[1]).index_copy(0, rows, known)
        operator, z = batch.gcn if self.propagation == "normalised" else batch.sum, start
        for _ in range(self.steps):
            z = self.alpha * (operator @ z) + (1 - self.alpha) * start
        return z

    @staticmethod
    def classified(clients: ClientBatch, params: Params, rows: torch.Tensor) -> torch.Tensor:
        """Return each client's linear classifier on its rows (N, h)."""
        return affine(clients.network.part(params, "head."), "head", rows, clients.batch)

    @torch.no_grad()
    def predict_own(self, params: Params, clients: ClientBatch) -> torch.Tensor:
        logits = super().predict_own(params, clients)
        spread = self.spread(clients) if self.inference == "ensemble" else None
        if spread is None:
            return logits
        return self.share * logits + (1 - self.share) * self.classified(clients, params, spread)
