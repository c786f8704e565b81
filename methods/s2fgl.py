"""S2FGL: FedAvg with a repository of class prototypes of important nodes, and an alignment of graph frequencies."""

from __future__ import annotations

from itertools import pairwise
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from ..benchmark.engine import METHODS, ClientBatch, Download, Server, Tree, option, placed
from .fedavg import FedAvg
from .parts.dual import kl
from .parts.prototypes import class_means, of_held, weighted_mean

TERMS = 12  # of the series of P: the next one is below (1 - alpha)^13, 2e-11 at the default alpha


@METHODS.register("s2fgl")
class S2FGL(FedAvg):
    """Tan, Huang, Wan, Huang, Li, Ye, ICML 2025: spatial spectral federated graph learning.

    Once, client k scores its nodes by their label signal: P = (I - (1 - alpha) D^-1 A)^-1, t_j = 1 for training nodes
    and 0 for others; score_i = max_j P_ij t_j + alpha sum_j P_ij t_j.
    Client: E epochs on CE + nlir NLIR + fgma FGMA. r_i: node i's embedding by the trained model; g_i: by the received
    model, fixed and without dropout. Both terms are 0 before the first repository B of C x `slots` vectors.
    NLIR = mean_i KL(softmax_b cos(g_i, b) || softmax_b cos(r_i, b)), over all nodes i and b in B.
    FGMA: R and G are the rows r_i and g_i of the fifth of the nodes with the highest scores. The graph of R joins each
    row to itself and to its `similar` nearest rows by cosine, with the cosines as weights; u_1, ... are the
    eigenvectors of its Laplacian for the `frequencies` smallest and the `frequencies` largest eigenvalues, v_1, ...
    those of G; FGMA = sum_m |u_m u_m^T R - v_m v_m^T G|^2 / entries, with the eigenvectors fixed.
    Server: FedAvg; for each slot it draws 70% of the clients and computes, per class, the mean of their important
    training nodes' embeddings. A class that no drawn client has gets the zero vector, whose cosine is 0.
    Messages: theta, and for each class of the client the mean and number of its important training nodes, up; theta and
    B down. Without both weights it is FedAvg.

    Departures. The released clients send the embeddings and labels of all nodes to the server, which needs only their
    class means; here means are computed after training without dropout, there in the last training pass. The important
    nodes are the third of the client's nodes with the highest scores; here only training nodes, whose labels are known
    (with 20% training nodes all of them). Its nearest-neighbour graph is not symmetric, here it is the mean with its
    transpose; as there, eigenvectors of equal eigenvalues are not unique. `limit` bounds the nodes of an alignment,
    whose cost grows with their cube. Backbone, rate and epochs are the run's (released: ACM-GCN of width 128, SGD 0.2,
    10).
    """

    summary = "FedAvg with penalties for the distance to class prototypes and to the received model's frequencies"
    title = "S2FGL"
    venue = "ICML 2025"
    paper_url = "https://proceedings.mlr.press/v267/tan25d.html"
    code_url = "https://github.com/Wonder7racer/S2FGL"
    tasks = ("node",)
    heterogeneous_features = False
    revision: ClassVar[int] = 2

    nlir: float = option(5.0, "weight of NLIR (code: 0.05 times 100)", ge=0, tune=[0.1, 1.0, 5.0])
    fgma: float = option(1.0, "weight of FGMA (code: 1)", ge=0, tune=[0.1, 1.0])
    alpha: float = option(0.85, "restart probability of P (code: 0.85)", gt=0.5, le=1)
    slots: int = option(4, "vectors per class in the repository (code: 4)", ge=1)
    drawn: float = option(0.7, "share of the clients in each slot (code: 0.7)", gt=0, le=1)
    frequencies: int = option(10, "eigenvectors at each end of the spectrum (code: 10)", ge=1)
    similar: int = option(3, "nearest nodes in the graph of embeddings (code: 3)", ge=1)
    limit: int = option(256, "maximal number of nodes in an alignment (code: no limit)", ge=2)

    def prepare(self, clients: ClientBatch) -> None:
        super().prepare(clients)
        batch, sums = clients.batch, clients.batch.sum.scipy()
        train = batch.masks["train"].cpu().numpy()
        clients.state["aligned"], clients.state["important"] = [], []
        for start, stop in pairwise(batch.offsets):
            score = reach(sums[start:stop, start:stop], train[start:stop], self.alpha)
            order = np.argsort(-score, kind="stable")
            labelled = order[train[start:stop][order]]
            most = min(self.limit, (stop - start) // 5)
            clients.state["aligned"].append(torch.from_numpy(order[:most].copy()))
            clients.state["important"].append(torch.from_numpy(labelled[: max(1, (stop - start) // 3)].copy()))

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        if "repository" not in clients.received:
            clients.fit(self.local_loss)
            return {"model": clients.params} | self.class_means(clients)
        book = F.normalize(clients.received["repository"][0].flatten(0, 1), dim=1)
        with torch.no_grad():
            received = clients.forward(training=False).embedding
            target = (F.normalize(received, dim=1) @ book.T).log_softmax(1)
        rows = self.rows(clients, "aligned")
        fixed = [frequencies(received[rows_of_client], self.similar, self.frequencies) for rows_of_client in rows]

        def loss(clients: ClientBatch) -> torch.Tensor:
            out = clients.forward()
            own = (F.normalize(out.embedding, dim=1) @ book.T).log_softmax(1)
            divergence = kl(target, own)
            spectral = [
                self.alignment(out.embedding[rows_of_client], received[rows_of_client], v)
                for rows_of_client, v in zip(rows, fixed, strict=True)
            ]
            nlir = clients.mean_over(divergence, torch.arange(len(divergence)))
            return clients.cross_entropy(out.logits) + self.nlir * nlir + self.fgma * torch.stack(spectral)

        clients.fit(loss if self.nlir or self.fgma else self.local_loss)
        return {"model": clients.params} | self.class_means(clients)

    def rows(self, clients: ClientBatch, kind: str) -> list[torch.Tensor]:
        """Return each client's "aligned" or "important" nodes as rows of the batch."""
        return [placed(nodes + start) for nodes, start in zip(clients.state[kind], clients.batch.offsets, strict=False)]

    def alignment(self, r: torch.Tensor, g: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Return FGMA of one client. r, g: (n, h) embeddings; v: (n, 2 m) the eigenvectors of g."""
        if not r.numel():
            return r.new_zeros(())
        u = frequencies(r.detach(), self.similar, self.frequencies)
        a, b = u.T @ r, v.T @ g  # |u a - v b|^2 = |a|^2 + |b|^2 - 2 (u . v) (a . b), because u and v have norm 1
        squares = (a * a).sum(1) + (b * b).sum(1) - 2 * (u * v).sum(0) * (a * b).sum(1)
        return squares.sum() / r.numel()

    @torch.no_grad()
    def class_means(self, clients: ClientBatch) -> Tree:
        """Return mean embedding and number of each client's important nodes, per class that it has."""
        rows, embedding = torch.cat(self.rows(clients, "important")), clients.forward(training=False).embedding
        means, counts = class_means(embedding, clients.batch, clients.classes, rows)
        held, of_means, of_counts = of_held(counts, means, counts)
        return {"prototypes": of_means, "counts": of_counts, "classes": held}

    def server(self, server: Server, uploads: Tree) -> Download:
        download = super().server(server, uploads)
        clients = len(uploads["classes"])
        number = max(1, int(clients * self.drawn))
        book = []
        for _ in range(self.slots):
            chosen = sorted(server.generator.choice(clients, number, replace=False).tolist())
            means, counts, classes = (
                torch.cat([uploads[name][k] for k in chosen]) for name in ("prototypes", "counts", "classes")
            )
            none = means.new_zeros(server.classes, means.shape[1])
            book.append(weighted_mean(means, classes, counts.to(means.dtype), none))
        assert isinstance(download, dict)
        return download | {"repository": torch.stack(book, 1)}


def reach(graph: sp.csr_matrix, train: np.ndarray, alpha: float) -> np.ndarray:
    """Return the score (n,) of each node. graph: (n, n) ones on edges; train: (n,) bool."""
    degree = np.asarray(graph.sum(1)).ravel()
    step = sp.diags((1 - alpha) / np.maximum(degree, 1)) @ graph
    columns = np.flatnonzero(train)
    term = np.zeros((len(train), len(columns)))
    term[columns, np.arange(len(columns))] = 1
    total = term.copy()
    for _ in range(TERMS):
        term = step @ term
        total += term
    signal: np.ndarray = total.max(1, initial=0) + alpha * total.sum(1)
    return signal


def frequencies(rows: torch.Tensor, similar: int, count: int) -> torch.Tensor:
    """Return eigenvectors (n, 2 m) of the Laplacian of the nearest-neighbour graph of rows (n, h), smallest eigenvalues
    first. m: `count`, but at most half of the rows."""
    n = len(rows)
    unit = F.normalize(rows, dim=1)
    cosine = unit @ unit.T
    near = cosine.topk(min(similar + 1, n), dim=1).indices
    weight = torch.zeros_like(cosine).scatter_(1, near, cosine.gather(1, near))
    weight = (weight + weight.T) / 2
    vectors = torch.linalg.eigh(torch.diag(weight.sum(1)) - weight).eigenvectors
    m = min(count, n // 2)
    return torch.cat([vectors[:, :m], vectors[:, n - m :]], 1)
