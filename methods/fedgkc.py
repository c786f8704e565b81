"""FedGKC: mutual distillation of a private model and a shared copilot; the server weights copilots by strength."""

from __future__ import annotations

import logging
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import model_validator

from ..benchmark.engine import METHODS, Batch, ClientBatch, Server, Tree, option
from .parts.contrast import Views
from .parts.dual import SHARED, DualModel, Nodes, kl, mean_of, neighbour_kl
from .parts.personal import CommonWidth

LEAST = 1e-6  # smaller strengths are raised to it, because Eq. 10 divides by their sum, which may be 0 or negative


@METHODS.register("fedgkc")
class FedGKC(Views, CommonWidth, DualModel):
    """Lai, Zeng, Li, Shen, Zhu, Luo, Lu, Zhu, arXiv 2501.12624v1 (January 2025). Heterogeneous node classifiers.

    Client k has a private model l of any architecture and a copilot c (GCN-2). Both are trained in one pass, each with
    the other as a fixed teacher. e: embeddings of width h, p: predictions, sigma: softmax over an embedding's entries.

    SMKD  L_c = alpha CE_c + beta N(e_l, e_c) + (1 - alpha - beta) KL(p_l || p_c)
          L_l = alpha CE_l + beta N(e_c, e_l) + (1 - alpha - beta) KL(p_c || p_l) + MSE(e^w, e^s) + KL(p^w || p^s)
          N(z, e) = 1/N_k sum_i sum_{j in N(i) and i} KL(sigma(z_j) || sigma(e_i)); w, s: a weak and a strong view of
          the client's graph through l, drawn again in each step.
    KAMA  P_k = mean_i [ m_i + (m_i - sum of the other p_i) / (C - 1) - lambda mean_{j in N(i)} cos(p_i, p_j) ],
          m_i = max p_i, p of the copilot after training, without dropout; theta_g = sum_k w_k theta_k with
          w_k = (N_k / sum N + P_k / sum P) / 2.
    Messages: the copilot, N_k and P_k up; the copilot down. Private models are not sent; they are scored.

    Without SMKD (`fedgkc-kama`): beta is 0 and there are no views; the two models distil predictions on all nodes as in
    FML, alpha CE + (1 - alpha) KL. Without KAMA (`fedgkc-smkd`): the mean has the configuration's weights (N_k by
    default). Without both (smkd and kama false) only mutual distillation remains: compare KAMA with this, not with
    Local.

    Choices that the paper does not fix: both models are trained together, although Algorithm 1 lists the copilot before
    the private model (`order`); KL, N and MSE are means over all nodes (`nodes`), CE over training nodes; the views
    have dropout (`view_dropout`), and the weak view is a fixed target in KL but not in MSE; M in Eq. 8 is the number of
    classes C; a node without neighbours has cosine 0; P_k is at least 1e-6 (for uniform predictions of many classes it
    is negative), and raised values are logged; a client without training nodes has weight 0.
    """

    family = "distillation"
    summary = "clients send a small copilot, distilled with their private model; the mean weights copilots by strength"
    title = "FedGKC"
    venue = "arXiv 2025"
    paper_url = "https://arxiv.org/abs/2501.12624"

    alpha: float = option(
        0.6,
        "weight of cross-entropy (paper)",
        ge=0,
        le=1,
        tune=[{"alpha": 0.4, "beta": 0.3}, {"alpha": 0.6, "beta": 0.2}, {"alpha": 0.8, "beta": 0.1}],
    )
    beta: float = option(0.2, "weight of the neighbour distillation N (paper)", ge=0, le=1)
    strength_lambda: float = option(
        0.1, "lambda of P_k, weight of the neighbours' agreement (paper)", ge=0, tune=[0.0, 0.1, 1.0]
    )
    nodes: Nodes = option(
        "all", "nodes of KL, N and MSE: all (our choice; the paper has N_k), or training nodes as in FML", later=True
    )
    order: Literal["together", "copilot first"] = option(
        "together",
        "both models in one pass, each fixed for the other (our choice), or all local epochs of the "
        "copilot and then those of the private model (Algorithm 1, lines 7 and 8, read as a sequence)",
        later=True,
    )
    view_dropout: bool = option(
        True, "dropout in the two views in addition to their augmentation; our choice, not in the paper", later=True
    )
    neighbour_mean: bool = option(False, "divide N's inner sum by |N(i)| + 1 (not in the paper)")
    smkd: bool = option(True, "self-mutual knowledge distillation: N and the two views")
    kama: bool = option(True, "knowledge-aware aggregation; off: the training configuration's `weighting`")

    @model_validator(mode="after")
    def _weights(self) -> FedGKC:
        if self.alpha + self.beta > 1 + 1e-9:
            raise ValueError(f"alpha + beta is {self.alpha + self.beta:g}, must be at most 1: the rest weighs KL")
        return self

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        private, copilot = self.pair(clients)
        log_l, log_c = private.logits.log_softmax(1), copilot.logits.log_softmax(1)
        task = clients.cross_entropy(private.logits) + clients.cross_entropy(copilot.logits)
        predictions = kl(log_c, log_l) + kl(log_l, log_c)
        if not self.smkd:
            return self.alpha * task + (1 - self.alpha) * mean_of(clients, predictions, self.nodes)
        z_l, z_c = private.embedding.log_softmax(1), copilot.embedding.log_softmax(1)
        batch, mean = clients.batch, self.neighbour_mean
        neighbours = neighbour_kl(z_c, z_l, batch, mean=mean) + neighbour_kl(z_l, z_c, batch, mean=mean)
        distilled = self.beta * neighbours + (1 - self.alpha - self.beta) * predictions + self._own_views(clients)
        return self.alpha * task + mean_of(clients, distilled, self.nodes)

    def _own_views(self, clients: ClientBatch) -> torch.Tensor:
        """Return MSE(e^w, e^s) + KL(p^w || p^s) per node (N,)."""
        streams = clients.streams if self.view_dropout else None
        weak, strong = (
            clients.network.forward(clients.params, self.view(clients, strength, strength), streams)
            for strength in ("weak", "strong")
        )
        distance = (weak.embedding - strong.embedding).square().mean(1)
        return distance + kl(weak.logits.log_softmax(1), strong.logits.log_softmax(1))

    def teach(self, clients: ClientBatch) -> None:
        if self.order == "together":
            return super().teach(clients)
        copilot = {name: value for name, value in clients.params.items() if name.startswith(SHARED)}
        private = {name: value for name, value in clients.params.items() if name not in copilot}
        for name, group in (("copilot", copilot), ("private", private)):
            clients.fit(self.local_loss, params=group, name=name)

    def client(self, clients: ClientBatch) -> Tree:
        upload = super().client(clients)
        if not self.kama:
            return upload
        with torch.no_grad():
            p = self.shared_forward(clients, training=False).logits.softmax(1)
        strength = mean_of(clients, node_strength(p, clients.batch, self.strength_lambda), "all")
        return upload | {"nodes": torch.tensor(clients.batch.sizes, dtype=torch.float32), "strength": strength}

    def weights(self, server: Server, uploads: Tree) -> torch.Tensor:
        if not self.kama:
            return server.weights
        low = int((uploads["strength"] < LEAST).sum())
        if low:
            logging.getLogger(__name__).info("round %d: P_k of %d clients raised to %g", server.round, low, LEAST)
        trained = (server.weights > 0).float()
        nodes, strength = uploads["nodes"] * trained, uploads["strength"].clamp(min=LEAST) * trained
        return (nodes / nodes.sum() + strength / strength.sum()) / 2


def node_strength(p: torch.Tensor, batch: Batch, weight: float) -> torch.Tensor:
    """Return the terms of P_k per node (N,) (Eq. 8, 9). p: predictions (N, C), C > 1; weight: lambda."""
    top, classes = p.max(1).values, p.shape[1]
    unit = F.normalize(p, dim=1)
    agreement = (unit * (batch.mean @ unit)).sum(1)
    return top + (2 * top - p.sum(1)) / (classes - 1) - weight * agreement


@METHODS.register("fedgkc-smkd")
class FedGKCSMKD(FedGKC):
    """FedGKC with its distillation only (Table V): copilots are averaged with the configuration's weights, by default
    N_k.

    Messages: the copilot up and down.
    """

    summary = "FedGKC with its distillation only"
    title = "FedGKC (SMKD only)"
    venue = "arXiv 2025"
    paper_url = "https://arxiv.org/abs/2501.12624"

    kama: bool = option(False, "knowledge-aware aggregation; off: the training configuration's `weighting`")


@METHODS.register("fedgkc-kama")
class FedGKCKAMA(FedGKC):
    """FedGKC with its aggregation only (Table V): private model and copilot distil predictions only.

    Messages as FedGKC.
    """

    summary = "FedGKC with its weighted aggregation only"
    title = "FedGKC (KAMA only)"
    venue = "arXiv 2025"
    paper_url = "https://arxiv.org/abs/2501.12624"

    smkd: bool = option(False, "self-mutual knowledge distillation: N and the two views")
