"""InfoGraph with FedAvg and with FedProx: baselines of the FCLG paper."""

from __future__ import annotations

import torch

from ..benchmark.engine import (
    METHODS,
    Encoder,
    GraphBatch,
    GraphClientBatch,
    GraphMethod,
    Network,
    Params,
    encoder_of,
    neighbours,
)
from .fedavg import FedAvg
from .fedprox import FedProx
from .parts.encoders import GINEncoder, Head, jensen_shannon, named


class InfoGraphModel(Encoder):
    """A GIN encoder, a discriminator of node codes and one of graph codes, all of width L h."""

    @property
    def gin(self) -> GINEncoder:
        return GINEncoder(hidden=self.hidden, layers=self.layers)

    @property
    def discriminator(self) -> Head:
        return Head(inputs=self.width, out=self.width)

    def draw(self, features: int, source: torch.Generator) -> Params:
        parts = {"encoder": self.gin.draw(features, source)}
        parts |= {name: self.discriminator.draw(features, source) for name in ("local", "global")}
        return {f"{part}.{name}": value for part, params in parts.items() for name, value in params.items()}


@METHODS.register("infograph-fedavg")
class InfoGraphFedAvg(GraphMethod, FedAvg):
    """Sun et al., ICLR 2020 (arXiv 1908.01000), averaged over clients as in the FCLG paper (Li et al., IEEE BigData
    2024, arXiv 2411.12098): unsupervised embeddings of graphs, clients hold sets of graphs.

    GIN encoder of L layers of width h with BatchNorm; node code H_i = concatenated outputs of all layers, graph code U
    = sum over its nodes. With l = D_local(H), g = D_global(U), three layers and a linear shortcut each, client k
    minimises over a minibatch of B graphs with n nodes the Jensen-Shannon form (without the paper's optional prior)
        1/(n (B-1)) sum_{i not in b} [softplus(-l_i.g_b) + l_i.g_b - log 2]
        - 1/n sum_{i in b} [log 2 - softplus(-l_i.g_b)].
    Server: mean of the models weighted by the clients' numbers of graphs (FCLG, Eq. 1). Messages: the model up and
    down, encoder and discriminators (L h = w: 4 (w^2 + w) scalars each), also the 2 L h running statistics of
    BatchNorm, which are averaged because scoring needs them. Scored: k-means on U of all graphs under the global
    model.

    Width and depth are those of the run's backbone (FCLG gives none; our choice: h = 32, InfoGraph's release, and
    L = 4); the architecture is fixed. Rate, batch size and epochs are the run's (our choice: Adam 1e-3, B = 128 or 64,
    E = 5, R = 50).
    """

    family = "graph sets"
    summary = "InfoGraph's graph codes, models averaged"
    title = "InfoGraph + FedAvg"
    venue = "ICLR 2020"
    paper_url = "https://arxiv.org/abs/1908.01000"
    code_url = "https://github.com/sunfanyunn/InfoGraph"
    encoder = InfoGraphModel

    def batch_loss(self, clients: GraphClientBatch) -> torch.Tensor:
        model, batch, params = encoder_of(clients.network, InfoGraphModel), clients.minibatch, clients.params
        codes = model.gin.encode(named(params, "encoder"), batch, neighbours, track=True)
        nodes = model.discriminator(named(params, "local"), codes.nodes, batch.sizes)
        graphs = model.discriminator(named(params, "global"), codes.graphs, batch.counts)
        return jensen_shannon(nodes, graphs, batch.lengths_per_client, batch.counts)

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        encoder = encoder_of(network, InfoGraphModel).gin
        return encoder.encode(named(params, "encoder"), batch, neighbours, training=False).graphs


@METHODS.register("infograph-fedprox")
class InfoGraphFedProx(FedProx, InfoGraphFedAvg):
    """InfoGraph's loss + mu/2 ||theta - theta_g||^2 (Li et al., MLSys 2020), theta without BatchNorm's running
    statistics. All else, also messages, as infograph-fedavg.
    """

    summary = "InfoGraph's graph codes, with FedProx's penalty"
    title = "InfoGraph + FedProx"
    venue = "ICLR 2020"
    paper_url = "https://arxiv.org/abs/1908.01000"
    code_url = "https://github.com/sunfanyunn/InfoGraph"
