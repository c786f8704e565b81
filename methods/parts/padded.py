"""Graphs of about the same size side by side, for products that stay within a graph."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import torch

from ...benchmark.engine import GraphBatch


@dataclass(frozen=True)
class Padded:
    """The graphs of a batch by the power of two that their numbers of nodes do not exceed.

    For each such size: rows (b, size) of the nodes of its b graphs; real (b, size) bool, False where a graph has fewer
    nodes and its last one is repeated; graphs (b,) their places in the batch. nodes: (N,) and graphs_at: (B,) the place
    of each node and graph in what is put together size by size.
    """

    rows: list[torch.Tensor]
    real: list[torch.Tensor]
    graphs: list[torch.Tensor]
    nodes: torch.Tensor
    graphs_at: torch.Tensor

    @classmethod
    def of(cls, batch: GraphBatch) -> Padded:
        """Made once for a batch."""
        if batch not in _MADE:
            _MADE[batch] = cls._made(batch.lengths)
        return _MADE[batch]

    @classmethod
    def _made(cls, lengths: np.ndarray) -> Padded:
        first = np.cumsum(lengths) - lengths
        size = 2 ** np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
        rows, real, graphs = [], [], []
        for width in np.unique(size):
            place = np.flatnonzero(size == width)
            step, n = np.arange(width), lengths[place, None]
            rows.append(first[place, None] + np.minimum(step, n - 1))
            real.append(step < n)
            graphs.append(place)
        nodes = np.concatenate([ids[kept] for ids, kept in zip(rows, real, strict=True)])
        return cls(
            [torch.from_numpy(mask) for mask in rows],
            [torch.from_numpy(ids) for ids in real],
            [torch.from_numpy(ids) for ids in graphs],
            torch.from_numpy(np.argsort(nodes)),
            torch.from_numpy(np.argsort(np.concatenate(graphs))),
        )

    def gathered(self, weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """(B, M, h) for each graph sum over its nodes i of weights_i rows_i^T. weights: (N, M), rows: (N, h)."""
        sums = [(weights[at] * real.unsqueeze(2)).mT @ rows[at] for at, real in zip(self.rows, self.real, strict=True)]
        return torch.cat(sums)[self.graphs_at]

    def spread(self, weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """(N, h) for each node the sum over m of its weights times the values of its graph. weights: (N, M), values:
        (B, M, h)."""
        sums = [
            (weights[at] @ values[graphs])[real]
            for at, real, graphs in zip(self.rows, self.real, self.graphs, strict=True)
        ]
        return torch.cat(sums)[self.nodes]


_MADE: WeakKeyDictionary[GraphBatch, Padded] = WeakKeyDictionary()
