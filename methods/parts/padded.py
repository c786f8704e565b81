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
    nodes and its last one is repeated. nodes: (N,) the place of each node in what is put together size by size.
    """

    rows: list[torch.Tensor]
    real: list[torch.Tensor]
    nodes: torch.Tensor

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
        rows, real = [], []
        for own in np.unique(size):
            place = np.flatnonzero(size == own)
            step, n = np.arange(own), lengths[place, None]
            rows.append(first[place, None] + np.minimum(step, n - 1))
            real.append(step < n)
        nodes = np.concatenate([own[kept] for own, kept in zip(rows, real, strict=True)])
        return cls(
            [torch.from_numpy(own) for own in rows],
            [torch.from_numpy(own) for own in real],
            torch.from_numpy(np.argsort(nodes)),
        )


_MADE: WeakKeyDictionary[GraphBatch, Padded] = WeakKeyDictionary()
