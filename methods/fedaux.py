"""FedAux: personalised averaging by the similarity of auxiliary vectors that the clients learn."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    Download,
    Forward,
    Params,
    Server,
    Streams,
    Tree,
    affine,
    glorot,
    option,
    torch_source,
)
from .fedavg import Exchange
from .parts.personal import cosine, mix

NEGLECTED = 1e-8  # maximal error of the kernel, whose maximum is 1


class AuxModel(Backbone):
    """A GNN to width h, the auxiliary vector "aux" (h) and a classifier of 2 h -> C on [h_i, z_i]."""

    gnn: Backbone
    sigma: float

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = self.gnn.init(generator, features, self.hidden)
        source = torch_source(generator)
        params["aux"] = torch.randn(self.hidden, generator=source)
        return params | {"head.weight": glorot(2 * self.hidden, classes, source), "head.bias": torch.zeros(classes)}

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        out = self.gnn.forward(params, batch, streams)
        smooth = smoothed(out.logits, params["aux"], batch, self.sigma)
        return Forward(affine(params, "head", torch.cat([out.logits, smooth], 1), batch), out.pre)


def smoothed(h: torch.Tensor, aux: torch.Tensor, batch: Batch, sigma: float) -> torch.Tensor:
    """Return z (N, h): for each node the mean over its client's nodes, weighted by a Gaussian kernel of s_i.

    h: (N, h) embeddings. aux: (K, h). s_i = cos(h_i, aux) in [-1, 1]. The kernel is expanded in powers,
    exp(-(s - t)^2 / sigma^2) = exp(-(s^2 + t^2) / sigma^2) sum_m (2 s t / sigma^2)^m / m!, so the time is linear in a
    client's number of nodes, not quadratic. The sum of the omitted terms is at most `NEGLECTED`.
    """
    from scipy.stats import poisson  # the import takes half a second

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
class FedAux(Exchange):
    """Zhuo, Zhan, Yu, NeurIPS 2025 (arXiv 2505.23864): clients averaged by auxiliary projection vectors.

    Client k: a GNN gives embeddings h_i of width h. With its vector a_k, s_i = cos(h_i, a_k) and
    z_i = sum_j kappa_ij h_j / sum_j kappa_ij,  kappa_ij = exp(-(s_i - s_j)^2 / sigma^2), over all its nodes j.
    A linear classifier of [h_i, z_i] is trained with GNN and a_k, E epochs on the mean cross-entropy.
    Server: client i gets sum_j w_ij (theta_j, a_j), w_ij = exp(scale cos(a_i, a_j)) / sum_j exp(scale cos(a_i, a_j)).
    Messages: theta with a (h) up, its personal mean of these down. Scored: each client's model after training. A client
    that skips rounds keeps its last download.

    Departures. The GNN is the run's backbone, its last layer of width h without activation (released: two such layers
    of GraphSAGE); width, dropout, rate and epochs are the run's (released: 256, 0.5 to 0.7, Adam 0.01 and decay 5e-4,
    1). The released code also adds 1e-3 times the distances to the received tensors, but without gradient, so they have
    no effect and are left out. Its kernel is an n x n matrix; here it is computed in linear time with error 1e-8. The
    code has three variants. This is `fedaux`, the paper's form; the README's command runs `fedpub_aux`, a hybrid with
    FED-PUB's masks, whose sigma is 10.
    """

    family = "personal"
    summary = "averages clients by the similarity of their learnt projection vectors, which also smooth the embeddings"
    title = "FedAux"
    venue = "NeurIPS 2025"
    paper_url = "https://arxiv.org/abs/2505.23864"
    code_url = "https://github.com/JhuoW/FedAux"
    delivers = "personal"

    sigma: float = option(1.0, "width of the kernel (code: 1; in its README: 10)", ge=0.25, tune=[0.5, 1.0, 10.0])
    scale: float = option(10.0, "factor of the cosines in the softmax (code: 10)", ge=0, tune=[1.0, 5.0, 10.0])

    def adapt(self, backbone: Backbone) -> Backbone:
        gnn = backbone.model_copy(update={"linear_head": False})  # the classifier of [h_i, z_i] is the linear head
        return backbone.turned_into(AuxModel, gnn=gnn, sigma=self.sigma)

    def server(self, server: Server, uploads: Tree) -> Download:
        models = uploads["model"]
        return mix(server, models, (self.scale * cosine(models["aux"])).softmax(1))
