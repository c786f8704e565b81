"""O-pFGL: one round; the server condenses class statistics into a small graph for the clients' first epochs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from pydantic import model_validator

from ..benchmark.engine import (
    METHODS,
    Batch,
    ClientBatch,
    Download,
    Params,
    Phase,
    Server,
    SparseMatrix,
    Step,
    TrainConfig,
    Tree,
    linear_maps,
    on_host,
    option,
    placed,
    torch_source,
)
from .fedavg import LocalTraining
from .fedpub import tiled

WIDTH, LEAST = 128, 0.01  # width of the MLP of edges; smaller weights are no edges (released code)
TURN, OF_EDGES = 50, 10  # of each 50 server steps the first 10 train the edges, the others the features


@METHODS.register("o-pfgl")
class OPFGL(LocalTraining):
    """Yan, Li, Xie, Zhang, Shen, Fang, Wu (arXiv 2411.11304): one-shot, by a surrogate graph from class statistics.

    Once, client k: for training nodes v, h_v = the share of v's class among its training neighbours (0 without such
    neighbours); gamma_c = 1 / (1 + ln(1 + sum of h_v over its training nodes of class c)). P: training labels Y
    propagated `spread_steps` times, P <- clip(a D^-1/2 A D^-1/2 P + (1 - a) Y, 0, 1), uniform for nodes that no label
    reaches. For the `expand` classes with the lowest gamma, nodes with P_vc / sum P_v >= `sure` are added to the
    training nodes. For each class with n > 1 nodes: n, mean m and standard deviation s of [x, S x, .., S^hops x],
    S = D^-1/2 (A + I) D^-1/2.
    Server: N, M and s^2 = (sum_k (n_k - 1) s_k^2 + n_k (m_k - M)^2) / (N - clients with the class). It makes `nodes`
    nodes per class, features X from N(0, 1), edge weights W_ij = sigmoid of the mean of f(x_i, x_j) and f(x_j, x_i),
    f an MLP 2 d -> 128 -> 128 -> 1 with batch norm, weights below 0.01 dropped, and takes `condense_steps` steps on
        lam_alignment sum_c N_c / N (mean of (M_c - mean_c)^2 + [nodes > 1] mean of (s_c - deviation_c)^2)
        + lam_smoothness sum_ij W_ij mean_d exp(-(x_id - x_jd)^2 / 2) / sum W,
    mean_c and deviation_c those of [X, S X, ..] of the made nodes of class c, S from W + I.
    Client k: theta_k is trained for `surrogate_share` of its epochs on the surrogate's cross-entropy. g are its
    predictions on the client's nodes after that. The other epochs are on CE + mean_v lambda_v KL(g_v || theta_k's
    prediction), over all nodes v,
        lambda_v = clip(lam sum_c P_vc gamma_c, lam_min, lam_max).
    Messages: n, m and s of each class up, X and W down, once; nothing else. Scored: theta_k.

    Budget: a client's epochs are at most those of all rounds of the suite, which the only round may use (see
    docs/protocol.md, "One round").

    Departures and readings. The released clients evaluate on validation nodes every 100 steps, keep the best model and
    stop early; here all epochs are run, because validation is reserved for the suite's selection. The code makes 1 node
    per class on citation graphs, elsewhere 0.25% of the labelled nodes; here `nodes`. GCN and SGC use the weights W,
    other architectures the edges without weights. theta_k starts as the suite's models and is not sent. Passes on the
    surrogate have no dropout; rate and decay are the run's (released: Adam 1e-4, then 5e-5 to 5e-3; no dropout, no
    decay).
    """

    family = "personal"
    summary = "one round: the server makes a small graph from class statistics for the clients' first epochs"
    title = "O-pFGL"
    venue = "arXiv 2024"
    paper_url = "https://arxiv.org/abs/2411.11304"
    code_url = "https://github.com/Youth-49/O-pFGL"
    delivers = "personal"
    heterogeneous = True

    epochs: int = option(
        300,
        "epochs of a client, at most the suite's rounds times local epochs (code: up to 6000)",
        ge=1,
        tune=[100, 300, 1000],
    )
    surrogate_share: float = option(0.5, "share of the epochs on the surrogate graph (code: half)", ge=0, le=1)
    nodes: int = option(1, "surrogate nodes per class (code: 1, or 0.25% of the labelled nodes)", ge=1)
    hops: int = option(1, "h, powers of S in the class statistics (code: 2; its scripts: 1)", ge=0)
    condense_steps: int = option(3000, "steps of the server (scripts: 3000, 2000 on ogbn-arxiv)", ge=0)
    lr_features: float = option(5e-3, "Adam rate of X (code: 5e-3; script for ogbn-arxiv: 0.05)", gt=0)
    lr_edges: float = option(1e-3, "Adam rate of the MLP of edges (code: 1e-3; script for ogbn-arxiv: 0.01)", gt=0)
    lam_alignment: float = option(10.0, "weight of the alignment (code: 10)", ge=0)
    lam_smoothness: float = option(0.1, "weight of the smoothness (code: 0.1)", ge=0)
    lam: float = option(0.2, "scale of lambda (code: 0.2; scripts: 0.2 to 5)", ge=0, tune=[0.2, 1.0, 5.0])
    lam_max: float = option(0.2, "upper bound of lambda (scripts: 0.1 to 0.2)", ge=0)
    lam_min: float = option(0.0, "lower bound of lambda (scripts: none or 0.05)", ge=0)
    spread_steps: int = option(2, "steps of label propagation (code: 2; scripts: 2 to 5)", ge=0)
    spread_weight: float = option(0.9, "a, weight of the neighbours in each (code: 0.9; scripts: 0.6, 0.9)", ge=0, le=1)
    expand: int = option(1, "classes that get additional training nodes (scripts: 1, 4 on ogbn-arxiv)", ge=0)
    sure: float = option(0.95, "minimal share P_vc / sum P_v of an added node (code: 0.95)", gt=0, le=1)
    least_degree: int = option(0, "minimal degree of an added node (code: 0; scripts: 0 to 20)", ge=0)

    @model_validator(mode="after")
    def _bounds(self) -> OPFGL:
        if self.lam_min > self.lam_max:
            raise ValueError(f"lam_min is {self.lam_min:g}, must be at most lam_max, {self.lam_max:g}")
        return self

    def phases(self, config: TrainConfig) -> list[Phase]:
        return [Phase((Step(self.tell, self.build), Step(self.client)), 1)]

    # -- statistics -------------------------------------------------------------------------------------------------

    def tell(self, clients: ClientBatch) -> Tree:
        return {name: placed(value) for name, value in self.statistics(clients).items()}

    @on_host()
    def statistics(self, clients: ClientBatch) -> Tree:
        """Return numbers of nodes (K, C), means and deviations (K, C, w); 0 for a class with less than two nodes."""
        batch, classes = clients.batch, clients.classes
        gamma, likely = self.outlook(batch, classes)
        owner, label, train = (tensor.cpu().numpy() for tensor in (batch.owner, batch.label, batch.masks["train"]))
        share = likely / (likely.sum(1, keepdims=True) + 1e-9)
        best = share.argmax(1)
        chosen = gamma.argsort(1, kind="stable").argsort(1, kind="stable") < self.expand
        degree = batch.graph.in_degrees().numpy()
        joins = (share.max(1) >= self.sure) & chosen[owner, best] & (degree >= self.least_degree)
        rows = np.flatnonzero(train | joins)
        slot = owner[rows] * classes + np.where(train, label, best)[rows]
        member = sp.csr_matrix((np.ones(len(rows)), (slot, np.arange(len(rows)))), (len(clients) * classes, len(rows)))
        n = np.asarray(member.sum(1))
        n[n < 2] = 0
        value = batch.x.value
        x: Any = value if sp.issparse(value) else value.cpu().numpy()
        mean, deviation = [], []
        for hop in range(self.hops + 1):
            x = batch.gcn.scipy() @ x if hop else x
            blocks = x[rows].astype(np.float64)
            sums, squares = (
                dense(member @ each) for each in (blocks, blocks.multiply(blocks) if sp.issparse(blocks) else blocks**2)
            )
            mean.append((n > 0) * sums / n.clip(1))
            deviation.append(((n > 0) * (squares / n.clip(1) - mean[-1] ** 2) * n / (n - 1).clip(1)).clip(0) ** 0.5)
        arrays = {"count": n, "prototypes": np.concatenate(mean, 1), "deviation": np.concatenate(deviation, 1)}
        shape = (len(clients), classes, -1)
        tree: Tree = {name: torch.from_numpy(array).float().view(shape) for name, array in arrays.items()}
        return tree | {"count": tree["count"].squeeze(2)}

    def outlook(self, batch: Batch, classes: int) -> tuple[np.ndarray, np.ndarray]:
        """Return gamma (K, C) and P (N, C) from the training labels."""
        owner, label, train = (tensor.cpu().numpy() for tensor in (batch.owner, batch.label, batch.masks["train"]))
        nodes, clients = len(label), len(batch.sizes)
        source, target = (ends.numpy() for ends in batch.graph.edges(order="eid"))
        both = train[source] & train[target]
        same = both & (label[source] == label[target])
        same_class, neighbours = (np.bincount(target[edges], minlength=nodes) for edges in (same, both))
        slot = (owner * classes + label)[train]
        share = (same_class / neighbours.clip(1))[train]
        mass = np.bincount(slot, share, clients * classes).reshape(clients, classes)
        known = np.zeros((nodes, classes))
        known[train, label[train]] = 1
        matrix = batch.sum.scipy().astype(np.float64)
        scale = sp.diags(np.asarray(matrix.sum(1)).ravel().clip(1) ** -0.5)
        matrix, likely = (scale @ matrix @ scale).tocsr(), known
        for _ in range(self.spread_steps):
            likely = (self.spread_weight * (matrix @ likely) + (1 - self.spread_weight) * known).clip(0, 1)
        likely[likely.sum(1) == 0] = 1 / classes
        return 1 / (1 + np.log1p(mass)), likely

    # -- the surrogate graph ----------------------------------------------------------------------------------------

    def build(self, server: Server, uploads: Tree) -> Download:
        n, means, deviations = uploads["count"].unsqueeze(2), uploads["prototypes"], uploads["deviation"]
        total = n.sum(0)
        mean = (n * means).sum(0) / total.clamp(min=1)
        spread = (n - 1).clamp(min=0) * deviations**2 + n * (means - mean) ** 2
        deviation = (spread.sum(0) / (total - (n > 0).sum(0)).clamp(min=1)).sqrt()
        weight = total / total.sum().clamp(min=1)
        made, draws = server.classes * self.nodes, server.generator
        x = placed(torch.from_numpy(draws.standard_normal((made, server.features), dtype=np.float32)))
        x.requires_grad_(True)
        params = fresh_perceptron(server.features, torch_source(draws))
        of_edges = torch.optim.Adam(params.values(), lr=self.lr_edges)
        of_features = torch.optim.Adam([x], lr=self.lr_features)
        for step in range(self.condense_steps):
            optimiser = of_edges if step % TURN < OF_EDGES else of_features
            loss = self.mismatch(x, edge_weights(params, x), weight, mean, deviation)
            moved = list(params.values()) if optimiser is of_edges else [x]
            for value, grad in zip(moved, torch.autograd.grad(loss, moved), strict=True):
                value.grad = grad
            optimiser.step()
        x = x.detach()
        return {"features": x, "edges": edge_weights(params, x).detach()}

    def mismatch(
        self, x: torch.Tensor, edges: torch.Tensor, weight: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor
    ) -> torch.Tensor:
        """Return the server's loss (). weight: (C, 1); mean, deviation: (C, w)."""
        i, j = torch.triu_indices(len(x), len(x), 1)
        similar = (-0.5 * (x[i] - x[j]) ** 2).exp().mean(1)
        smoothness = (edges[i, j] * similar).sum() / edges[i, j].sum().clamp(min=LEAST)
        matrix, blocks = normalised(edges), [x]
        for _ in range(self.hops):
            blocks.append(matrix @ blocks[-1])
        made = torch.cat(blocks, 1).view(len(mean), self.nodes, -1)
        gap = (mean - made.mean(1)) ** 2
        if self.nodes > 1:
            gap = gap + (deviation - made.std(1)) ** 2
        return self.lam_alignment * (weight * gap).sum() / mean.shape[1] + self.lam_smoothness * smoothness

    # -- personal training ------------------------------------------------------------------------------------------

    def client(self, clients: ClientBatch) -> Tree:
        epochs = min(self.epochs, clients.config.total_epochs)
        on_surrogate = round(self.surrogate_share * epochs)
        data, label = self.surrogate(clients), torch.arange(clients.classes).repeat_interleave(self.nodes)

        def surrogate_loss(clients: ClientBatch) -> torch.Tensor:
            logits = clients.network.forward(clients.params, data).logits
            losses = F.cross_entropy(logits, label.repeat(len(clients)), reduction="none")
            return losses.view(len(clients), -1).mean(1)

        clients.fit(surrogate_loss, on_surrogate)
        with torch.no_grad():
            teacher = clients.forward(training=False).logits.softmax(1)
        with on_host():
            gamma, likely = self.outlook(clients.batch, clients.classes)
            strength = (likely * gamma[clients.batch.owner.cpu().numpy()]).sum(1)
        weight = placed(torch.from_numpy((self.lam * strength).clip(self.lam_min, self.lam_max)).float())
        nodes = torch.arange(len(teacher))

        def personal_loss(clients: ClientBatch) -> torch.Tensor:
            logits = clients.forward().logits
            divergence = F.kl_div(logits.log_softmax(1), teacher, reduction="none").sum(1)
            return clients.cross_entropy(logits) + clients.mean_over(weight * divergence, nodes)

        clients.fit(personal_loss, epochs - on_surrogate, name="personal")
        return {}

    def surrogate(self, clients: ClientBatch) -> Sequence[Batch]:
        """Return the received graph once per client, one batch per architecture."""
        x, edges = clients.received["features"][0], clients.received["edges"][0]
        ends = edges.nonzero().T
        with on_host():
            matrix = sp.csr_matrix(normalised(edges.cpu()).numpy())
        batches = []
        for group in clients.network.groups:
            k = len(group.positions)
            propagation = SparseMatrix(sp.block_diag([matrix] * k, "csr"), symmetric=True)
            batches.append(replace(tiled(x, ends, k), propagation=propagation))
        return batches


def dense(matrix: Any) -> np.ndarray:
    array: np.ndarray = matrix.toarray() if sp.issparse(matrix) else matrix
    return array


def fresh_perceptron(features: int, source: torch.Generator) -> Params:
    """Return an MLP 2 d -> 128 -> 128 -> 1 with PyTorch's default start, and scales and shifts of its batch norms."""
    with on_host():
        params = linear_maps({"0": (2 * features, WIDTH), "1": (WIDTH, WIDTH), "2": (WIDTH, 1)}, source, "torch")
    for i in range(2):
        params[f"{i}.scale"], params[f"{i}.shift"] = torch.ones(WIDTH), torch.zeros(WIDTH)
    return {name: placed(value).requires_grad_(True) for name, value in params.items()}


def edge_weights(params: Params, x: torch.Tensor) -> torch.Tensor:
    """Return symmetric edge weights (n, n) between nodes x (n, d), 0 on the diagonal."""
    one, other = params["0.weight"].split(x.shape[1])
    h = ((x @ one).unsqueeze(1) + (x @ other).unsqueeze(0) + params["0.bias"]).flatten(0, 1)
    for i in range(2):
        h = (h - h.mean(0)) / (h.var(0, unbiased=False) + 1e-5).sqrt()
        h = torch.relu(h * params[f"{i}.scale"] + params[f"{i}.shift"])
        h = h @ params[f"{i + 1}.weight"] + params[f"{i + 1}.bias"]
    weight = h.view(len(x), len(x))
    weight = ((weight + weight.T) / 2).sigmoid() * (1 - torch.eye(len(x)))
    return weight * (weight >= LEAST)


def normalised(weight: torch.Tensor) -> torch.Tensor:
    """Return D^-1/2 (W + I) D^-1/2 of weights W (n, n)."""
    looped = weight + torch.eye(len(weight))
    scale = looped.sum(1) ** -0.5
    return scale.unsqueeze(1) * looped * scale
