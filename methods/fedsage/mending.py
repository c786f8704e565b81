"""Graphs with generated neighbours: the clients' own nodes and new ones, in one batch."""

from __future__ import annotations

import numpy as np
import torch

from ...benchmark.engine import Batch, Features, Streams, as_graph, rate, section
from .dense import product


class MendedFeatures(Features):
    """The clients' own features, sparse or dense, and dense generated rows, as one matrix (N + G, d)."""

    def __init__(self, own: Features, extra: tuple[int, ...], order: torch.Tensor) -> None:
        """extra: generated rows of each client. order: (N + G,) rows of [own; generated] in the mended order."""
        self.own, self.extra, self.order = own, extra, order
        self.sizes = tuple(n + g for n, g in zip(own.sizes, extra, strict=True))
        self.generated = torch.empty(0)  # (G, d), set by `Mending.fill`

    @property
    def width(self) -> int:
        return self.own.width

    @property
    def sparse(self) -> bool:
        return False

    @section("dense")
    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        rows = self.generated.split(self.extra)
        made = [product(x, w) for x, w in zip(rows, weight.unbind(0), strict=True)]
        return torch.cat([self.own @ weight, *made])[self.order]

    def dense(self) -> torch.Tensor:
        return torch.cat([self.own.dense(), self.generated])[self.order]

    def dropout(self, p: float, streams: Streams) -> Features:
        if p == 0:
            return self
        thinned = MendedFeatures(self.own.dropout(p, streams), self.extra, self.order)
        keep = streams.keep("generated dropout", [g * self.width for g in self.extra], p).view(self.generated.shape)
        thinned.generated = self.generated * keep / (1 - rate(p))
        return thinned

    def drop_columns(self, keep: torch.Tensor) -> Features:
        dropped = MendedFeatures(self.own.drop_columns(keep), self.extra, self.order)
        rows = [x * k for x, k in zip(self.generated.split(self.extra), keep, strict=True)]
        dropped.generated = torch.cat(rows)
        return dropped


class Mending:
    """A batch whose nodes get new neighbours: each new node is joined, both ways, to the node it was made for.

    counts: (N,) new neighbours of each row. batch: the mended data, a client's new nodes after its own, without label
    or mask. own: (N,) where the old rows are in it.
    """

    def __init__(self, batch: Batch, counts: torch.Tensor) -> None:
        self.counts = counts
        extra = tuple(int(part.sum()) for part in counts.split(batch.sizes))
        before = torch.tensor(np.cumsum([0, *extra])[:-1], dtype=torch.int64)
        total, made = len(counts), int(counts.sum())
        parent = torch.repeat_interleave(torch.arange(total), counts)
        self.own = torch.arange(total) + before[batch.owner]
        fresh = torch.tensor(batch.offsets)[1:][batch.owner[parent]] + torch.arange(made)
        source, target = (self.own[ends] for ends in batch.ends)
        parent = self.own[parent]
        ends = torch.cat([source, parent, fresh]), torch.cat([target, fresh, parent])
        order = torch.cat([self.own, fresh]).argsort()
        masks = {name: torch.cat([mask, mask.new_zeros(made)])[order] for name, mask in batch.masks.items()}
        self.features = MendedFeatures(batch.x, extra, order)
        self.batch = Batch(
            as_graph(*ends, total + made),
            self.features,
            self.features.sizes,
            torch.cat([batch.label, batch.label.new_zeros(made)])[order],
            masks,
            torch.cat([batch.global_id, batch.global_id.new_full((made,), -1)])[order],
        )

    def fill(self, generated: torch.Tensor) -> Batch:
        """The mended data with these features (G, d) of the new nodes."""
        self.features.generated = generated
        return self.batch
