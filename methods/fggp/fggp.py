"""FGGP: one feature extractor for all clients, and a memory of class prototypes instead of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ...benchmark.engine import (
    GCN,
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    Facts,
    Forward,
    Network,
    Params,
    Server,
    Tree,
    option,
    segment_sum,
)
from ..fedavg import FedAvg
from ..parts.contrast import unit_rows
from .views import Candidates, ViewModel, alike, edge_codes, sampled, through


def cluster_means(rows: torch.Tensor) -> torch.Tensor:
    """Return the means (m, h) of clusters of rows (n, h), n >= 1: those of the coarsest partition of FINCH (Sarfraz et
    al., CVPR 2019) with more than one cluster, or of the first partition if it has only one."""
    label, count = linked(rows)
    means = averaged(rows, label, count)
    while count > 1:
        step, fewer = linked(means)
        if fewer == 1 or fewer == count:
            break
        label, count = step[label], fewer
        means = averaged(rows, label, count)
    return means


def linked(rows: torch.Tensor) -> tuple[np.ndarray, int]:
    """Return the cluster (n,) of each row, and the number of clusters: the connected components of the graph that links
    each row to the row with the largest cosine."""
    n = len(rows)
    if n == 1:
        return np.zeros(1, np.int64), 1
    unit = unit_rows(rows)
    nearest = (unit @ unit.T).fill_diagonal_(-torch.inf).argmax(1).cpu().numpy()
    count, label = connected_components(coo_matrix((np.ones(n), (np.arange(n), nearest)), shape=(n, n)), directed=False)
    return label, int(count)


def averaged(rows: torch.Tensor, label: np.ndarray, count: int) -> torch.Tensor:
    """Return the mean of each cluster (count, h)."""
    cluster = torch.from_numpy(label.astype(np.int64))
    size = torch.bincount(cluster, minlength=count).unsqueeze(1)
    return rows.new_zeros(count, rows.shape[1]).index_add_(0, cluster, rows) / size


LIMIT = 8 << 30  # bytes of matrices of pairs of nodes
FAR = -1e9  # logit of an absent class
FLOOR = 1e-5  # added to all votes, for classes without votes (released code)


@METHODS.register("fggp")
class FGGP(FedAvg):
    """Wan, Huang, Ye, AAAI 2024 (pages 15429-15437): generalizable prototypes, for clients of many domains.

    Client k: A_k has its edges, self-loops, and links of each node to the `neighbours` nodes with the most similar
    embeddings by the received model (computed every `refresh` rounds). With codes E = relu(A~ A~ X V_0 V_1), each step
    draws a graph S: pair i < j with probability share E_i.E_j / max E.E + (1 - share) A_ij, straight-through. It
    minimises
        CE(G) + view_weight [CE(S) + BCE(E E^T, A_k)] + align_weight InfoNCE(P_S, P_G),
    BCE with equal weights of linked and other pairs. P: unit prototypes of the classes in S and in the client's graph
    G, the weighted mean embeddings of all nodes; a training node has its label and weight 1, another node its predicted
    class and its probability as weight. InfoNCE: a class's two prototypes against those of the other classes in both
    graphs.
    Server: theta <- sum_k w_k theta_k, with V; for each class the clients' prototypes are clustered (FINCH), and the
    means of the clusters are added to a memory of the last C * `memory` means. Prediction: the classes of the `nearest`
    entries of the memory, weighted by the softmax of cosine / `temperature`.

    Messages: theta and V up and down, V with d h + h^2 scalars; up C_k prototypes and their int64 classes, C_k the
    classes that k has or predicts; down the memory, M (h + one int64), M <= memory C. With both weights 0 and the
    classifier it is FedAvg.

    Written from the released code; the paper's text was not available. The model is a GCN, as in the code. Departures:
    the code gives wrong class numbers to the prototypes of a client without all classes; starts with a memory of random
    entries of class 0; links a node to similar nodes in one direction only, and ignores half of these links in the
    drawn graph; uses A_k in the last layer of the pass on S, and BatchNorm in the first ones; computes prototypes in
    the last training pass, with dropout; and, if it predicts by the memory, starts each round from the initial last
    layer, which is never averaged. With that, Cora of `leaderboard` changes by -0.9 points and CiteSeer by +0.2 (means
    of 2 seeds).
    """

    family = "prototypes"
    summary = "FedAvg with learnt views, and clustered class means instead of a classifier"
    title = "FGGP"
    venue = "AAAI 2024"
    code_url = "https://github.com/GuanchengWan/FGGP"
    tasks = ("node",)
    heterogeneous_features = False
    fixed_backbone = "gcn"

    view_weight: float = option(1.0, "weight of the drawn graph's losses (code: 1)", ge=0, tune=[0.1, 1.0])
    align_weight: float = option(1.0, "weight of InfoNCE (code: 1)", ge=0, tune=[0.1, 1.0, 10.0])
    align_temperature: float = option(0.5, "temperature of InfoNCE (code: 0.5)", gt=0)
    neighbours: int = option(3, "similar nodes linked to each node (code: 3, for one dataset 1)", ge=0)
    refresh: int = option(10, "rounds between two computations of similar nodes (code: 10, for one dataset 50)", ge=1)
    share: float = option(0.5, "alpha, weight of the learnt probabilities (code: 0.5)", ge=0, le=1)
    relaxation: float = option(1.0, "temperature of the relaxed draw (code: 1)", gt=0)
    inference: Literal["prototypes", "classifier"] = option(
        "prototypes", "predict by the memory (paper, code's default), or by the model's last layer"
    )
    memory: int = option(20, "entries of the memory per class (code: 10, Twitch 20)", ge=1)
    nearest: int = option(30, "entries used in a prediction (code: 20, 40 or 100 by dataset)", ge=1)
    temperature: float = option(0.1, "temperature of a prediction's weights (code: 0.1)", gt=0)

    def adapt(self, backbone: Backbone) -> Backbone:
        return backbone.turned_into(ViewModel)

    def skip(self, facts: Facts, backbones: Sequence[Backbone]) -> str | None:
        reason = super().skip(facts, backbones)
        if reason or not self._viewed:
            return reason
        if any(backbone.linear_head or backbone.residual or backbone.layers < 2 for backbone in backbones):
            return f"{self.name} draws graphs for a plain GCN of two layers or more, without linear_head and residual"
        sizes = [client.size for client in facts.clients]
        need = 13 * sum(n * n for n in sizes) + 60 * max(sizes) ** 2
        if need > LIMIT:
            return f"{self.name} would need about {need / 2**30:.1f} GiB for pairs of nodes of each client, limit 8 GiB"
        return None

    @property
    def _viewed(self) -> bool:
        return bool(self.view_weight or self.align_weight)

    # -- clients ------------------------------------------------------------------------------------------------------

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        clients.state["alike"] = [torch.zeros(n, 0, dtype=torch.long) for n in clients.batch.sizes]

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        if self._viewed:
            due = (clients.round - 1) % self.refresh == 0
            with torch.no_grad():
                embedding = clients.batch.per_client(clients.forward(training=False).embedding)
            clients.state["alike"] = [
                alike(rows, self.neighbours) if due or not old.numel() else old
                for rows, old in zip(embedding, clients.state["alike"], strict=True)
            ]
            candidates = Candidates(clients.batch, clients.state["alike"])
            clients.fit(lambda clients: self.viewed_loss(clients, candidates))
        else:
            clients.fit(self.local_loss)
        with torch.no_grad():
            out = clients.forward(training=False)
            means, present = self._prototypes(clients, out.embedding, *self._classes_and_weights(clients, out.logits))
        return {
            "model": clients.params,
            "prototypes": [mean[classes] for mean, classes in zip(means, present, strict=True)],
            "classes": [classes.nonzero().squeeze(1) for classes in present],
        }

    def viewed_loss(self, clients: ClientBatch, candidates: Candidates) -> torch.Tensor:
        """Return the objective (K,)."""
        batch, params = clients.batch, clients.params
        out = clients.forward()
        codes = batch.per_client(edge_codes(params, batch, candidates.matrix))
        pairs = zip(codes, candidates.linked, candidates.drawn(clients.streams), strict=True)
        graphs, edge_losses = zip(*(sampled(*pair, self.share, self.relaxation) for pair in pairs), strict=True)
        model = clients.network.groups[0].backbone
        assert isinstance(model, GCN)
        view = through(model, params, batch, graphs, clients.streams)
        loss = clients.cross_entropy(out.logits)
        loss = loss + self.view_weight * (clients.cross_entropy(view.logits) + torch.stack(edge_losses))
        return loss + self.align_weight * self._alignment(clients, out, view)

    def _alignment(self, clients: ClientBatch, out: Forward, view: Forward) -> torch.Tensor:
        """Return InfoNCE (K,) between the classes' prototypes in the drawn graph and in the client's graph."""
        node_class, weight = self._classes_and_weights(clients, out.logits)
        local, present = self._prototypes(clients, out.embedding, node_class, weight)
        drawn, _ = self._prototypes(clients, view.embedding, node_class, weight)
        a, b = (unit_rows(means) / self.align_temperature**0.5 for means in (drawn, local))
        within, across = a @ a.mT, a @ b.mT
        absent = ~present.unsqueeze(1)
        rivals = within.masked_fill(absent | torch.eye(clients.classes, dtype=torch.bool), FAR)
        total = torch.cat([across.masked_fill(absent, FAR), rivals], 2).logsumexp(2)
        losses = (total - across.diagonal(dim1=1, dim2=2)).masked_fill(~present, 0)
        return losses.sum(1) / present.sum(1).clamp(min=1)

    @staticmethod
    def _classes_and_weights(clients: ClientBatch, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return class and weight (N,) of each node: label and 1 of training nodes, else prediction and probability."""
        train = clients.batch.masks["train"]
        weight, predicted = logits.softmax(1).max(1)
        return torch.where(train, clients.batch.label, predicted), weight.masked_fill(train, 1)

    @staticmethod
    def _prototypes(
        clients: ClientBatch, embedding: torch.Tensor, node_class: torch.Tensor, weight: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weighted mean embeddings (K, C, h) of each class, 0 without nodes, and (K, C) whether it has any."""
        count, classes = len(clients), clients.classes
        slot = clients.batch.owner * classes + node_class
        total = segment_sum(embedding * weight.unsqueeze(1), slot, count * classes)
        mass = segment_sum(weight, slot, count * classes).view(count, classes)
        present = mass > 0
        return total.view(count, classes, -1) / mass.masked_fill(~present, 1).unsqueeze(2), present

    # -- server -------------------------------------------------------------------------------------------------------

    def server(self, server: Server, uploads: Tree) -> Download:
        download = super().server(server, uploads)
        assert isinstance(download, dict)
        sent, classes = torch.cat(uploads["prototypes"]), torch.cat(uploads["classes"])
        fresh = {j: unit_rows(cluster_means(sent[classes == j])) for j in classes.unique().tolist()}
        old: Tree = server.state.get("memory", {"rows": sent[:0], "classes": classes[:0]})
        rows = torch.cat([old["rows"], *fresh.values()])
        label = torch.cat([old["classes"], *(torch.full((len(means),), j) for j, means in fresh.items())])
        most = self.memory * server.classes
        server.state["memory"] = {"rows": rows[-most:], "classes": label[-most:]}
        return download | {"memory": server.state["memory"]}

    def global_model(self, server: Server) -> Params | None:
        return self._with_memory(server.state["model"], server.state.get("memory"))

    def personal_model(self, clients: ClientBatch) -> Params | None:
        return self._with_memory(clients.params, clients.received.get("memory"))

    def _with_memory(self, model: Params, memory: Tree | None) -> Params:
        if memory is None or self.inference == "classifier":
            return model
        return model | {"memory.rows": memory["rows"], "memory.classes": memory["classes"]}

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        if "memory.rows" not in params:
            return super().predict(params, network, data)
        out = network.forward(params, data)
        embeddings = unit_rows(out.embedding).split(list(network.sizes(data)))
        logits = []
        of_clients = zip(embeddings, params["memory.rows"], params["memory.classes"], strict=True)
        for client_rows, rows, classes in of_clients:
            cosine, place = (client_rows @ rows.T).topk(min(self.nearest, len(rows)), dim=1)
            weight = (cosine / self.temperature).softmax(1)
            vote = weight.new_zeros(len(client_rows), out.logits.shape[1]).scatter_add_(1, classes[place], weight)
            logits.append((vote + FLOOR).log())
        return torch.cat(logits)
