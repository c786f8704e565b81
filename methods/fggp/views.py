"""FGGP's second view of a client's graph: similar nodes are linked, and edges are drawn by learnt probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from ...benchmark.engine import (
    GCN,
    Batch,
    Forward,
    Params,
    SparseMatrix,
    Streams,
    dropout,
    glorot,
    placed,
    segment_add,
    segment_product,
    torch_source,
)
from ..parts.contrast import unit_rows

LARGE = 1000  # matrices of pairs of clients with at least this many nodes are computed again for the gradient
EPS = 1e-6


class ViewModel(GCN):
    """A GCN, and two layers without biases, (d, h) and (h, h), that generate edges: "view.0", "view.1"."""

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = super().init(generator, features, classes)
        source = torch_source(generator)
        return params | {
            "view.0.weight": glorot(features, self.hidden, source),
            "view.1.weight": glorot(self.hidden, self.hidden, source),
        }


def alike(embedding: torch.Tensor, neighbours: int) -> torch.Tensor:
    """Return, for each row of embedding (n, h), the m = min(neighbours, n - 1) other rows with the largest cosine,
    (n, m); of equal ones the first."""
    unit = unit_rows(embedding)
    similar = (unit @ unit.T).fill_diagonal_(-torch.inf)
    return similar.argsort(dim=1, descending=True, stable=True)[:, : min(neighbours, len(embedding) - 1)]


class Candidates:
    """The linked pairs of each client's nodes: its edges, similar nodes, and self-loops.

    linked: one symmetric bool matrix (n, n) per client. matrix: D^-1/2 A D^-1/2 of all of them.
    """

    def __init__(self, batch: Batch, near: Sequence[torch.Tensor]) -> None:
        """near: the result of `alike` for each client."""
        edges = batch.sum.scipy()
        self.linked: list[torch.Tensor] = []
        blocks = []
        for first, neighbours in zip(batch.offsets, near, strict=False):
            n, m = neighbours.shape
            target = neighbours.cpu().numpy().ravel()
            knn = sp.csr_matrix((np.ones(n * m), (np.repeat(np.arange(n), m), target)), shape=(n, n))
            block = edges[first : first + n, first : first + n] + knn + knn.T + sp.identity(n)
            block.data[:] = 1
            scale = sp.diags(np.asarray(block.sum(1)).ravel() ** -0.5)
            blocks.append(scale @ block @ scale)
            self.linked.append(placed(torch.from_numpy(block.toarray() > 0)))
        self.matrix = SparseMatrix(sp.csr_matrix(sp.block_diag(blocks, format="csr")), symmetric=True)

    def drawn(self, streams: Streams) -> list[torch.Tensor]:
        """Draw logistic noise (n, n) for each client."""
        noise = []
        for source, pairs in zip(streams("view edges"), self.linked, strict=True):
            noise.append(torch.logit(torch.from_numpy(source.random(pairs.shape, dtype=np.float32)), EPS))
        return noise


def edge_codes(params: Params, batch: Batch, matrix: SparseMatrix) -> torch.Tensor:
    """Return codes (N, h) relu(A (A X W_0) W_1); their inner products are the logits of edges."""
    first = matrix @ (batch.x @ params["view.0.weight"])
    return torch.relu(matrix @ segment_product(first, params["view.1.weight"], batch.sizes))


def sampled(
    codes: torch.Tensor, linked: torch.Tensor, noise: torch.Tensor, share: float, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a drawn graph of one client, D^-1/2 S D^-1/2 (n, n) with self-loops, and the weighted cross-entropy of the
    logits l = codes codes^T against the linked pairs A.

    Pair i < j is in S with probability share l_ij / max l + (1 - share) A_ij: 0 or 1 in the forward pass, the gradient
    of the relaxed draw in the backward pass (straight-through, Concrete at `temperature`). Matrices of a large client
    are computed again for the gradient.
    """
    if codes.requires_grad and len(codes) >= LARGE:
        graph: tuple[torch.Tensor, torch.Tensor] = checkpoint(
            _sampled, codes, linked, noise, share, temperature, use_reentrant=False
        )
        return graph
    return _sampled(codes, linked, noise, share, temperature)


def _sampled(
    codes: torch.Tensor, linked: torch.Tensor, noise: torch.Tensor, share: float, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = codes @ codes.T
    positives = linked.sum()
    negatives = (linked.numel() - positives).clamp(min=1)
    loss = F.softplus(logits)
    edge_loss = torch.where(linked, (loss - logits) * (negatives / positives), loss).sum() / (2 * negatives)
    p = share * logits / (logits.max() + EPS) + (1 - share) * linked
    soft = torch.sigmoid((torch.logit(p, EPS) + noise) / temperature)
    upper = (soft + (soft.detach().round() - soft.detach())).triu(1)
    graph = upper + upper.T + torch.eye(len(codes))
    scale = graph.sum(1).rsqrt()
    return graph * scale * scale.unsqueeze(1), edge_loss


def through(
    model: GCN, params: Params, batch: Batch, graphs: Sequence[torch.Tensor], streams: Streams | None
) -> Forward:
    """Return a GCN's training pass on other graphs. graphs: one dense propagation matrix per client."""
    pre: list[torch.Tensor] = []
    x = batch.x if streams is None else batch.x.dropout(model.input_dropout, streams)
    rows = x @ params["0.weight"]
    for i in range(model.layers):
        propagated = torch.cat(
            [graph @ client_rows for graph, client_rows in zip(graphs, batch.per_client(rows), strict=True)]
        )
        z = segment_add(propagated, params[f"{i}.bias"], batch.sizes)
        if i < model.layers - 1:
            pre.append(z)
            h = torch.relu(z) if streams is None else dropout(z, model.dropout, streams, batch.sizes, relu=True)
            rows = segment_product(h, params[f"{i + 1}.weight"], batch.sizes)
    return Forward(z, pre)
