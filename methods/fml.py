"""FML: mutual distillation of a private model and a shared "meme" model."""

from __future__ import annotations

import torch

from ..benchmark.engine import METHODS, ClientBatch, TrainConfig, option
from .parts.dual import DualModel, Nodes, kl, rows_of


@METHODS.register("fml")
class FML(DualModel):
    """Shen et al., arXiv 2006.16765 (Federated mutual learning).

    Client k trains a private model l of any architecture and a meme model m (GCN-2, as in FedGKC) in one pass:
    L_l = alpha CE_l + (1 - alpha) KL(p_m || p_l),  L_m = beta CE_m + (1 - beta) KL(p_l || p_m),
    teachers fixed, KL the mean over nodes. Server: mean of the memes. Messages: the meme up and down.

    The released loop (Trainer.py) has the same losses: alpha and 1 - alpha, the mean over examples, a fixed teacher.
    HtFLlib's KL is a mean over nodes x classes, much weaker, and passes gradients to the teacher.
    """

    family = "distillation"
    summary = "clients send a small model; it and the client's private model distil each other"
    title = "FML"
    venue = "arXiv 2020"
    paper_url = "https://arxiv.org/abs/2006.16765"

    alpha: float = option(
        0.5, "weight of the private model's cross-entropy (released)", ge=0, le=1, tune=[0.1, 0.5, 0.9]
    )
    beta: float = option(0.5, "weight of the meme's cross-entropy (released)", ge=0, le=1, tune=[0.1, 0.5, 0.9])
    nodes: Nodes = option("train", "nodes of KL: training nodes, as their images (our choice), or all, as FedGKC")
    uniform: bool = option(True, "mean of the memes (paper), or by the training configuration's `weighting`")

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"weighting": "uniform"}) if self.uniform else config

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        (private, meme), rows = self.pair(clients), rows_of(clients, self.nodes)
        log_l, log_m = private.logits[rows].log_softmax(1), meme.logits[rows].log_softmax(1)
        task = self.alpha * clients.cross_entropy(private.logits) + self.beta * clients.cross_entropy(meme.logits)
        distilled = (1 - self.alpha) * kl(log_m, log_l) + (1 - self.beta) * kl(log_l, log_m)
        return task + clients.mean_over(distilled, rows)
