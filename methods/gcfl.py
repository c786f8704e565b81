"""GCFL and GCFL+: FedAvg within clusters of clients, which are split by the similarity of updates."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from ..benchmark.engine import METHODS, ClientBatch, Download, Each, Params, Server, Tensors, Tree, average, option
from .fedavg import Exchange
from .parts.personal import cosine


@METHODS.register("gcfl")
class GCFL(Exchange):
    """Xie, Ma, Xiong, Yang, NeurIPS 2021 (arXiv 2106.13423): clients with sets of graphs, in clusters.

    Client k: theta_k <- its cluster's model, E epochs on its mean cross-entropy. Server, with D_k = theta_k - the model
    sent to k: after `warm_up` rounds a cluster of more than two clients is split if ||mean_k D_k|| < eps1 and
    max_k ||D_k|| > eps2, both in units of `scale` (the cluster as a whole is stationary, its members are not), along
    the minimum cut (Stoer-Wagner) of the graph of its members with weights 1 + cos(D_i, D_j). Then each cluster's model
    is the mean of its members' models, weighted by the training configuration's `weighting`. Messages: the model up,
    the cluster's model down. Scored: each client with its cluster's model after aggregation.

    As in the released code, the mean of updates for eps1 is uniform (in the paper weighted), and 1 is added to the
    cosine, because cuts need non-negative weights. Departures: the released code reports the best test accuracy of all
    models that a client ever had, here the round is selected by validation as for all methods; it shares only the
    convolutions, here the whole model is shared, because all clients have graphs of one set. A cluster with a missing
    member (partial participation) is not split. Without a split, also with eps1 = 0, it is bitwise identical to FedAvg.

    The norms depend on the model, the learning rate and the steps per round. With the whole model and Adam 0.005,
    ||mean D|| falls from 0.7-1.0 in the first rounds to 0.07-0.13 at the end (MUTAG, ENZYMES, PROTEINS): the released
    0.03 never splits. With `scale` "largest", our reading, the unit is the largest ||mean D|| of the rounds so far.
    """

    family = "personal"
    summary = "FedAvg within clusters of clients, which are split if their updates diverge"
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
        0.06, "minimal norm of the largest update (released scripts: 0.06 on PROTEINS, 0.08 on NCI1)", ge=0
    )
    scale: Literal["absolute", "largest"] = option(
        "absolute",
        "unit of eps1 and eps2: 1 (released code), or the largest norm of all clients' mean update so far",
        later=True,
    )
    warm_up: int = option(20, "rounds before the first split (released code)", ge=0)

    def open(self, server: Server) -> Download:
        model = server.initial_model()
        server.state["clusters"] = [list(range(server.clients))]
        server.state["largest"] = 0.0
        server.state["sent"] = {name: v.expand(server.clients, *v.shape).clone() for name, v in model.items()}
        return {"model": model}

    def server(self, server: Server, uploads: Tree) -> Download:
        models, sent = uploads["model"], server.state["sent"]
        moved = torch.cat([(models[name] - sent[name][server.participants]).flatten(1) for name in sent], 1)
        server.state["largest"] = max(server.state["largest"], float(moved.mean(0).norm()))
        self.observe(server, uploads, moved)
        server.state["clusters"] = [
            part for cluster in server.state["clusters"] for part in self.parted(server, cluster, moved)
        ]
        server.state["sent"] = self.clusterwise(server, models)
        return Each({"model": server.state["sent"]}, range(server.clients))

    def observe(self, server: Server, uploads: Tree, moved: torch.Tensor) -> None:
        """Keep data of a round; nothing here. moved: (participants, c) the updates D."""

    def parted(self, server: Server, cluster: list[int], moved: torch.Tensor) -> list[list[int]]:
        """Return the cluster, or the two clusters of its split. moved: (participants, c) the updates D."""
        rows = [server.participants.index(client) for client in cluster if client in server.participants]
        if len(cluster) <= 2 or len(rows) < len(cluster) or server.round <= self.warm_up:
            return [cluster]
        unit = server.state["largest"] if self.scale == "largest" else 1.0
        mean, largest = float(moved[rows].mean(0).norm()), float(moved[rows].norm(dim=1).max())
        diverges = mean < self.eps1 * unit and largest > self.eps2 * unit
        likeness = self.likeness(server, cluster, moved[rows]) if diverges else None
        if likeness is None:
            return [cluster]
        return [[cluster[place] for place in part] for part in min_cut(likeness)]

    def likeness(self, server: Server, cluster: list[int], moved: torch.Tensor) -> np.ndarray | None:
        """Return the similarities (n, n) >= 0 of the members of a cluster, or None if they are not known yet."""
        return (1 + cosine(moved)).clamp(min=0).double().numpy()

    def clusterwise(self, server: Server, models: Params) -> Params:
        """Return (clients, ...) the mean of each client's cluster; unchanged for a cluster without participants."""
        fresh = {name: value.clone() for name, value in server.state["sent"].items()}
        sizes = server.weights
        for cluster in server.state["clusters"]:
            rows = [place for place, client in enumerate(server.participants) if client in cluster]
            if not rows:
                continue
            share = sizes[rows]
            if len(rows) < len(sizes):  # otherwise the weights already add up to 1
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
    """GCFL whose clusters are split by series of gradient norms. The distance of two clients is that of their last
    `length` gradient norms by dynamic time warping (the root of the sum of squared differences along the best path);
    the weight of their edge is the largest distance minus theirs. No cluster is split before all series have this
    length, and all series restart after a split (released code).

    Messages: as GCFL, and up with the model one scalar, the 2-norm of the last minibatch's gradient (`series`
    "gradient", the released GCFL+); no scalar with "update" (its variant), because the server knows the updates' norms.
    """

    summary = "GCFL whose clusters are split by the series of gradient norms"
    title = "GCFL+"
    venue = "NeurIPS 2021"
    paper_url = "https://arxiv.org/abs/2106.13423"
    code_url = "https://github.com/Oxfordblue7/GCFL"

    length: int = option(10, "length of the series in rounds (released code: 10; its scripts: 5 and 10)", ge=2)
    series: Literal["gradient", "update"] = option(
        "gradient", "the series: norms of the last gradient (GCFL+), or of the updates (its variant)"
    )
    standardise: bool = option(False, "divide each series by its standard deviation (released code: no)")

    def open(self, server: Server) -> Download:
        server.state["series"] = [[] for _ in range(server.clients)]
        return super().open(server)

    def client(self, clients: ClientBatch) -> Tree:
        last = torch.zeros(len(clients))

        def keep_norm(_: ClientBatch, grads: Tensors) -> Tensors:
            norm = torch.stack([grad.flatten(1).square().sum(1) for grad in grads.values()]).sum(0).sqrt()
            last.copy_(torch.where(norm > 0, norm, last))  # a client without a batch in this step has gradient 0
            return grads

        clients.load(clients.received["model"])
        clients.fit(self.local_loss, adjust=keep_norm)
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
        distance = np.array([[dtw(one, other) for other in last] for one in last])
        return np.asarray(distance.max() - distance)


def dtw(one: np.ndarray, other: np.ndarray) -> float:
    """Return the distance of two series by dynamic time warping: the root of the minimal sum of squared differences
    along a monotone path from both starts to both ends."""
    best = np.full((len(one) + 1, len(other) + 1), np.inf)
    best[0, 0] = 0.0
    for i, value in enumerate(one):
        for j, other_value in enumerate(other):
            best[i + 1, j + 1] = (value - other_value) ** 2 + min(best[i, j], best[i, j + 1], best[i + 1, j])
    return float(np.sqrt(best[-1, -1]))


def min_cut(weight: np.ndarray) -> tuple[list[int], list[int]]:
    """Return the two sides of the minimum cut of a complete graph (Stoer and Wagner, 1997), both sorted, that of node 0
    first. weight: (n, n) symmetric, >= 0; n >= 2."""
    import networkx as nx  # the import takes a quarter of a second

    graph: Any = nx.Graph()
    count = len(weight)
    graph.add_weighted_edges_from((i, j, float(weight[i, j])) for i in range(count) for j in range(i + 1, count))
    _, sides = nx.stoer_wagner(graph)
    first, second = sorted(map(sorted, sides))
    return first, second
