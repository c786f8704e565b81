"""FedGL: FedAvg whose server computes pseudo-labels and a pseudo-graph for all clients, and its two ablations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    GCN,
    METHODS,
    SGC,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    Each,
    Facts,
    Phase,
    Server,
    SparseMatrix,
    Step,
    TrainConfig,
    Tree,
    option,
    section,
)
from .fedavg import FedAvg

# -- the pseudo-graph --------------------------------------------------------------------------------------------------

CHUNK = 2**20  # similarities in memory at a time


@section("augmentation")
def similarity_graph(h: torch.Tensor, neighbours: int) -> sp.csr_matrix:
    """Return the `neighbours` largest entries of each row of max(h h^T, 0), rows scaled to sum 1.

    h: (n, C). Returns float32 (n, n); a row without a positive entry is empty.
    """
    values, columns = [], []
    for rows in h.split(max(1, CHUNK // max(len(h), 1))):
        top = (rows @ h.T).clamp_(min=0).topk(min(neighbours, len(h)), sorted=False)
        values.append(top.values / top.values.sum(1, keepdim=True).clamp(min=torch.finfo(h.dtype).tiny))
        columns.append(top.indices)
    value, column = torch.cat(values).numpy(), torch.cat(columns).numpy()
    ends = np.arange(len(h) + 1) * column.shape[1]
    graph = sp.csr_matrix((value.ravel(), column.ravel(), ends), shape=(len(h), len(h)))
    graph.eliminate_zeros()
    return graph


def normalised(graph: sp.csr_matrix) -> sp.csr_matrix:
    """Return D^-1/2 A D^-1/2, D the row sums of A; 0^-1/2 = 0."""
    degree = np.asarray(graph.sum(1)).ravel()
    scale = np.where(degree > 0, degree, np.inf) ** -0.5
    return (sp.diags(scale) @ graph @ sp.diags(scale)).astype(np.float32)


def released(graph: sp.csr_matrix) -> sp.csr_matrix:
    """Return D^-1/2 A^T D^-1/2 of A with ones on its diagonal, D its row sums, as OpenFGL's server."""
    ones = graph + sp.diags(1 - graph.diagonal())
    return normalised(ones).T.tocsr()


# -- the method --------------------------------------------------------------------------------------------------------

# Pairs of nodes compared per round: Coauthor-Physics (1.2e9) takes seconds, ogbn-arxiv (2.9e10) minutes.
MOST_PAIRS = 2 * 10**9


@METHODS.register("fedgl")
class FedGL(FedAvg):
    """Chen, Hu, Xu, Zheng, 2021 (arXiv 2105.03170): node classification, clients that overlap in nodes.

    Client k: L = CE over its training nodes + alpha CE against the pseudo-labels of its other nodes, on the propagation
    matrix A_hat_k + beta D^-1/2 A^(k) D^-1/2, A^(k) the server's pseudo-graph among the client's nodes, D its degrees.
    It reports its predictions without dropout: H_k = logits (N_k, C), P_k = softmax(H_k).
    Server: theta <- sum_k w_k theta_k, w_k = N_k / sum N (the configuration's `weighting`). S_i are the clients that
    reported node i: P_i = sum_(k in S_i) w_k P_ki / W_i, W_i = sum_(k in S_i) w_k, and H_i likewise. The pseudo-label
    of i is argmax P_i if max P_i > threshold. The pseudo-graph keeps the s largest entries of each row of
    max(H H^T, 0), rows scaled to sum 1. The first round uses neither.

    Messages: theta, P_k (N_k, C) and H_k (N_k, C) up, as in the paper, although H_k alone would be enough; theta,
    pseudo-labels (N_k,) int64 with -1 for none, and the pseudo-graph's entries among the client's nodes, at most N_k s
    (with "openfgl" N_k (s + 1)) pairs of value and index row N_k + column, down. Messages without use because of
    alpha = 0, beta = 0 or a later `start` are not sent. The node ids for alignment, (N_k,) int64, are sent up once
    before the rounds. With partial participation, nodes that no client reported in the last round have no pseudo-label
    and no pseudo-edge. Scored on the true graph, as other methods; FedGL's global goal is `score_on: union`.

    Departures. Eq. 11 and 13 weight over all clients although only S_i hold node i, which limits the confidence to W_i:
    here it is divided by W_i unless `literal`. Eq. 8 sums over nodes, so thousands of pseudo-labels outweigh 140
    labels: here means unless `reduction` is "sum". Kipf's biases, L2 on all weights; Adam's state is kept over rounds.

    Readings. (1) A with scaled rows is not symmetric. Our choice is (A + A^T) / 2 before normalisation
    (`pseudo_graph`); a node can then have more than s neighbours, hundreds if its outputs are the largest; with Eq. 9
    as printed it cannot. OpenFGL sets A_ii = 1 and selects each client's part of D^-1/2 A^T D^-1/2 of the whole graph;
    the 0.1 that it adds at random to empty columns is left out. (2) Algorithm 1 reports H_k and P_k before the
    minimisation (line 6) and on the completed graph (lines 5-6). Here they are reported after it, as in OpenFGL, and on
    the client's own graph, on which predictions are scored, because outputs from the pseudo-graph repeat its errors
    (`report_when`, `report_on`). (3) The pseudo-graph needs useful outputs after one round: with features divided by
    their row sums, the first pseudo-graphs join random nodes (`start`). (4) A_hat_k + beta ... is computed again every
    round and does not accumulate.
    """

    family = "graph repair"
    summary = "the server adds pseudo-edges and confident pseudo-labels to clients that share nodes"
    title = "FedGL"
    venue = "arXiv 2021"
    paper_url = "https://arxiv.org/abs/2105.03170"
    tasks = ("node",)

    alpha: float = option(0.2, "weight of the pseudo-labels (paper: 0.2, Wiki 0.1)", ge=0, tune=[0.1, 0.2, 0.5])
    beta: float = option(1.0, "weight of the pseudo-graph (paper: 1)", ge=0, tune=[0.0, 0.1, 1.0])
    threshold: float = option(0.5, "confidence lambda of a pseudo-label (paper: 0.5, Wiki 0.1)", ge=0, lt=1)
    neighbours: int = option(100, "pseudo-neighbours s of a node (paper: 100)", ge=1)
    reduction: Literal["mean", "sum"] = option(
        "mean", "both losses as means over nodes (ours, and OpenFGL's), or as sums (paper, Eq. 8)"
    )
    literal: bool = option(False, "fuse by Eq. 11 and 13 as printed, not divided by the holders' weight")
    threshold_on: Literal["fused", "each"] = option(
        "fused", "apply the threshold to the fused prediction (paper), or to each client's before (OpenFGL)"
    )
    report_on: Literal["own", "augmented"] = option(
        "own", "reported outputs are computed on the client's own graph (ours), or on A_hat + beta A"
    )

    report_when: Literal["after", "before"] = option(
        "after", "outputs of the trained model (ours, OpenFGL), or of the received one (paper, Alg. 1)", later=True
    )
    pseudo_graph: Literal["symmetric", "printed", "openfgl"] = option(
        "symmetric",
        "A made symmetric, then normalised (ours); Eq. 9 as printed; or OpenFGL's: diagonal 1, normalised "
        "before each client's part is selected",
        later=True,
    )
    start: int = option(
        2, "first round with pseudo-labels and pseudo-graph (paper: 2); other values are ours", ge=2, later=True
    )

    def skip(self, facts: Facts, backbones: Sequence[Backbone]) -> str | None:
        reason = super().skip(facts, backbones)
        if reason or not self.beta:
            return reason
        for backbone in backbones:
            if not isinstance(backbone, (GCN, SGC)):
                return f"{self.name} adds a pseudo-graph to the propagation of gcn or sgc; {backbone.name} has none"
        if facts.size**2 > MOST_PAIRS:
            return (
                f"{self.name} compares all pairs of nodes each round: {facts.size} nodes make "
                f"{facts.size**2:.1e} pairs, more than {MOST_PAIRS:.0e}"
            )
        return None

    # -- exchange ---------------------------------------------------------------------------------------------------

    def phases(self, config: TrainConfig) -> list[Phase]:
        rounds = super().phases(config)
        if not (self.alpha or self.beta):
            return rounds
        step = Step(lambda clients: {"id": clients.batch.per_client(clients.batch.global_id)}, self.align)
        return [Phase((step,), 1, scored=False, name="alignment", everyone=True), *rounds]

    def open(self, server: Server) -> Download:
        download = super().open(server)
        return {} if self.alpha or self.beta else download  # with alpha or beta, the alignment sends the model

    def align(self, server: Server, uploads: Tree) -> Download:
        """Number the nodes of all clients; place: for each client, the numbers of its rows."""
        ids = uploads["id"]
        held, place = torch.unique(torch.cat(ids), return_inverse=True)
        server.state["place"], server.state["nodes"] = place.split([len(client_ids) for client_ids in ids]), len(held)
        return {"model": server.state["model"]}

    def client(self, clients: ClientBatch) -> Tree:
        batch = clients.batch
        if "index" in clients.received:
            batch = replace(batch, propagation=self.propagation(clients))
        pseudo = (
            torch.cat(clients.received["label"]) if "label" in clients.received else torch.full_like(batch.label, -1)
        )
        rows = ((pseudo >= 0) & ~batch.masks["train"]).nonzero().squeeze(1)

        def loss(clients: ClientBatch) -> torch.Tensor:
            logits = clients.network.forward(clients.params, (batch,), clients.streams).logits
            pseudo_loss = clients.mean_over(F.cross_entropy(logits[rows], pseudo[rows], reduction="none"), rows)
            return clients.cross_entropy(logits) * label_weight + self.alpha * pseudo_loss * pseudo_weight

        label_weight, pseudo_weight = self.loss_weights(batch, batch.rows["train"]), self.loss_weights(batch, rows)
        clients.load(clients.received["model"])
        reported = batch if self.report_on == "augmented" else clients.batch
        early = self.report(clients, reported) if self.report_when == "before" else {}
        clients.fit(loss)
        return {"model": clients.params} | (early or self.report(clients, reported))

    @torch.no_grad()
    def report(self, clients: ClientBatch, batch: Batch) -> Tree:
        """Return P_k and H_k of the current models, each only if it is used."""
        if not (self.alpha or self.beta) or clients.round < self.start - 1:
            return {}
        logits = clients.network.forward(clients.params, (batch,)).logits
        prediction = {"prediction": batch.per_client(logits.softmax(1))} if self.alpha else {}
        return prediction | ({"output": batch.per_client(logits)} if self.beta else {})

    def loss_weights(self, batch: Batch, rows: torch.Tensor) -> torch.Tensor:
        """Return the factor (K,) of each client's mean over the given rows: 1, or their number for sums."""
        counts = torch.bincount(batch.owner[rows], minlength=batch.clients).float()
        return counts if self.reduction == "sum" else torch.ones(batch.clients)

    @section("augmentation")
    def propagation(self, clients: ClientBatch) -> SparseMatrix:
        """Return A_hat + beta times the pseudo-graph of all clients, normalised by `pseudo_graph`."""
        batch: Batch = clients.batch
        rows, columns = [], []
        for index, size, start in zip(clients.received["index"], batch.sizes, batch.offsets, strict=False):
            rows.append(index.numpy() // size + start)
            columns.append(index.numpy() % size + start)
        values = torch.cat(clients.received["value"]).numpy()
        shape = batch.gcn.shape
        graph = sp.csr_matrix((values, (np.concatenate(rows), np.concatenate(columns))), shape=shape)
        if self.pseudo_graph == "symmetric":
            graph = (graph + graph.T) / 2
        if self.pseudo_graph != "openfgl":  # whose server normalises
            graph = normalised(graph)
        return SparseMatrix(batch.gcn.scipy() + self.beta * graph)

    def server(self, server: Server, uploads: Tree) -> Download:
        download = super().server(server, uploads)
        if not {"prediction", "output"} & uploads.keys():
            return download
        clients, places = server.clients, server.state["place"]
        personal: Tree = {"model": {n: v.expand(clients, *v.shape) for n, v in server.state["model"].items()}}
        if self.alpha:
            label = self.pseudo_labels(server, uploads["prediction"])
            personal["label"] = [label[place] for place in places]
        if self.beta:
            fused = self.fuse(server, uploads["output"])
            graph = similarity_graph(fused, self.neighbours)
            graph = released(graph) if self.pseudo_graph == "openfgl" else graph
            parts = [graph[place.numpy()][:, place.numpy()].tocoo() for place in places]
            personal["index"] = [torch.from_numpy(p.row * np.int64(p.shape[0]) + p.col) for p in parts]
            personal["value"] = [torch.from_numpy(p.data) for p in parts]
        return Each(personal, range(clients))

    def fuse(self, server: Server, values: list[torch.Tensor]) -> torch.Tensor:
        """Return (nodes, C) weighted means of the participants' rows (N_k, C) by node; 0 for nodes without report."""
        fused = torch.zeros(server.state["nodes"], values[0].shape[1])
        weight = torch.zeros(server.state["nodes"], 1)
        for client, client_weight, rows in zip(server.participants, server.weights, values, strict=True):
            place = server.state["place"][client]  # without duplicates, so += adds every row
            fused[place] += client_weight * rows
            weight[place] += client_weight
        return fused if self.literal else fused / weight.where(weight > 0, torch.ones(()))

    def pseudo_labels(self, server: Server, predictions: list[torch.Tensor]) -> torch.Tensor:
        """Return the classes (nodes,) of the fused predictions, -1 if the confidence is too low."""
        if self.threshold_on == "each":
            predictions = [p * (p > self.threshold) for p in predictions]
        confidence, label = self.fuse(server, predictions).max(1)
        return label.where(confidence > (self.threshold if self.threshold_on == "fused" else 0), -1)


@METHODS.register("fedgl-no-gpg")
class FedGLWithoutGraph(FedGL):
    """FedGL without the global pseudo-graph (w/o GPG): pseudo-labels only.

    Messages: theta and P_k (N_k, C) up, theta and pseudo-labels (N_k,) down; see FedGL. Any backbone.
    """

    summary = "FedGL with pseudo-labels only"
    title = "FedGL (without pseudo-graph)"
    venue = "arXiv 2021"
    paper_url = "https://arxiv.org/abs/2105.03170"

    beta: float = option(0.0, "no pseudo-graph", ge=0, le=0)


@METHODS.register("fedgl-no-gpl")
class FedGLWithoutLabels(FedGL):
    """FedGL without the global pseudo-labels (w/o GPL): the pseudo-graph only.

    Messages: theta and H_k (N_k, C) up, theta and the pseudo-graph's entries among the client's nodes down; see FedGL.
    """

    summary = "FedGL with the pseudo-graph only"
    title = "FedGL (without pseudo-labels)"
    venue = "arXiv 2021"
    paper_url = "https://arxiv.org/abs/2105.03170"

    alpha: float = option(0.0, "no pseudo-labels", ge=0, le=0)
