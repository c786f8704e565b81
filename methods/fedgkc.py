"""FedGKC: a private model and a shared copilot teach each other; the server weighs copilots by what they know."""

from __future__ import annotations

import logging
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import model_validator

from ..benchmark.engine import METHODS, Batch, ClientBatch, Forward, Server, Tree
from ..registry import option
from .parts.contrast import Views
from .parts.dual import SHARED, DualModel, Nodes, kl, mean_of, neighbour_kl
from .parts.personal import CommonWidth

LEAST = 1e-6  # a strength below it counts as it: Eq. 10 divides by the sum of strengths, which may be 0 or negative


@METHODS.register("fedgkc")
class FedGKC(Views, CommonWidth, DualModel):
    """Lai, Zeng, Li, Shen, Zhu, Luo, Lu, Zhu, arXiv 2501.12624v1 (January 2025). Heterogeneous node classifiers.

    Client k holds a private model l of any architecture and a copilot c (GCN-2); both train in one pass, each with the
    other as a fixed teacher; e embeddings of width h, p predictions, sigma the softmax over an embedding's entries:

    SMKD  L_c = alpha CE_c + beta N(e_l, e_c) + (1 - alpha - beta) KL(p_l || p_c)
          L_l = alpha CE_l + beta N(e_c, e_l) + (1 - alpha - beta) KL(p_c || p_l) + MSE(e^w, e^s) + KL(p^w || p^s)
          N(z, e) = 1/N_k sum_i sum_{j in N(i) and i} KL(sigma(z_j) || sigma(e_i)); w, s: a weak and a strong view of
          the client's graph through l, drawn anew each step.
    KAMA  P_k = mean_i [ m_i + (m_i - sum of the other p_i) / (C - 1) - lambda mean_{j in N(i)} cos(p_i, p_j) ],
          m_i = max p_i, p of the copilot after training, without dropout; theta_g = sum_k w_k theta_k with
          w_k = (N_k / sum N + P_k / sum P) / 2.
    Messages: the copilot, N_k and P_k up; the copilot down. Private models never leave; they are what is scored.

    Without SMKD (`fedgkc-kama`) beta is 0 and the views go: the two models teach each other predictions as in FML on
    all nodes, alpha CE + (1 - alpha) KL. Without KAMA (`fedgkc-smkd`) the configuration's weights (N_k by default)
    average. Without both (smkd and kama false) mutual distillation is left alone: what KAMA adds shows against that,
    not against Local.

    Choices where the paper is silent: both models train at once, where Algorithm 1 has the copilot's line before the
    private model's (`order`); KL, N and MSE are means over all nodes (`nodes`), CE over training nodes; the views have
    dropout (`view_dropout`), and the weak one is a fixed target in KL and not in MSE; Eq. 8's M is the number of
    classes C; a node without neighbours has cosine 0; P_k below 1e-6 counts as 1e-6 (a uniform prediction of many
    classes is below 0), which is logged; a client without a training node has nothing to teach and weighs 0.
    """

    family = "distillation"
    summary = "a small copilot model travels, is taught by the client's own model and weighted by what it knows"
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
        True, "dropout in the two views, besides their augmentation; ours: the paper names none", later=True
    )
    neighbour_mean: bool = option(False, "divide N's inner sum by |N(i)| + 1, which the paper does not")
    smkd: bool = option(True, "self-mutual knowledge distillation: N and the two views")
    kama: bool = option(True, "knowledge-aware aggregation; off: the training configuration's `weighting`")

    @model_validator(mode="after")
    def _weights(self) -> FedGKC:
        if self.alpha + self.beta > 1 + 1e-9:
            raise ValueError(f"alpha + beta is {self.alpha + self.beta:g}, must be at most 1: the rest weighs KL")
        return self

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        out = self.pair(clients)
        log_l, log_c = out.private.logits.log_softmax(1), out.shared.logits.log_softmax(1)
        task = clients.cross_entropy(out.private.logits) + clients.cross_entropy(out.shared.logits)
        predictions = kl(log_c, log_l) + kl(log_l, log_c)
        if not self.smkd:
            return self.alpha * task + (1 - self.alpha) * mean_of(clients, predictions, self.nodes)
        z_l, z_c = out.private.embedding.log_softmax(1), out.shared.embedding.log_softmax(1)
        batch, mean = clients.batch, self.neighbour_mean
        neighbours = neighbour_kl(z_c, z_l, batch, mean=mean) + neighbour_kl(z_l, z_c, batch, mean=mean)
        distilled = self.beta * neighbours + (1 - self.alpha - self.beta) * predictions + self._own_views(clients)
        return self.alpha * task + mean_of(clients, distilled, self.nodes)

    def _own_views(self, clients: ClientBatch) -> torch.Tensor:
        """(N,) what the private model's weak view teaches its strong one."""
        weak, strong = (
            self._through(clients, self.view(clients, strength, strength)) for strength in ("weak", "strong")
        )
        near = (weak.embedding - strong.embedding).square().mean(1)
        return near + kl(weak.logits.log_softmax(1), strong.logits.log_softmax(1))

    def _through(self, clients: ClientBatch, data: tuple[Batch, ...]) -> Forward:
        return clients.network.forward(clients.params, data, clients.streams if self.view_dropout else None)

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
        taught = (server.weights > 0).float()
        nodes, strength = uploads["nodes"] * taught, uploads["strength"].clamp(min=LEAST) * taught
        return (nodes / nodes.sum() + strength / strength.sum()) / 2


def node_strength(p: torch.Tensor, batch: Batch, weight: float) -> torch.Tensor:
    """(N,) the terms of P_k (Eq. 8, 9) of predictions p (N, C), C > 1; weight: its lambda."""
    top, classes = p.max(1).values, p.shape[1]
    unit = F.normalize(p, dim=1)
    agreement = (unit * (batch.mean @ unit)).sum(1)
    return top + (2 * top - p.sum(1)) / (classes - 1) - weight * agreement


@METHODS.register("fedgkc-smkd")
class FedGKCSMKD(FedGKC):
    """FedGKC with its distillation alone (Table V): the configuration's weights, N_k by default, average copilots.

    Messages: the copilot up and down.
    """

    summary = "FedGKC with its distillation alone"
    title = "FedGKC (SMKD only)"
    venue = "arXiv 2025"
    paper_url = "https://arxiv.org/abs/2501.12624"

    kama: bool = option(False, "knowledge-aware aggregation; off: the training configuration's `weighting`")


@METHODS.register("fedgkc-kama")
class FedGKCKAMA(FedGKC):
    """FedGKC with its aggregation alone (Table V): private model and copilot teach each other predictions only.

    Messages as FedGKC.
    """

    summary = "FedGKC with its weighted aggregation alone"
    title = "FedGKC (KAMA only)"
    venue = "arXiv 2025"
    paper_url = "https://arxiv.org/abs/2501.12624"

    smkd: bool = option(False, "self-mutual knowledge distillation: N and the two views")
