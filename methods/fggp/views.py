"""FGGP's second view of a client's graph: similar nodes are linked, and edges are drawn by learnt probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from torch.autograd import Function

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

BLOCK = 1 << 16  # pairs of nodes in a block; a dozen blocks fit into the cache
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
        """Draw uniform numbers (n, n) for each client."""
        sources = zip(streams("view edges"), self.linked, strict=True)
        return [placed(torch.from_numpy(source.random(pairs.shape, dtype=np.float32))) for source, pairs in sources]


def edge_codes(params: Params, batch: Batch, matrix: SparseMatrix) -> torch.Tensor:
    """Return codes (N, h) relu(A (A X W_0) W_1); their inner products are the logits of edges."""
    first = matrix @ (batch.x @ params["view.0.weight"])
    return torch.relu(matrix @ segment_product(first, params["view.1.weight"], batch.sizes))


def sampled(
    codes: torch.Tensor, linked: torch.Tensor, uniform: torch.Tensor, share: float, temperature: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a drawn graph of one client, D^-1/2 S D^-1/2 (n, n) with self-loops, and the weighted cross-entropy of the
    logits l = codes codes^T against the linked pairs A.

    Pair i < j is in S with probability p = share l_ij / max l + (1 - share) A_ij, if uniform_ij > 1 - p. The gradient
    is that of the relaxed draw sigmoid((logit p + logit uniform) / temperature) (straight-through, Concrete).
    """
    graph, edge_loss = _Sampled.apply(codes, linked, uniform, share, temperature)
    return graph, edge_loss


class _Sampled(Function):
    """`sampled` in blocks of rows i with columns j >= i. Blocks fit into the processor's cache, and are computed again
    for the gradient, so that only S is kept."""

    @staticmethod
    def forward(
        ctx: Any, codes: torch.Tensor, linked: torch.Tensor, uniform: torch.Tensor, share: float, temperature: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        n, pairs = len(codes), Pairs(codes, linked, share)
        graph, loss = codes.new_zeros(n, n), codes.new_zeros(())
        for rows, columns in row_blocks(n, codes.is_cpu):
            logits, known, p = pairs.block(rows, columns)
            graph[rows, columns] = (p > 1 - uniform[rows, columns].clamp(EPS, 1 - EPS)).float().triu_(1)
            error = F.softplus(logits)
            error = torch.where(known, (error - logits) * pairs.ratio, error).triu_()
            loss += 2 * error.sum() - error.trace()
        graph = (graph + graph.T).fill_diagonal_(1)
        scale = graph.sum(1).rsqrt()
        graph *= scale
        graph *= scale.unsqueeze(1)
        ctx.save_for_backward(codes, linked, uniform, graph, scale)
        ctx.options = share, temperature
        return graph, loss / (2 * pairs.negatives)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        of_graph, of_loss = grads
        codes, linked, uniform, graph, scale = ctx.saved_tensors
        share, temperature = ctx.options
        n, pairs, cpu = len(codes), Pairs(codes, linked, share), codes.is_cpu
        of_degree = torch.cat([
            ((of_graph[rows] + of_graph[:, rows].T) * graph[rows]).sum(1) for rows, _ in row_blocks(n, cpu)
        ]) * scale.square() / -2  # fmt: skip
        of_codes, of_largest = torch.zeros_like(codes), codes.new_zeros(())
        for rows, columns in row_blocks(n, cpu):
            logits, known, p = pairs.block(rows, columns)
            u = uniform[rows, columns].clamp(EPS, 1 - EPS)
            soft = torch.sigmoid((p * u / ((1 - p) * (1 - u))).log() / temperature)
            of_pair = (of_graph[rows, columns] + of_graph[columns, rows].T) * scale[rows, None] * scale[columns]
            of_pair += of_degree[rows, None] + of_degree[columns]
            inside = (p > EPS) & (p < 1 - EPS)
            of_p = (of_pair * soft * (1 - soft) / (temperature * p * (1 - p)) * inside).triu_(1)
            of_largest -= (of_p * logits).sum() * share / pairs.largest**2
            of_error = torch.sigmoid(logits)
            of_error = torch.where(known, (of_error - 1) * pairs.ratio, of_error).triu_()
            of_logits = of_p * (share / pairs.largest) + of_error * (of_loss / pairs.negatives)
            of_codes[rows] += of_logits @ codes[columns]
            of_codes[columns] += of_logits.triu_(1).T @ codes[rows]
        largest = pairs.squares == pairs.squares.max()
        of_codes += codes * (largest * 2 * of_largest / largest.sum()).unsqueeze(1)
        return of_codes, None, None, None, None


class Pairs:
    """Logits l and probabilities of pairs of nodes. ratio: of unlinked to linked pairs. largest: max l + EPS; no l is
    larger than all of the diagonal."""

    def __init__(self, codes: torch.Tensor, linked: torch.Tensor, share: float) -> None:
        self.codes, self.linked, self.share = codes, linked, share
        positives = linked.count_nonzero()
        self.negatives = (linked.numel() - positives).clamp(min=1)
        self.ratio = self.negatives / positives
        self.squares = codes.square().sum(1)
        self.largest = self.squares.max() + EPS

    def block(self, rows: slice, columns: slice) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return logits, linked pairs and probabilities p, from EPS to 1 - EPS."""
        logits, known = self.codes[rows] @ self.codes[columns].T, self.linked[rows, columns]
        p = logits * (self.share / self.largest) + (1 - self.share) * known
        return logits, known, p.clamp_(EPS, 1 - EPS)


def row_blocks(n: int, cpu: bool) -> Iterator[tuple[slice, slice]]:
    """Yield rows and columns of blocks that cover all pairs i <= j of n nodes; one block on other devices."""
    step = max(1, BLOCK // n) if cpu else n
    for first in range(0, n, step):
        yield slice(first, min(first + step, n)), slice(first, n)


def through(
    model: GCN, params: Params, batch: Batch, graphs: Sequence[torch.Tensor], streams: Streams | None
) -> Forward:
    """Return a GCN's training pass on other graphs. graphs: one dense propagation matrix per client."""
    pre: list[torch.Tensor] = []
    x = batch.x.dropout(model.input_dropout, streams)
    rows = x @ params["0.weight"]
    for i in range(model.layers):
        propagated = torch.cat(
            [graph @ client_rows for graph, client_rows in zip(graphs, batch.per_client(rows), strict=True)]
        )
        z = segment_add(propagated, params[f"{i}.bias"], batch.sizes)
        if i < model.layers - 1:
            pre.append(z)
            h = dropout(z, model.dropout, streams, batch.sizes, relu=True)
            rows = segment_product(h, params[f"{i + 1}.weight"], batch.sizes)
    return Forward(z, pre)
