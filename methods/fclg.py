"""FCLG, its node-level variant FCLG-H, and the distillation baselines that share its intra-client loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    METHODS,
    ClientBatch,
    GraphBatch,
    GraphClientBatch,
    GraphMethod,
    Network,
    Params,
    Tree,
    encoder_of,
    neighbours,
    option,
)
from .fedavg import FedAvg
from .parts.dual import kl
from .parts.encoders import Codes, GINEncoder, PersonalisedPageRank, between_views, to_global_from_previous


@METHODS.register("intra-fedavg")
class IntraFedAvg(GraphMethod, FedAvg):
    """FedAvg with FCLG's intra-client contrast (Intra-FedAvg of Li, Agrawal, Ramnath and Jin, IEEE BigData 2024, arXiv
    2411.12098): unsupervised embeddings of graphs; clients hold sets of graphs.

    One GIN of L layers of width h with BatchNorm encodes a graph with its adjacency and with its diffusion
    S = alpha (I - (1 - alpha) D^-1/2 (A + I) D^-1/2)^-1. Node codes H = concatenated outputs of all layers, graph codes
    U (adjacency) and V (diffusion) = sums over the nodes. For a minibatch of B graphs, u and v the codes of one graph,
        l(u, v) = log sum_{z in U + V, z != u} exp(u.z / tau) - u.v / tau,   l_intra = 1/(2B) sum [l(u, v) + l(v, u)].
    Server: mean of the participants' models weighted by their numbers of graphs (Eq. 1; line 8 of the algorithm divides
    by all clients). Messages: the encoder up and down, also the 2 L h running statistics of BatchNorm, which are
    averaged because scoring needs them. Scored: k-means on U of all graphs under the global model.

    Departures and choices: codes are scaled to length 1 in l_intra, because raw products of sums over hundreds of nodes
    overflow (`unit_codes` false: as printed). BatchNorm's running statistics are those of the adjacency view, which is
    scored. The paper gives no hyper-parameter except K = 6. Width and depth are those of the run's backbone (our
    choice: h = 32, L = 4); rate, batch size, epochs and optimiser are the run's (our choice: Adam 1e-3 without decay,
    B = 128, 64 for ENZYMES and DHFR, E = 5, R = 50; line 19 of the algorithm uses SGD).
    """

    family = "graph sets"
    summary = "graph codes by contrast between each graph and its diffusion, models averaged"
    title = "Intra-FedAvg"
    venue = "IEEE BigData 2024"
    paper_url = "https://arxiv.org/abs/2411.12098"
    encoder = GINEncoder

    tau: float = option(0.5, "temperature of the intra-client contrast; not in the paper, MOON's 0.5", gt=0)
    unit_codes: bool = option(
        True, "scale codes to length 1 in the intra-client contrast (SimCLR; our choice), or use raw codes"
    )
    alpha: float = option(0.2, "restart probability of the diffusion; not in the paper, MVGRL's", gt=0, lt=1)
    threshold: float = option(0.0, "drop diffusion entries below this; 0 = exact (our choice)", ge=0)

    def batch_loss(self, clients: GraphClientBatch) -> torch.Tensor:
        encoder, batch, params = encoder_of(clients.network, GINEncoder), clients.minibatch, clients.params
        codes = encoder.encode(params, batch, neighbours, track=True)
        diffused = encoder.encode(params, batch, PersonalisedPageRank(self.alpha, self.threshold))
        return self.intra(codes.graphs, diffused.graphs, batch) + self.distilled(clients, codes)

    def intra(self, first: torch.Tensor, second: torch.Tensor, batch: GraphBatch) -> torch.Tensor:
        """Return l_intra (K,) of the two views' codes (B, L h)."""
        if self.unit_codes:
            first, second = F.normalize(first), F.normalize(second)
        pairs = zip(first.split(batch.counts), second.split(batch.counts), strict=True)
        return torch.stack([between_views(u, v, self.tau) if len(u) else u.new_zeros(()) for u, v in pairs])

    def distilled(self, clients: GraphClientBatch, codes: Codes) -> torch.Tensor:
        """Return (K,) further losses of the adjacency view's codes against other models; 0 here."""
        return torch.zeros(len(clients))

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        return encoder_of(network, GINEncoder).encode(params, batch, neighbours, training=False).graphs


def frozen(clients: GraphClientBatch, model: Params) -> Codes:
    """Return the minibatch's codes under a model without gradient; BatchNorm uses the minibatch's statistics.

    So equal models give equal codes.
    """
    with torch.no_grad():
        return encoder_of(clients.network, GINEncoder).encode(model, clients.minibatch, neighbours)


@METHODS.register("intra-kl")
class IntraKL(IntraFedAvg):
    """Intra-FedAvg + KL(p_s || p_c), p = softmax over the dimensions of a graph code (Eq. 2 of the FCLG paper).

    p_s: under the received global model, fixed; p_c: under the client's. Summed over dimensions, averaged over graphs.
    The text mentions a temperature that Eq. 2 lacks: 1. Messages as intra-fedavg.
    """

    summary = "Intra-FedAvg with the KL divergence of its graph codes from the server's"
    title = "Intra-KL"
    venue = "IEEE BigData 2024"
    paper_url = "https://arxiv.org/abs/2411.12098"

    distillation: float = option(1.0, "weight of the distillation term (no weight in Eq. 2)", ge=0)

    def distilled(self, clients: GraphClientBatch, codes: Codes) -> torch.Tensor:
        shared = frozen(clients, clients.received["model"]).graphs
        return self.distillation * clients.minibatch.mean_over_graphs(self.gap(codes.graphs, shared))

    def gap(self, codes: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
        """Return the distance (B,) of graph codes (B, L h) from those of the global model."""
        return kl(shared.log_softmax(1), codes.log_softmax(1))


@METHODS.register("intra-mse")
class IntraMSE(IntraKL):
    """Intra-FedAvg + ||f_c(x) - f_s(x)||^2 on graph codes (Intra-MSE of the FCLG paper, Eq. 3), averaged over graphs.

    The codes are sums over nodes, so this term is large and keeps the encoder close to the global one. Messages as
    intra-fedavg.
    """

    summary = "Intra-FedAvg with the squared distance of its graph codes from the server's"
    title = "Intra-MSE"
    venue = "IEEE BigData 2024"
    paper_url = "https://arxiv.org/abs/2411.12098"

    def gap(self, codes: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
        return (codes - shared).square().sum(1)


@METHODS.register("fclg")
class FCLG(IntraFedAvg):
    """Li, Agrawal, Ramnath and Jin, IEEE BigData 2024 (arXiv 2411.12098): Intra-FedAvg + inter-client contrast (Eq. 7),

        l_inter = -log( e^{cos(U, U_s)/tau'} / (e^{cos(U, U_s)/tau'} + e^{cos(U, U_c)/tau'}) ), averaged over graphs,

    U_s under the received global model, U_c under the client's model at the end of its previous local epoch (MOON uses
    the previous round). In the first epoch both are the received weights: the term is log 2 without gradient, so the
    method differs from Intra-FedAvg only with two or more local epochs. Messages as intra-fedavg.

    The paper uses the same name for Eq. 4, dot products without temperature; here Eq. 7 is used.
    """

    summary = "graph codes by contrast within a client and against the server's model"
    title = "FCLG"
    venue = "IEEE BigData 2024"
    paper_url = "https://arxiv.org/abs/2411.12098"

    tau_inter: float = option(0.5, "temperature of the inter-client contrast; not in the paper, MOON's 0.5", gt=0)
    inter: float = option(1.0, "weight of the inter-client contrast (paper: plain sum)", ge=0)

    def client(self, clients: ClientBatch) -> Tree:
        def remember() -> None:
            clients.state["previous"] = {name: value.detach().clone() for name, value in clients.params.items()}

        clients.load(clients.received["model"])
        clients.fit(self.local_loss, each_epoch=remember)
        return {"model": clients.params}

    def distilled(self, clients: GraphClientBatch, codes: Codes) -> torch.Tensor:
        shared, previous = frozen(clients, clients.received["model"]), frozen(clients, clients.state["previous"])
        return self.inter * self.contrast(clients.minibatch, codes, shared, previous)

    def contrast(self, batch: GraphBatch, now: Codes, shared: Codes, previous: Codes) -> torch.Tensor:
        """Return l_inter (K,)."""
        values = to_global_from_previous(now.graphs, shared.graphs, previous.graphs, self.tau_inter)
        return batch.mean_over_graphs(values)


@METHODS.register("fclg-h")
class FCLGH(FCLG):
    """FCLG with the inter-client contrast on node codes H instead of graph codes U (Eq. 8), averaged over the nodes of
    the minibatch. The paper's text changes the intra-client contrast, its Eq. 8 the inter-client contrast; here Eq. 8
    is used. Messages as intra-fedavg.
    """

    summary = "FCLG with the inter-client contrast on node codes"
    title = "FCLG-H"
    venue = "IEEE BigData 2024"
    paper_url = "https://arxiv.org/abs/2411.12098"

    def contrast(self, batch: GraphBatch, now: Codes, shared: Codes, previous: Codes) -> torch.Tensor:
        values = to_global_from_previous(now.nodes, shared.nodes, previous.nodes, self.tau_inter)
        return batch.mean_over_nodes(values)
