"""FedIIH: a disentangled network; each of its factors is averaged among the clients that are similar in it."""

from __future__ import annotations

import math

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
    active_kernels,
    average,
    dropout,
    linear_map,
    option,
    segment_add,
    segment_product,
    segment_sum,
    torch_source,
)
from .fedavg import Exchange
from .parts.contrast import unit_rows
from .parts.personal import send

STATISTICS_LAYERS = 2  # routing layers from the last hidden layer to the latent statistics (code: 1 or 2 by dataset)


class DisentangledGNN(Backbone):
    """Linear maps d -> h for each of M factors, routing layers without parameters, a classifier of M h -> C.

    Parameters of factor m: "m.weight" (d, h), "m.bias" (h), "head.m.weight" (h, C); of all factors: "head.bias" (C).
    """

    factors: int
    routings: int
    convolutions: int

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        source = torch_source(generator)
        width = self.factors * self.hidden
        weight, bias = (torch.empty(n, width).uniform_(-1, 1, generator=source) * width**-0.5 for n in (features, 1))
        head, head_bias = linear_map(width, classes, source, "torch")
        params: Params = {"head.bias": head_bias}
        for m, columns in enumerate(torch.arange(width).split(self.hidden)):
            params |= {
                f"{m}.weight": weight[:, columns],
                f"{m}.bias": bias[0, columns],
                f"head.{m}.weight": head[columns],
            }
        return params

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        h = self.hidden_rows(params, batch, streams)
        weight = torch.cat([params[f"head.{m}.weight"] for m in range(self.factors)], 1)
        logits = segment_add(segment_product(h, weight, batch.sizes), params["head.bias"], batch.sizes)
        return Forward(logits, [h], activate=lambda rows: rows)

    def hidden_rows(self, params: Params, batch: Batch, streams: Streams | None = None) -> torch.Tensor:
        """Return the last hidden layer (N, M h), with dropout in training."""
        x = batch.x.dropout(self.input_dropout, streams)
        weight, bias = (torch.cat([params[f"{m}.{n}"] for m in range(self.factors)], -1) for n in ("weight", "bias"))
        h = self._activated(segment_add(x @ weight, bias, batch.sizes), batch, streams)
        for _ in range(self.convolutions):
            h = self._activated(self.route(h, batch), batch, streams)
        return h

    def _activated(self, z: torch.Tensor, batch: Batch, streams: Streams | None) -> torch.Tensor:
        return dropout(F.leaky_relu(z), self.dropout, streams, batch.sizes)

    def route(self, h: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return (N, M h) after DisenGCN's neighbourhood routing (Ma et al., ICML 2019), temperature 1."""
        kernels = active_kernels()
        x = unit_rows(h.view(len(h), self.factors, self.hidden))
        u = x
        for _ in range(self.routings if self.factors > 1 else 1):  # all routings of a single factor are equal
            share = kernels.u_dot_v(batch.graph, x, u).softmax(1)  # (E, M, 1)
            u = unit_rows(x + kernels.u_mul_e_sum(batch.graph, x, share))
        return u.reshape(len(h), -1)


@METHODS.register("fediih")
class FedIIH(Exchange):
    """Yu, Chen, Tong, Gu, Gong, AAAI 2025 (arXiv 2412.11402): each latent factor is averaged by its own similarities.

    Client: h_im = leaky_relu(W_m x_i + b_m) for each factor m, then layers without parameters: x = u = unit(h), then
    `routings` times p_jim = softmax over m of <x_jm, u_im>, u_im = unit(x_im + sum over neighbours j of p_jim x_jm);
    h = leaky_relu(u). A linear classifier of all factors; E epochs on the mean cross-entropy. Then the statistics of
    each factor, mean mu_m and log-variance l_m: two more layers, mean over the nodes.
    Server: S^m_ij = exp(scale (1 - JS_ij / log 2)), rows normalised; JS_ij = KL(i || c) / 2 + KL(j || c) / 2 of the
    Gaussians (mu_m, exp l_m) of i and j, c with the means of their means and variances. The parameters of factor m are
    mixed by S^m; the classifier's bias is the uniform mean.
    Messages: theta and the statistics (M h values) up, a personal theta down. Scored: each client's model after
    training. A client that skips rounds keeps its last download.

    Paper and code. The paper infers the factors by a hierarchical variational model with shared means. In the released
    code its loss trains only a vector that is not sent and not used in predictions, so this loss and the server's
    shared mean are left out. The code's networks of mean and log-variance are the same layers without parameters and
    differ in dropout only: here they are one, without dropout, so mu_m = l_m. A row of zeros stays zero and has no
    gradient. Width of a factor, dropout, rate and epochs are the run's (released: 128 or 256, 0.25 to 0.4, Adam
    0.01 to 0.02, 1 to 3). Tuning tries at most 4 factors; the released settings have up to 10 for some datasets.
    """

    family = "personal"
    summary = "averages each latent factor of a disentangled network among clients that are similar in it"
    title = "FedIIH"
    venue = "AAAI 2025"
    paper_url = "https://arxiv.org/abs/2412.11402"
    code_url = "https://github.com/blgpb/FedIIH"
    delivers = "personal"

    factors: int = option(2, "latent factors M (code: 1 to 10 by dataset, Cora 2)", ge=1, tune=[1, 2, 4])
    convolutions: int = option(3, "routing layers (code: 1 to 4 by dataset)", ge=1, tune=[1, 3])
    routings: int = option(6, "iterations of the routing in a layer (code: 2 to 7 by dataset)", ge=1)
    scale: float = option(10.0, "factor of the similarities in the softmax (code: 10)", ge=0)

    def adapt(self, backbone: Backbone) -> Backbone:
        own = {"factors": self.factors, "routings": self.routings, "convolutions": self.convolutions}
        return backbone.turned_into(DisentangledGNN, **own)

    def client(self, clients: ClientBatch) -> Tree:
        return super().client(clients) | {"mean": self.statistics(clients)}

    @torch.no_grad()
    def statistics(self, clients: ClientBatch) -> torch.Tensor:
        """Return (K, M, h), both mean and log-variance of each factor."""
        network, batch = clients.network.backbones[0], clients.batch
        assert isinstance(network, DisentangledGNN)
        z = network.hidden_rows(clients.params, batch)
        for _ in range(STATISTICS_LAYERS):
            z = F.leaky_relu(network.route(z, batch))
        mean = segment_sum(z, batch.owner, len(clients)) / torch.tensor(batch.sizes).unsqueeze(1)
        return mean.view(len(clients), network.factors, -1)

    def server(self, server: Server, uploads: Tree) -> Download:
        models, means = uploads["model"], uploads["mean"]
        equal = torch.full((len(means), len(means)), 1 / len(means))
        fresh = average({"head.bias": models["head.bias"]}, equal)
        for m in range(self.factors):
            names = (f"{m}.weight", f"{m}.bias", f"head.{m}.weight")
            fresh |= average({name: models[name] for name in names}, self.similarity(means[:, m]).to(torch.float32))
        return send(server, fresh)

    def similarity(self, mean: torch.Tensor) -> torch.Tensor:
        """Return S^m (n, n). mean: (n, h) the means of one factor, which are also its log-variances."""
        mu = mean.double()
        variance = mu.exp()
        middle, spread = (mu[:, None] + mu) / 2, (variance[:, None] + variance) / 2
        kl = (spread.log() - mu[:, None] + (variance[:, None] + (mu[:, None] - middle) ** 2) / spread - 1).sum(2) / 2
        js = (kl + kl.T) / 2
        return (self.scale * (1 - js / math.log(2))).softmax(1)
