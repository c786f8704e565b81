"""Training on minibatches of rows, and of nodes with sampled neighbours (Hamilton et al., NeurIPS 2017)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import dgl
import numpy as np
import torch
from dgl.dataloading import NeighborSampler
from dgl.utils import get_num_threads, set_num_threads

from .backbone import Backbone
from .batch import Batch, Block, LabelledRows, Rows
from .client_batch import ClientBatch
from .config import TrainConfig
from .device import on_host, placed
from .features import Features
from .segment_ops import of_shape

if TYPE_CHECKING:
    from .method import Method

Shown = tuple[Any, tuple[Any, ...]]  # the `batch` and `data` of a client batch
NO_ROWS = np.empty(0, np.int64)
ROWS = 2**17  # computed at once without gradients


@dataclass(frozen=True, eq=False)
class SampledRows(LabelledRows):
    """A minibatch of training nodes, with the blocks that compute them.

    sizes, label, masks, global_id: of the nodes. x: features of the rows below the first block, or of the nodes if
    there is no block, as for an MLP. blocks: one per layer.
    """

    x: Features
    sizes: tuple[int, ...]
    label: torch.Tensor
    masks: dict[str, torch.Tensor]
    global_id: torch.Tensor
    blocks: Sequence[Block]
    at_once: None = None

    def layer(self, i: int) -> Any:
        """The input of layer i: a block, or this batch if it has none."""
        return self.blocks[i] if self.blocks else self

    @property
    def above(self) -> SampledRows:
        return self

    def final(self, i: int, rows: torch.Tensor) -> torch.Tensor:
        """Of the rows of layer i, the nodes of this batch, which are the first rows of each client."""
        if not self.blocks or i == len(self.blocks) - 1:
            return rows
        starts = np.cumsum([0, *self.blocks[i].above.sizes[:-1]])
        at = np.concatenate([start + np.arange(n) for start, n in zip(starts, self.sizes, strict=True)])
        return rows.index_select(0, placed(torch.from_numpy(at)))


class MinibatchClientBatch(ClientBatch):
    """A client batch that trains on minibatches. `batch` and `data` are all rows; in a step of `fit`, its minibatch.

    A client without training rows takes no step, and a client with fewer minibatches than others skips the last steps.
    Subclasses set `_trained`, each client's training rows, in `_collate`, and implement `_minibatch`.
    """

    _trained: list[np.ndarray]
    _at: slice | torch.Tensor = slice(None)

    def _minibatch(self, picks: Sequence[np.ndarray]) -> Shown:
        """`batch` and `data` of a step. picks: each client's rows of the step, perhaps none."""
        raise NotImplementedError

    @property
    def inputs(self) -> None:
        """None: each minibatch has other features."""

    @property
    def at(self) -> slice | torch.Tensor:
        return self._at

    def of_a_step(self, value: torch.Tensor) -> torch.Tensor:
        value = super().of_a_step(value)
        steps = [max(1, len(cut(rows, self.config.batch_size))) for rows in self._trained]
        return value / of_shape(torch.tensor(steps, dtype=value.dtype), value)

    def steps(self) -> Iterator[list[int] | None]:
        """An epoch of minibatches of `config.batch_size` training rows, in an order drawn from each client's stream.

        All clients' minibatches of a step are one batched computation.
        """
        chunks = [self._chunks(*client) for client in zip(self.streams("minibatches"), self._trained, strict=True)]
        before = self.batch, self.data
        try:
            for step in range(max(map(len, chunks))):
                picks = [minibatches[step] if step < len(minibatches) else NO_ROWS for minibatches in chunks]
                active = [k for k, rows in enumerate(picks) if len(rows)]
                self._at = torch.from_numpy(np.concatenate(picks))
                self.batch, self.data = self._minibatch(picks)
                yield None if len(active) == len(self) else active
        finally:
            self.batch, self.data = before
            self._at = slice(None)

    def _chunks(self, generator: np.random.Generator, rows: np.ndarray) -> list[np.ndarray]:
        """The minibatches of a client's epoch; a single one is not shuffled."""
        in_order = cut(rows, self.config.batch_size) if len(rows) else []
        return in_order if len(in_order) < 2 else cut(generator.permutation(rows), self.config.batch_size)


def cut(order: np.ndarray, size: int | None) -> list[np.ndarray]:
    """Consecutive chunks of `size` (None: one chunk). A last chunk of one row joins the chunk before, because
    contrastive losses need two."""
    chunks = [order[first : first + size] for first in range(0, len(order), size)] if size else [order]
    if len(chunks) > 1 and len(chunks[-1]) == 1:
        chunks[-2:] = [np.concatenate(chunks[-2:])]
    return chunks


class SampledClientBatch(MinibatchClientBatch):
    """A client batch of nodes that trains on `config.batch_size` training nodes per client and step.

    A layer uses `config.fanout` neighbours per node, drawn in each step from each client's stream: draws do not depend
    on the other clients of the batch. Outside of `fit` all nodes are computed, layer by layer.
    """

    def _collate(self) -> None:
        super()._collate()
        self.batch = replace(self.batch, at_once=ROWS)
        self.data = (self.batch,)
        train = self.batch.masks["train"].cpu().numpy()
        self._trained = [first + np.flatnonzero(train[first:last]) for first, last in pairwise(self.batch.offsets)]
        self._whole: Batch = self.batch
        self._fixed: Shown | None = None  # the minibatch if an epoch has one step with all neighbours: nothing is drawn

    @cached_property
    def _graph(self) -> dgl.DGLGraph:
        """The in-edges of all rows, without columns: the sampler needs no more."""
        with on_host():
            ends, sources = (torch.from_numpy(part) for part in self._whole.in_edges)
            return dgl.graph(("csc", (ends, sources, torch.empty(0, dtype=ends.dtype))), num_nodes=len(ends) - 1)

    @property
    def _fanout(self) -> tuple[int, ...]:
        backbone = self.network.groups[0].backbone
        return self.config.fanout if self.config.fanout and backbone.hops else (-1,) * backbone.hops

    def _minibatch(self, picks: Sequence[np.ndarray]) -> Shown:
        if set(self._fanout) - {-1} or sum(map(len, picks)) < sum(map(len, self._trained)):
            return self._drawn(picks)
        self._fixed = self._fixed or self._drawn(picks)
        return self._fixed

    def _drawn(self, picks: Sequence[np.ndarray]) -> Shown:
        if self._fanout:
            with _one_thread(), on_host():
                of_clients = [self._blocks_of(*each) for each in zip(picks, self.streams("neighbours"), strict=True)]
            below = [blocks[0].srcdata[dgl.NID].numpy() for blocks in of_clients]
            blocks = tuple(self._stacked(layer) for layer in zip(*of_clients, strict=True))
        else:
            below, blocks = list(picks), ()
        whole, rows = self._whole, placed(torch.from_numpy(np.concatenate(picks)))
        x = whole.x.rows(torch.from_numpy(np.concatenate(below)), tuple(map(len, below)))
        masks = {part: mask.index_select(0, rows) for part, mask in whole.masks.items()}
        label, ids = whole.label.index_select(0, rows), whole.global_id.index_select(0, rows)
        sampled = SampledRows(x, tuple(map(len, picks)), label, masks, ids, blocks)
        return sampled, (sampled,)

    def _blocks_of(self, picks: np.ndarray, generator: np.random.Generator) -> list[dgl.DGLGraph]:
        """DGL's blocks of one client, the first layer's first. A client without rows in this step draws nothing."""
        if len(picks):
            dgl.seed(int(generator.integers(2**31)))
        blocks: list[dgl.DGLGraph] = NeighborSampler(list(self._fanout)).sample_blocks(
            self._graph, torch.from_numpy(picks)
        )[2]
        return blocks

    def _stacked(self, blocks: Sequence[dgl.DGLGraph]) -> Block:
        below, above = [block.num_src_nodes() for block in blocks], [block.num_dst_nodes() for block in blocks]
        starts = np.cumsum([0, *below[:-1]])
        ends, sources, edges = [np.zeros(1, np.int64)], [], 0
        for block, start in zip(blocks, starts, strict=True):
            block_ends, block_sources, _ = (part.numpy() for part in block.adj_tensors("csc"))
            ends.append(edges + block_ends[1:])
            sources.append(start + block_sources)
            edges += len(block_sources)
        at = np.concatenate([start + np.arange(n) for start, n in zip(starts, above, strict=True)])
        rows = np.concatenate([block.srcdata[dgl.NID].numpy() for block in blocks])
        return Block(
            tuple(below), Rows(tuple(above)), at, np.concatenate(ends), np.concatenate(sources), self._degrees[rows]
        )

    @cached_property
    def _degrees(self) -> np.ndarray:
        return np.diff(self._whole.in_edges[0])


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let DGL use one thread: it has one generator per thread, and draws must not depend on their number."""
    before = get_num_threads()
    set_num_threads(1)
    try:
        yield
    finally:
        set_num_threads(before)


def misfit(method: Method, backbones: Sequence[Backbone], config: TrainConfig) -> str | None:
    """Return why a method or its architectures cannot train on minibatches of nodes, or None."""
    if not config.batch_size:
        return None
    if not method.takes_minibatches():
        return (
            f"{method.name} looks at more than the rows of a step, so it trains on the full batch: leave batch_size out"
        )
    if len(backbones) > 1:
        return "minibatches of nodes need one architecture for all clients: leave batch_size out"
    backbone = backbones[0]
    if reason := backbone.whole_only():
        return f"{reason}: leave batch_size out"
    if config.fanout and backbone.hops and len(config.fanout) != backbone.hops:
        return f"fanout has {len(config.fanout)} numbers for {backbone.hops} layers: give one for each layer"
    return None
