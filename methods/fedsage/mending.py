"""Graphs with generated neighbours: the clients' nodes and new nodes in one batch."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from ...benchmark.engine import Batch, Features, Streams, as_graph, rate, segment_product


class MendedFeatures(Features):
    """The clients' features, sparse or dense, and dense generated rows, as one matrix (N + G, d)."""

    def __init__(self, original: Features, extra: tuple[int, ...], order: torch.Tensor) -> None:
        """extra: generated rows per client. order: (N + G,) rows of [original; generated] in the mended order."""
        self.original, self.extra, self.order = original, extra, order
        self.sizes = tuple(n + g for n, g in zip(original.sizes, extra, strict=True))
        self.generated = torch.empty(0)  # (G, d), set by `Mending.fill`

    @property
    def width(self) -> int:
        return self.original.width

    @property
    def sparse(self) -> bool:
        return False

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        made = segment_product(self.generated, weight, self.extra)
        return torch.cat([self.original @ weight, made])[self.order]

    def dense(self) -> torch.Tensor:
        return torch.cat([self.original.dense(), self.generated])[self.order]

    def dropout(self, p: float, streams: Streams | None) -> Features:
        if p == 0 or streams is None:
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
    """Rows (R, d) that are multiplied by half of the weights; places: (R,) their rows among the generated ones,
    ascending; sizes: rows per client."""

    rows: torch.Tensor
    places: torch.Tensor
    sizes: list[int]


class PooledFeatures(MendedFeatures):
    """Mended features with fewer products, only for GraphSAGE's first layer, weights [W_self, W_neigh].

    The mean over neighbours needs only the sum of generated rows. So W_neigh is multiplied by one row per parent, the
    sum of its new nodes' features, in the row of the first one; the products of the others are 0. W_self is multiplied
    by the `needed` new nodes only; the result is 0, and not used, for the others.
    """

    def __init__(self, mended: MendedFeatures, parent: torch.Tensor) -> None:
        """parent: (G,) the node of which each generated row is a neighbour, ascending. Initially all are needed."""
        super().__init__(mended.original, mended.extra, mended.order)
        self.generated = mended.generated
        parents, place = torch.unique_consecutive(parent, return_inverse=True)
        sums = self.generated.new_zeros(len(parents), self.width).index_add_(0, place, self.generated)
        self.sums = self._held(sums, torch.searchsorted(place, torch.arange(len(parents))))
        self.needed = Held(self.generated, torch.arange(len(parent)), list(self.extra))

    def where(self, needed: torch.Tensor) -> PooledFeatures:
        """Return the same features with fewer needed rows. needed: bool (G,)."""
        features, places = copy(self), needed.nonzero().squeeze(1)
        features.needed = self._held(self.generated[places], places)
        return features

    def _held(self, rows: torch.Tensor, places: torch.Tensor) -> Held:
        ends = torch.searchsorted(places, torch.tensor(self.extra).cumsum(0)).tolist()
        return Held(rows, places, [end - start for start, end in pairwise([0, *ends])])

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        made = [self._times(*each) for each in zip((self.needed, self.sums), weight.chunk(2, dim=2), strict=True)]
        return torch.cat([self.original @ weight, torch.cat(made, 1)])[self.order]

    def _times(self, held: Held, weight: torch.Tensor) -> torch.Tensor:
        """Return (G, h) each client's rows times its weights (K, d, h), 0 for other generated rows."""
        weight = weight.contiguous()  # oneDNN takes minutes for columns of a wider matrix
        products = segment_product(held.rows, weight, held.sizes)
        return products.new_zeros(len(self.generated), products.shape[1]).index_copy(0, held.places, products)


class Mending:
    """A batch with new neighbours: each new node is joined, in both directions, to its parent.

    counts: (N,) new neighbours of each row. parent: (G,) the parent row of each new node. batch: the mended data, a
    client's new nodes after its own nodes, without label and mask. own_rows: (N,) the rows of the old nodes in it.
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
        """Set the features (G, d) of the new nodes and return the mended data."""
        self.features.generated = generated
        return self.batch

    def pooled(self, near: torch.Tensor) -> tuple[Batch, Batch]:
        """Return the filled data for GraphSAGE: with all new nodes, and with W_self products only for new neighbours of
        the rows `near` (bool (N,))."""
        whole = PooledFeatures(self.features, self.parent)
        return replace(self.batch, x=whole), replace(self.batch, x=whole.where(near[self.parent]))
