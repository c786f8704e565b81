"""FedAux: personalised averaging by a vector that every client learns to order its nodes along."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    Forward,
    Params,
    Server,
    Streams,
    Tree,
    affine,
    glorot,
)
from ..registry import option
from .fedavg import LocalTraining
from .parts.personal import cosine, mix

NEGLECTED = 1e-8  # largest error of a kernel's value, whose largest value is 1


class AuxModel(Backbone):
    """A GNN to width h, the auxiliary vector "aux" (h) and a classifier of 2 h -> C on [h_i, z_i]."""

    gnn: Backbone
    sigma: float

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = self.gnn.init(generator, features, self.hidden)
        source = torch.Generator().manual_seed(int(generator.integers(2**63)))
        params["aux"] = torch.randn(self.hidden, generator=source)
        return params | {"head.weight": glorot(2 * self.hidden, classes, source), "head.bias": torch.zeros(classes)}

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        out = self.gnn.forward(params, batch, streams)
        smooth = smoothed(out.logits, params["aux"], batch, self.sigma)
        return Forward(affine(params, "head", torch.cat([out.logits, smooth], 1), batch), out.pre)


def smoothed(h: torch.Tensor, aux: torch.Tensor, batch: Batch, sigma: float) -> torch.Tensor:
    """(N, h) each node's mean over its client's nodes, weighted by a Gaussian kernel of their places along `aux`.

    h: (N, h) embeddings. aux: (K, h). The kernel of two places s, t in [-1, 1] is expanded in powers,
    exp(-(s - t)^2 / sigma^2) = exp(-(s^2 + t^2) / sigma^2) sum_m (2 s t / sigma^2)^m / m!, which takes time in n rather
    than n^2 of a client's n nodes. The terms that are left out add up to `NEGLECTED` at most.
    """
    from scipy.stats import poisson  # half a second to import: only where it is needed

    place = F.cosine_similarity(h, aux.index_select(0, batch.owner), dim=1)
    rate = 2 / sigma**2
    power = torch.arange(1 + int(poisson.isf(NEGLECTED, rate)))  # the tail of exp(-rate) sum_m rate^m / m!
    scale = torch.exp((power * math.log(rate) - torch.lgamma(power + 1.0)) / 2)
    basis = torch.exp(-((place / sigma) ** 2)).unsqueeze(1) * scale * place.unsqueeze(1) ** power
    rows = torch.cat([h, torch.ones_like(h[:, :1])], 1)
    mixed = torch.cat(
        [
            b @ (b.T @ client_rows)
            for b, client_rows in zip(batch.per_client(basis), batch.per_client(rows), strict=True)
        ]
    )
    return mixed[:, :-1] / mixed[:, -1:]


@METHODS.register("fedaux")
class FedAux(LocalTraining):
    """Zhuo, Zhan, Yu, NeurIPS 2025 (arXiv 2505.23864): clients averaged by auxiliary projection vectors.

    Client k: a GNN gives h_i of width h; its vector a_k puts node i at s_i = cos(h_i, a_k), and
    z_i = sum_j kappa_ij h_j / sum_j kappa_ij,  kappa_ij = exp(-(s_i - s_j)^2 / sigma^2), over all its nodes j.
    A linear classifier of [h_i, z_i] is trained with GNN and a_k, E epochs on the mean cross-entropy.
    Server: client i gets sum_j w_ij (theta_j, a_j), w_ij = exp(scale cos(a_i, a_j)) / sum_j exp(scale cos(a_i, a_j)).
    Messages: theta with a (h) up, of its own down. Scored: each client's model after training. A client that skips
    rounds finds what it was sent last.

    Departures. The GNN is the cell's, its last layer of width h without activation, as the released one's two layers of
    GraphSAGE; width, dropout, rate and epochs are the cell's (released: 256, 0.5 to 0.7, Adam 0.01 and decay 5e-4, 1).
    The released code adds 1e-3 times the distances to the received tensors from values without gradient, so that they
    change nothing; they are left out. Its kernel is a matrix of n x n, here the same to 1e-8 in time n.
    """

    family = "personal"
    summary = "averages clients whose learnt projection vectors, which also smooth the embeddings, point alike"
    title = "FedAux"
    venue = "NeurIPS 2025"
    paper_url = "https://arxiv.org/abs/2505.23864"
    delivers = "personal"

    sigma: float = option(1.0, "width of the kernel (code: 1, its README's run 10)", ge=0.25, tune=[0.5, 1.0, 10.0])
    scale: float = option(10.0, "sharpness of the mixture (code: 10)", ge=0, tune=[1.0, 5.0, 10.0])

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return [
            backbone.turned_into(AuxModel, gnn=backbone, sigma=self.sigma)
            for backbone in super().architecture(backbones)
        ]

    def open(self, server: Server) -> Download:
        return {"model": server.initial_model()}

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        clients.fit(self.local_loss)
        return {"model": clients.params}

    def server(self, server: Server, uploads: Tree) -> Download:
        models = uploads["model"]
        return mix(server, models, (self.scale * cosine(models["aux"])).softmax(1))
