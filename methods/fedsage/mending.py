"""Graphs with generated neighbours: the clients' own nodes and new ones, in one batch."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from ...benchmark.engine import Batch, Features, Streams, as_graph, rate, section
from .products import product


class MendedFeatures(Features):
    """The clients' own features, sparse or dense, and dense generated rows, as one matrix (N + G, d)."""

    def __init__(self, original: Features, extra: tuple[int, ...], order: torch.Tensor) -> None:
        """extra: generated rows of each client. order: (N + G,) rows of [original; generated] in the mended order."""
        self.original, self.extra, self.order = original, extra, order
        self.sizes = tuple(n + g for n, g in zip(original.sizes, extra, strict=True))
        self.generated = torch.empty(0)  # (G, d), set by `Mending.fill`

    @property
    def width(self) -> int:
        return self.original.width

    @property
    def sparse(self) -> bool:
        return False

    @section("dense")
    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        rows = self.generated.split(self.extra)
        made = [product(x, w) for x, w in zip(rows, weight.unbind(0), strict=True)]
        return torch.cat([self.original @ weight, *made])[self.order]

    def dense(self) -> torch.Tensor:
        return torch.cat([self.original.dense(), self.generated])[self.order]

    def dropout(self, p: float, streams: Streams) -> Features:
        if p == 0:
            return self
        thinned = MendedFeatures(self.original.dropout(p, streams), self.extra, self.order)
        keep = streams.keep("generated dropout", [g * self.width for g in self.extra], p).view(self.generated.shape)
        thinned.generated = self.generated * keep / (1 - rate(p))
        return thinned

    def drop_columns(self, keep: torch.Tensor) -> Features:
        dropped = MendedFeatures(self.original.drop_columns(keep), self.extra, self.order)
        rows = [x * k for x, k in zip(self.generated.split(self.extra), keep, strict=True)]
        dropped.generated = torch.cat(rows)
        return dropped


class Held(NamedTuple):
    """Rows (R, d) that a half of the weights meets, where they stand among the generated ones (R,), ascending, and how
    many are each client's."""

    rows: torch.Tensor
    places: torch.Tensor
    sizes: list[int]


class PooledFeatures(MendedFeatures):
    """Mended features in less time, for GraphSAGE's first layer alone, weights [W_self, W_neigh].

    The mean over neighbours needs only the sum of generated rows. So W_neigh meets one row per parent, the sum
    of its new nodes' features, which takes the first one's place; the others' are zero. W_self meets only `needed`
    new nodes: elsewhere the result lacks that half, where it is not read.
    """

    def __init__(self, mended: MendedFeatures, parent: torch.Tensor) -> None:
        """parent: (G,) the node that each generated row is a neighbour of, ascending. All rows are needed at first."""
        super().__init__(mended.original, mended.extra, mended.order)
        self.generated = mended.generated
        parents, place = torch.unique_consecutive(parent, return_inverse=True)
        sums = self.generated.new_zeros(len(parents), self.width).index_add_(0, place, self.generated)
        self.sums = self._held(sums, torch.searchsorted(place, torch.arange(len(parents))))
        self.needed = Held(self.generated, torch.arange(len(parent)), list(self.extra))

    def where(self, needed: torch.Tensor) -> PooledFeatures:
        """The same where only these generated rows are needed. needed: bool (G,)."""
        features, places = copy(self), needed.nonzero().squeeze(1)
        features.needed = self._held(self.generated[places], places)
        return features

    def _held(self, rows: torch.Tensor, places: torch.Tensor) -> Held:
        ends = torch.searchsorted(places, torch.tensor(self.extra).cumsum(0)).tolist()
        return Held(rows, places, [end - start for start, end in pairwise([0, *ends])])

    @section("dense")
    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        made = [self._times(*each) for each in zip((self.needed, self.sums), weight.chunk(2, dim=2), strict=True)]
        return torch.cat([self.original @ weight, torch.cat(made, 1)])[self.order]

    def _times(self, held: Held, weight: torch.Tensor) -> torch.Tensor:
        """(G, h) of each client's rows times its weights (K, d, h), zero where there is no row."""
        weight = weight.contiguous()  # oneDNN takes minutes for columns cut out of wider rows
        parts = zip(held.rows.split(held.sizes), weight.unbind(0), strict=True)
        products = torch.cat([product(x, w) for x, w in parts])
        return products.new_zeros(len(self.generated), products.shape[1]).index_copy(0, held.places, products)


class Mending:
    """A batch whose nodes get new neighbours: each new node is joined, both ways, to the node it was made for.

    counts: (N,) new neighbours of each row. parent: (G,) the row that each new one was made for. batch: the mended
    data, a client's new nodes after its own, without label or mask. own_rows: (N,) where the old rows are in it.
    """

    def __init__(self, batch: Batch, counts: torch.Tensor) -> None:
        self.counts = counts
        extra = tuple(int(part.sum()) for part in counts.split(batch.sizes))
        before = torch.tensor(np.cumsum([0, *extra])[:-1], dtype=torch.int64)
        total, made = len(counts), int(counts.sum())
        self.parent = parent = torch.repeat_interleave(torch.arange(total), counts)
        self.own_rows = torch.arange(total) + before[batch.owner]
        fresh = torch.tensor(batch.offsets)[1:][batch.owner[parent]] + torch.arange(made)
        source, target = (self.own_rows[ends] for ends in batch.ends)
        parent = self.own_rows[parent]
        ends = torch.cat([source, parent, fresh]), torch.cat([target, fresh, parent])
        order = torch.cat([self.own_rows, fresh]).argsort()
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

    def pooled(self, near: torch.Tensor) -> tuple[Batch, Batch]:
        """The filled data for GraphSAGE: whole, and with the new neighbours of the rows `near` (bool, (N,)) alone as
        nodes of their own."""
        whole = PooledFeatures(self.features, self.parent)
        return replace(self.batch, x=whole), replace(self.batch, x=whole.where(near[self.parent]))
