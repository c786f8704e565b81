"""Blocks: the input of a layer that computes other rows than the layer below.

A block is DGL's message flow graph with a client axis. Minibatches of nodes have one block per layer; `in_parts`
computes a large batch block by block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dgl
import numpy as np
import scipy.sparse as sp
import torch

from .batch import Batch, Features, LabelledRows
from .device import on_host, placed
from .segment_ops import SparseMatrix


@dataclass(frozen=True, eq=False)
class Rows(LabelledRows):
    """Rows without labels. sizes: rows of each client."""

    sizes: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Block(Rows):
    """n rows of a layer, computed from m rows of the layer below, which contain them. sizes: rows below of each client.

    above: the n rows. at: (n,) their places below. ends (n + 1,), sources (edges,): the in-edges of each row, as places
    below. degrees: (m,) in-edges in the whole graph. If a row has fewer in-edges here, each has a larger weight, so
    that the expected sum is the sum over all in-edges.
    """

    above: Rows
    at: np.ndarray
    ends: np.ndarray
    sources: np.ndarray
    degrees: np.ndarray

    @cached_property
    def _in_degrees(self) -> np.ndarray:
        """(n,) in-edges of each row in this block."""
        return np.diff(self.ends)

    def _per_edge(self, of_row: np.ndarray) -> np.ndarray:
        return np.repeat(of_row, self._in_degrees)

    @cached_property
    def _edge_weights(self) -> np.ndarray:
        """(edges,) in-edges of the whole graph per in-edge of this block."""
        return self._per_edge((self.degrees[self.at] / np.maximum(self._in_degrees, 1)).astype(np.float32))

    def _matrix(self, values: np.ndarray) -> SparseMatrix:
        shape = (len(self.at), len(self.degrees))
        return SparseMatrix(sp.csr_matrix((values, self.sources, self.ends), shape=shape))

    @cached_property
    @on_host()
    def gcn(self) -> SparseMatrix:
        """(n, m) rows of D^-1/2 (A + I) D^-1/2, D the degrees of A + I in the whole graph."""
        inverse = (self.degrees + 1).astype(np.float32) ** -0.5
        edges = self._edge_weights * self._per_edge(inverse[self.at]) * inverse[self.sources]
        values = np.insert(edges, self.ends[:-1], inverse[self.at] ** 2)
        columns = np.insert(self.sources, self.ends[:-1], self.at)
        ends = self.ends + np.arange(len(self.ends))
        return SparseMatrix(sp.csr_matrix((values, columns, ends), shape=(len(self.at), len(self.degrees))))

    @cached_property
    @on_host()
    def mean(self) -> SparseMatrix:
        """(n, m) the mean over the neighbours in this block."""
        return self._matrix(self._per_edge(1 / np.maximum(self._in_degrees, 1).astype(np.float32)))

    @cached_property
    @on_host()
    def sum(self) -> SparseMatrix:
        """(n, m) the sum over the neighbours in this block, scaled to the number of all neighbours."""
        return self._matrix(self._edge_weights)

    @cached_property
    @on_host()
    def looped(self) -> dgl.DGLGraph:
        """DGL's block, with an edge from each row to itself."""
        rows = np.arange(len(self.at))
        source, target = np.concatenate([self.sources, self.at]), np.concatenate([self._per_edge(rows), rows])
        ends = torch.from_numpy(source.astype(np.int64)), torch.from_numpy(target)
        return dgl.create_block(ends, num_src_nodes=len(self.degrees), num_dst_nodes=len(rows))

    @cached_property
    def _computed(self) -> torch.Tensor:
        return placed(torch.from_numpy(self.at))

    def computed(self, rows: Any) -> Any:
        """Of the rows below, those that are computed. rows: a tensor (m, ...) or `Features`."""
        if isinstance(rows, Features):
            return rows.rows(torch.from_numpy(self.at), self.above.sizes)
        return rows.index_select(0, self._computed)


def counted(rows: np.ndarray, offsets: np.ndarray) -> tuple[int, ...]:
    """The number of the given rows, sorted, of each client. offsets: K + 1 row numbers."""
    return tuple(np.diff(np.searchsorted(rows, offsets)).tolist())


def in_edges(batch: Batch) -> tuple[np.ndarray, np.ndarray]:
    """(N + 1,) ends and (edges,) sources of the in-edges of a batch's rows; cached."""
    if "in-edges" not in batch.memo:
        with on_host():
            ends, sources, _ = batch.graph.adj_tensors("csc")
        batch.memo["in-edges"] = ends.numpy(), sources.numpy()
    edges: tuple[np.ndarray, np.ndarray] = batch.memo["in-edges"]
    return edges


@dataclass(frozen=True, eq=False)
class Part:
    """Consecutive rows of a batch, from `first` to before `last`; their block; the rows below (m,)."""

    first: int
    last: int
    block: Block
    below: torch.Tensor


def parts_of(batch: Batch, *, neighbours: bool) -> list[Part]:
    """The parts of `at_once` rows of a batch, with all neighbours or none; cached."""
    name = f"parts {neighbours}"
    if name not in batch.memo:
        batch.memo[name] = list(_parts(batch, neighbours))
    parts: list[Part] = batch.memo[name]
    return parts


def _parts(batch: Batch, neighbours: bool) -> Iterator[Part]:
    ends, sources = in_edges(batch)
    offsets, total = np.array(batch.offsets), sum(batch.sizes)
    degrees, step = np.diff(ends), batch.at_once or total
    for first in range(0, total, step):
        rows = np.arange(first, min(first + step, total))
        bounds = ends[rows[0] : rows[-1] + 2] if neighbours else np.zeros(len(rows) + 1, np.int64)
        into = sources[bounds[0] : bounds[-1]]
        below = np.union1d(rows, into)
        block = Block(
            counted(below, offsets), Rows(counted(rows, offsets)), np.searchsorted(below, rows), bounds - bounds[0],
            np.searchsorted(below, into), degrees[below],
        )  # fmt: skip
        yield Part(first, int(rows[-1]) + 1, block, torch.from_numpy(below))


def in_parts(backbone: Any, params: dict[str, torch.Tensor], batch: Batch) -> list[torch.Tensor]:
    """Each layer's output before activation, (N, c), computed part by part; no gradient, no dropout.

    Memory: the outputs, and one layer's values of `at_once` rows and their neighbours.
    """
    parts, outputs = parts_of(batch, neighbours=backbone.hops > 0), list[torch.Tensor]()
    for i in range(backbone.layers):
        out: torch.Tensor | None = None
        for part in parts:
            if i == 0:
                h: Any = batch.x.rows(part.below, part.block.sizes)
            else:
                h = torch.relu(outputs[-1].index_select(0, placed(part.below)))
            z = backbone.whole_layer(params, i, h, part.block)
            out = z.new_empty(len(batch.label), z.shape[1]) if out is None else out
            out[part.first : part.last] = z
        assert out is not None
        outputs.append(out)
    return outputs


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

    def computed(self, rows: Any) -> Any:
        return rows

    def final(self, i: int, rows: torch.Tensor) -> torch.Tensor:
        """Of the rows of layer i, the nodes of this batch, which are the first rows of each client."""
        if not self.blocks or i == len(self.blocks) - 1:
            return rows
        starts = np.cumsum([0, *self.blocks[i].above.sizes[:-1]])
        at = np.concatenate([start + np.arange(n) for start, n in zip(starts, self.sizes, strict=True)])
        return rows.index_select(0, placed(torch.from_numpy(at)))
