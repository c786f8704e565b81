"""GCFL and GCFL+: FedAvg within clusters of clients, which are split by what their updates look like."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from ..benchmark.engine import METHODS, ClientBatch, Download, Each, Params, Server, Tensors, Tree, average
from ..registry import option
from .fedavg import LocalTraining
from .parts.personal import cosine


@METHODS.register("gcfl")
class GCFL(LocalTraining):
    """Xie, Ma, Xiong, Yang, NeurIPS 2021 (arXiv 2106.13423): clients that hold sets of graphs, in clusters.

    Client k: theta_k <- its cluster's model, E epochs on its mean cross-entropy. Server, with D_k = theta_k - what k
    was sent: a cluster of over two is divided when ||mean_k D_k|| < eps1 and max_k ||D_k|| > eps2 (it does not move
    as a whole while members do), both in units of `scale`, after `warm_up`
    rounds: along the minimum cut (Stoer-Wagner) of the
    graph of its members with weights 1 + cos(D_i, D_j). Then each cluster's model is the mean of its members', weighted
    by the training configuration's `weighting`. Messages: the model up, the cluster's model down. Scored: each client
    under its cluster's model after aggregation.

    As in the released code, the mean of updates that eps1 bounds is a plain one (in the paper it is weighted), and 1 is
    added to the cosine, as cuts need weights that are not negative. Departures: the released code reports the best test
    accuracy of all models that a client was ever given, here the round is chosen by validation as for every method;
    it shares the convolutions alone, here the whole model is shared, since all clients have graphs of one set. A
    cluster with a missing member (partial participation) is not cut. While nothing is cut, it is FedAvg to the
    last bit; so it is with eps1 = 0.

    The norms depend on the model, the rate and the steps of a round. With the whole model and Adam 0.005, ||mean D||
    goes from 0.7-1.0 in the first rounds to 0.07-0.13 at the end (MUTAG, ENZYMES, PROTEINS): the released 0.03 never
    cuts. `scale` "largest" measures both bounds in units of the largest ||mean D|| of a round so far, our reading.
    """

    family = "personal"
    summary = "FedAvg within clusters of clients, which are split when their updates part ways"
    title = "GCFL"
    venue = "NeurIPS 2021"
    paper_url = "https://arxiv.org/abs/2106.13423"
    code_url = "https://github.com/Oxfordblue7/GCFL"
    tasks = ("graph-classification",)
    heterogeneous_features = True
    delivers = "personal"

    eps1: float = option(
        0.03,
        "bound of the norm of the mean update (released scripts: 0.03 on PROTEINS, 0.04 on NCI1)",
        ge=0,
        tune=[
            {"eps1": 0.03, "eps2": 0.06, "scale": "absolute"},
            *({"eps1": low, "eps2": 2 * low, "scale": "largest"} for low in (0.05, 0.1, 0.2, 0.4)),
        ],
    )
    eps2: float = option(
        0.06, "least norm of the largest update (released scripts: 0.06 on PROTEINS, 0.08 on NCI1)", ge=0
    )
    scale: Literal["absolute", "largest"] = option(
        "absolute",
        "unit of eps1 and eps2: 1 (released code), or the largest norm of all clients' mean update so far",
        later=True,
    )
    warm_up: int = option(20, "rounds before the first cut (released code)", ge=0)

    def open(self, server: Server) -> Download:
        model = server.initial_model()
        server.state["clusters"] = [list(range(server.clients))]
        server.state["largest"] = 0.0
        server.state["sent"] = {name: v.expand(server.clients, *v.shape).clone() for name, v in model.items()}
        return {"model": model}

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        clients.fit(self.local_loss)
        return {"model": clients.params}

    def server(self, server: Server, uploads: Tree) -> Download:
        there, models, sent = server.participants, uploads["model"], server.state["sent"]
        moved = torch.cat([(models[name] - sent[name][there]).flatten(1) for name in sent], 1)
        server.state["largest"] = max(server.state["largest"], float(moved.mean(0).norm()))
        self.observe(server, uploads, moved)
        server.state["clusters"] = [
            part for cluster in server.state["clusters"] for part in self.parted(server, cluster, moved)
        ]
        server.state["sent"] = self.clusterwise(server, models)
        return Each({"model": server.state["sent"]}, range(server.clients))

    def observe(self, server: Server, uploads: Tree, moved: torch.Tensor) -> None:
        """What the server remembers of a round; nothing. moved: (participants, c) the updates D."""

    def parted(self, server: Server, cluster: list[int], moved: torch.Tensor) -> list[list[int]]:
        """The cluster, or the two that it falls into. moved: (participants, c) the updates D."""
        rows = [server.participants.index(client) for client in cluster if client in server.participants]
        if len(cluster) <= 2 or len(rows) < len(cluster) or server.round <= self.warm_up:
            return [cluster]
        unit = server.state["largest"] if self.scale == "largest" else 1.0
        mean, largest = float(moved[rows].mean(0).norm()), float(moved[rows].norm(dim=1).max())
        still = mean < self.eps1 * unit and largest > self.eps2 * unit
        likeness = self.likeness(server, cluster, moved[rows]) if still else None
        if likeness is None:
            return [cluster]
        return [[cluster[place] for place in part] for part in min_cut(likeness)]

    def likeness(self, server: Server, cluster: list[int], moved: torch.Tensor) -> np.ndarray | None:
        """(n, n) similarity of the members of a cluster, at least 0; None: not known yet."""
        return (1 + cosine(moved)).clamp(min=0).double().numpy()

    def clusterwise(self, server: Server, models: Params) -> Params:
        """(clients, ...) each cluster's mean, at all its members; as it was where none took part."""
        fresh = {name: value.clone() for name, value in server.state["sent"].items()}
        sizes = server.weights
        for cluster in server.state["clusters"]:
            rows = [place for place, client in enumerate(server.participants) if client in cluster]
            if not rows:
                continue
            share = sizes[rows]
            if len(rows) < len(sizes):  # the weights of all add up to 1 already
                share = share / share.sum() if share.sum() > 0 else torch.full((len(rows),), 1 / len(rows))
            mean = average({name: value[rows] for name, value in models.items()}, share)
            for name, value in mean.items():
                fresh[name][cluster] = value
        return fresh

    def personal_model(self, clients: ClientBatch) -> Params | None:
        model: Params = clients.received["model"]
        return model


@METHODS.register("gcfl+")
class GCFLPlus(GCFL):
    """GCFL whose clusters are cut by how the clients' gradients went: the distance of two clients is that of their last
    `length` gradient norms by dynamic time warping (squared differences along the best path, the root of their sum),
    the weight of their edge the largest distance less theirs. Nothing is cut before everybody's series is so long, and
    all series start anew after a cut (released code).

    Messages: as GCFL, and up with the model one scalar, the 2-norm of the last minibatch's gradient (`series`
    "gradient", the released GCFL+); or none, for the server has the norms of the updates ("update", its variant).
    """

    summary = "GCFL whose clusters are split by how the norms of gradients went"
    title = "GCFL+"
    venue = "NeurIPS 2021"
    paper_url = "https://arxiv.org/abs/2106.13423"
    code_url = "https://github.com/Oxfordblue7/GCFL"

    length: int = option(10, "rounds that are compared (released code: 10; its scripts: 5 and 10)", ge=2)
    series: Literal["gradient", "update"] = option(
        "gradient", "what is compared: norms of the last gradient (GCFL+), or of the updates (its variant)"
    )
    standardise: bool = option(False, "divide each series by its standard deviation (released code: no)")

    def open(self, server: Server) -> Download:
        server.state["series"] = [[] for _ in range(server.clients)]
        return super().open(server)

    def client(self, clients: ClientBatch) -> Tree:
        last = torch.zeros(len(clients))

        def watched(_: ClientBatch, grads: Tensors) -> Tensors:
            norm = torch.stack([grad.flatten(1).square().sum(1) for grad in grads.values()]).sum(0).sqrt()
            last.copy_(torch.where(norm > 0, norm, last))  # who sits a step out has no gradient in it
            return grads

        clients.load(clients.received["model"])
        clients.fit(self.local_loss, adjust=watched)
        return {"model": clients.params} | ({"norm": last.unsqueeze(1)} if self.series == "gradient" else {})

    def observe(self, server: Server, uploads: Tree, moved: torch.Tensor) -> None:
        norms = uploads["norm"].squeeze(1) if self.series == "gradient" else moved.norm(dim=1)
        for client, norm in zip(server.participants, norms.tolist(), strict=True):
            server.state["series"][client].append(norm)

    def likeness(self, server: Server, cluster: list[int], moved: torch.Tensor) -> np.ndarray | None:
        series = server.state["series"]
        if min(map(len, series)) < self.length:
            return None
        last = np.array([series[client][-self.length :] for client in cluster])
        if self.standardise:
            last /= np.maximum(last.std(axis=1, keepdims=True), 1e-12)
        server.state["series"] = [[] for _ in range(server.clients)]
        apart = np.array([[dtw(one, other) for other in last] for one in last])
        return np.asarray(apart.max() - apart)


def dtw(one: np.ndarray, other: np.ndarray) -> float:
    """Distance of two series by dynamic time warping: the root of the least sum of squared differences along a path
    from both starts to both ends that never steps back in either."""
    best = np.full((len(one) + 1, len(other) + 1), np.inf)
    best[0, 0] = 0.0
    for i, value in enumerate(one):
        for j, beside in enumerate(other):
            best[i + 1, j + 1] = (value - beside) ** 2 + min(best[i, j], best[i, j + 1], best[i + 1, j])
    return float(np.sqrt(best[-1, -1]))


def min_cut(weight: np.ndarray) -> tuple[list[int], list[int]]:
    """The two sides of the minimum cut of a complete graph (Stoer and Wagner, 1997), each in order, that of node 0
    first. weight: (n, n) symmetric, at least 0; n at least 2."""
    import networkx as nx  # a quarter of a second to import: only where it is needed

    graph: Any = nx.Graph()
    count = len(weight)
    graph.add_weighted_edges_from((i, j, float(weight[i, j])) for i in range(count) for j in range(i + 1, count))
    _, sides = nx.stoer_wagner(graph)
    first, second = sorted(map(sorted, sides))
    return first, second
