"""Graphs padded to a few sizes, for batched products within each graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from ...benchmark.engine import GraphBatch


@dataclass(frozen=True)
class Padded:
    """The graphs of a batch, grouped by size: the number of nodes, rounded up to a power of two.

    For each size: rows (b, size), the nodes of its b graphs; real (b, size), bool, False for padding, which repeats a
    graph's last node; graphs (b,), their indices in the batch. nodes (N,), graphs_at (B,): the index of each node and
    graph in results that are concatenated by size.
    """

    rows: list[torch.Tensor]
    real: list[torch.Tensor]
    graphs: list[torch.Tensor]
    nodes: torch.Tensor
    graphs_at: torch.Tensor

    @classmethod
    def of(cls, batch: GraphBatch) -> Padded:
        """Return the padded graphs of a batch, computed once."""
        if "padded" not in batch.memo:
            batch.memo["padded"] = cls._compute(batch.lengths)
        padded: Padded = batch.memo["padded"]
        return padded

    @classmethod
    def _compute(cls, lengths: np.ndarray) -> Padded:
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
            list(map(torch.from_numpy, rows)),
            list(map(torch.from_numpy, real)),
            list(map(torch.from_numpy, graphs)),
            torch.from_numpy(np.argsort(nodes)),
            torch.from_numpy(np.argsort(np.concatenate(graphs))),
        )

    def gathered(self, weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return (B, M, h): per graph the sum over its nodes i of weights_i rows_i^T. weights: (N, M), rows: (N, h)."""
        sums = [(weights[at] * real.unsqueeze(2)).mT @ rows[at] for at, real in zip(self.rows, self.real, strict=True)]
        return torch.cat(sums)[self.graphs_at]

    def spread(self, weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return (N, h): per node the sum over m of its weights times its graph's values. weights: (N, M), values: (B,
        M, h)."""
        sums = [
            (weights[at] @ values[graphs])[real]
            for at, real, graphs in zip(self.rows, self.real, self.graphs, strict=True)
        ]
        return torch.cat(sums)[self.nodes]
