"""MVGRL with FedAvg and with FedProx: baselines of the FCLG paper."""

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
    normalised,
    option,
)
from .fedavg import FedAvg
from .fedprox import FedProx
from .parts.encoders import GCNEncoder, Head, PersonalisedPageRank, jensen_shannon, named


class MVGRLModel(Encoder):
    """A GCN encoder per view, a projection of node codes and one of graph codes; both views share the projections."""

    @property
    def gcn(self) -> GCNEncoder:
        return GCNEncoder(hidden=self.hidden, layers=self.layers)

    @property
    def node_head(self) -> Head:
        return Head(inputs=self.hidden, out=self.hidden, activation="prelu")

    @property
    def graph_head(self) -> Head:
        return Head(inputs=self.width, out=self.hidden, activation="prelu")

    def draw(self, features: int, source: torch.Generator) -> Params:
        parts = {name: self.gcn.draw(features, source) for name in ("first", "second")}
        parts |= {"node": self.node_head.draw(features, source), "graph": self.graph_head.draw(features, source)}
        return {f"{part}.{name}": value for part, params in parts.items() for name, value in params.items()}


@METHODS.register("mvgrl-fedavg")
class MVGRLFedAvg(GraphMethod, FedAvg):
    """Hassani and Khasahmadi, ICML 2020 (arXiv 2006.05582), averaged over clients as in the FCLG paper (Li et al., IEEE
    BigData 2024, arXiv 2411.12098): unsupervised embeddings of graphs, clients hold sets of graphs.

    View 1 is N = D^-1/2 (A + I) D^-1/2, view 2 the diffusion S = alpha (I - (1 - alpha) N)^-1, each with a separate GCN
    (L layers of width h, PReLU). Node code: node projection of the last layer. Graph code: graph projection (three
    layers and a linear shortcut, shared by the views) of the concatenated sums of all layers. Client k minimises
    JS(nodes of view 1, graphs of view 2) + JS(nodes of view 2, graphs of view 1), JS as in infograph-fedavg. Server:
    mean weighted by numbers of graphs (FCLG, Eq. 1). Messages: the whole model, up and down. Scored: k-means on g1 + g2
    of all graphs under the global model, by default unscaled, as in the FCLG paper, whose results are clusters that
    separate a few outlying graphs.

    Width and depth are those of the run's backbone (FCLG gives none; our choice: h = 32, as in DGL's port, and L = 4);
    the architecture is fixed. Rate, batch size and epochs are the run's (our choice: Adam 1e-3 without decay, B = 128
    or 64).
    """

    family = "graph sets"
    summary = "MVGRL's graph codes, models averaged"
    title = "MVGRL + FedAvg"
    venue = "ICML 2020"
    paper_url = "https://arxiv.org/abs/2006.05582"
    code_url = "https://github.com/kavehhassani/mvgrl"
    encoder = MVGRLModel

    alpha: float = option(0.2, "restart probability of the diffusion (MVGRL)", gt=0, lt=1)
    threshold: float = option(0.0, "drop diffusion entries below this; 0 = exact, as MVGRL for graphs", ge=0)

    def batch_loss(self, clients: GraphClientBatch) -> torch.Tensor:
        batch = clients.minibatch
        (node1, graph1), (node2, graph2) = self._views(clients.params, clients.network, batch)
        head, node_params = encoder_of(clients.network, MVGRLModel).node_head, named(clients.params, "node")
        node1, node2 = (head(node_params, rows, batch.sizes) for rows in (node1, node2))
        lengths, counts = batch.lengths_per_client, batch.counts
        return jensen_shannon(node1, graph2, lengths, counts) + jensen_shannon(node2, graph1, lengths, counts)

    def _views(self, params: Params, network: Network, batch: GraphBatch) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return for each view the node codes (N, h) before projection, and the projected graph codes (B, h)."""
        model, out = encoder_of(network, MVGRLModel), []
        for name, view in (("first", normalised), ("second", PersonalisedPageRank(self.alpha, self.threshold))):
            codes = model.gcn.encode(named(params, name), batch, view)
            out.append((codes.nodes, model.graph_head(named(params, "graph"), codes.graphs, batch.counts)))
        return out

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        (_, first), (_, second) = self._views(params, network, batch)
        return first + second


@METHODS.register("mvgrl-fedprox")
class MVGRLFedProx(FedProx, MVGRLFedAvg):
    """MVGRL's loss + mu/2 ||theta - theta_g||^2 (Li et al., MLSys 2020). All else, also messages, as mvgrl-fedavg."""

    summary = "MVGRL's graph codes, with FedProx's penalty"
    title = "MVGRL + FedProx"
    venue = "ICML 2020"
    paper_url = "https://arxiv.org/abs/2006.05582"
    code_url = "https://github.com/kavehhassani/mvgrl"
