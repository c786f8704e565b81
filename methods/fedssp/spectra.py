"""Spectra of many graphs at once: eigenvalues as values of nodes, filters at edges, attention among eigenvalues.

A graph with n nodes has n eigenvalues; they stand in the rows of its nodes, in ascending order.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from weakref import WeakKeyDictionary

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from ...benchmark.engine import GraphBatch, SparseMatrix, neighbours, section
from ..parts.padded import Padded


def _decomposed(adjacency: sp.csr_matrix, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues (n,) and eigenvectors (n, n) of D - A of one graph, in float64."""
    own = adjacency[first:last, first:last].toarray().astype(np.float64)
    values, vectors = np.linalg.eigh(np.diag(own.sum(1)) - own)
    return values, vectors


def eigenvalues(adjacency: sp.csr_matrix, starts: np.ndarray) -> torch.Tensor:
    """(nodes, 1) of the Laplacians D - A."""
    found = [_decomposed(adjacency, *ends)[0] for ends in pairwise(starts)]
    return torch.from_numpy(np.concatenate(found).astype(np.float32)).unsqueeze(1)


def eigenvectors(adjacency: sp.csr_matrix, starts: np.ndarray) -> sp.csr_matrix:
    """The eigenvectors as columns, block-diagonal; every entry of a block is stored, zeros too."""
    lengths = np.diff(starts)
    data = [_decomposed(adjacency, *ends)[1].ravel() for ends in pairwise(starts)]
    columns = [np.tile(np.arange(a, a + n), n) for a, n in zip(starts[:-1], lengths, strict=True)]
    ends = np.concatenate([[0], np.cumsum(np.repeat(lengths, lengths))])
    return sp.csr_matrix((np.concatenate(data), np.concatenate(columns), ends), shape=adjacency.shape)


@dataclass(frozen=True)
class Spectra:
    """Of the graphs of a batch. values: (N, 1) eigenvalues. at_edges: (E, N), times g(values) it is U diag(g) U^T of
    each graph at its edges, by target. sizes: edges of each client. padded: the graphs' rows."""

    values: torch.Tensor
    at_edges: SparseMatrix
    sizes: tuple[int, ...]
    padded: Padded

    @classmethod
    def of(cls, batch: GraphBatch) -> Spectra:
        """Made once for a batch."""
        if batch not in _MADE:
            with section("spectra"):
                _MADE[batch] = cls._made(batch)
        return _MADE[batch]

    @classmethod
    def _made(cls, batch: GraphBatch) -> Spectra:
        vectors = batch.cut(batch.stack.operator(eigenvectors))
        edges = batch.view(neighbours).scipy()
        target = np.repeat(np.arange(edges.shape[0]), np.diff(edges.indptr))
        left, right = vectors[target], vectors[edges.indices]
        products = (left.data * right.data, left.indices, left.indptr)
        ends = edges.indptr[np.cumsum((0, *batch.sizes))]
        return cls(
            batch.code(eigenvalues),
            SparseMatrix(sp.csr_matrix(products, shape=(len(target), edges.shape[0])), "filters"),
            tuple(np.diff(ends).tolist()),
            Padded.of(batch),
        )

    def attention(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int) -> torch.Tensor:
        """(N, h) of each row its attention to the rows of its graph (Vaswani et al. 2017), in `heads` parts."""
        found = []
        for rows, real in zip(self.padded.rows, self.padded.real, strict=True):
            q, k, v = (own[rows].view(*rows.shape, heads, -1).transpose(1, 2) for own in (query, key, value))
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None])
            found.append(out.transpose(1, 2).flatten(2)[real])
        return torch.cat(found)[self.padded.nodes]


_MADE: WeakKeyDictionary[GraphBatch, Spectra] = WeakKeyDictionary()
