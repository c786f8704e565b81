"""The data of a client batch: the clients' graphs as one block-diagonal DGLGraph, their rows one after the other; and
blocks, the input of a layer that computes other rows than the layer below.

A block is DGL's message flow graph with a client axis. Minibatches of nodes have one block per layer; `in_parts`
computes a large batch block by block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import dgl
import numpy as np
import scipy.sparse as sp
import torch

from ...datasets.federation import NodeClient, joined
from ...registry import UserError
from .device import on_host, placed
from .features import Features
from .segment_ops import SparseMatrix, adjacency, owners, to_scipy_csr


class LabelledRows:
    """Nodes or graphs that are classified: N rows of K clients, client after client, with labels and masks.

    sizes: rows of each client. label: (N,); masks: bool (N,) for "train", "val", "test".
    """

    sizes: tuple[int, ...]
    label: torch.Tensor
    masks: dict[str, torch.Tensor]

    @property
    def clients(self) -> int:
        return len(self.sizes)

    @property
    def owner(self) -> torch.Tensor:
        """(N,) the position of each row's client."""
        return owners(self.sizes)

    @cached_property
    def offsets(self) -> list[int]:
        """K + 1 row numbers: client k holds rows offsets[k] to offsets[k + 1]."""
        return [0, *np.cumsum(self.sizes).tolist()]

    @cached_property
    def rows(self) -> dict[str, torch.Tensor]:
        """Row numbers of each mask."""
        return {name: mask.nonzero().squeeze(1) for name, mask in self.masks.items()}

    @cached_property
    def counts(self) -> dict[str, list[int]]:
        """For each mask, the number of rows of each client."""
        return {name: [int(rows.sum()) for rows in self.per_client(mask)] for name, mask in self.masks.items()}

    @cached_property
    def shares(self) -> dict[str, torch.Tensor]:
        """For each mask, the weight 1 / (rows of the client) of each of its rows: a weighted sum is a client's mean."""
        return {name: 1 / torch.tensor(self.counts[name])[self.owner[rows]] for name, rows in self.rows.items()}

    def per_client(self, rows: torch.Tensor) -> list[torch.Tensor]:
        """(N, ...) as one tensor per client."""
        return list(rows.split_with_sizes(self.sizes))

    # The interface to the layers of a backbone.

    def layer(self, i: int) -> Any:
        """The input of layer i: this batch, or a block."""
        return self

    def computed(self, rows: Any) -> Any:
        """Of the rows of the layer below, those that the layer computes. rows: a tensor or `Features`."""
        return rows

    def final(self, i: int, rows: torch.Tensor) -> torch.Tensor:
        """Of the rows of layer i, those that the last layer computes."""
        return rows


@dataclass(frozen=True)
class EdgeRows:
    """The edges of K clients, client after client, sorted by target.

    source, target: (E,) rows of the nodes. feat: float32 (E, b). sizes: edges of each client.
    """

    source: torch.Tensor
    target: torch.Tensor
    feat: torch.Tensor
    sizes: tuple[int, ...]


@dataclass(frozen=True)
class Batch(LabelledRows):
    """The graphs of K clients stacked; a row is a node.

    graph: batched DGLGraph, N nodes, without self-loops, on the host for every device of the run. x: input features.
    sizes: nodes of each client. label: (N,); masks: bool (N,) for "train", "val", "test". global_id: (N,) node ids in
    the whole graph, unique within a client only. propagation: a matrix (N, N) that a method uses instead of `gcn`.
    at_once: rows that a backbone computes at a time without gradients (`in_parts`); None: all.
    sums_first: sum dense features over neighbours once, before they are multiplied by the first layer's weights.
    """

    graph: dgl.DGLGraph
    x: Features
    sizes: tuple[int, ...]
    label: torch.Tensor
    masks: dict[str, torch.Tensor]
    global_id: torch.Tensor
    propagation: SparseMatrix | None = None
    at_once: int | None = None
    sums_first: bool = False

    @property
    def above(self) -> Batch:
        """The rows that a layer computes."""
        return self

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cached results by name."""
        return {}

    @cached_property
    @on_host()
    def looped(self) -> dgl.DGLGraph:
        """The graph with one self-loop per node."""
        return dgl.add_self_loop(dgl.remove_self_loop(self.graph))

    @property
    def edges(self) -> EdgeRows:
        """The edges with their features. UserError if the graphs have none."""
        raise UserError("this architecture needs edge features, which only molecules have: choose gin")

    @cached_property
    def ends(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(edges,) source and target of each edge."""
        source, target = self.graph.edges(order="eid")
        return placed(source), placed(target)

    @cached_property
    def degrees(self) -> torch.Tensor:
        """(N,) in-edges of each node."""
        return placed(self.graph.in_degrees())

    @cached_property
    @on_host()
    def in_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """(N + 1,) ends and (edges,) sources of the in-edges of the rows."""
        ends, sources, _ = self.graph.adj_tensors("csc")
        return ends.numpy(), sources.numpy()

    @cached_property
    @on_host()
    def gcn(self) -> SparseMatrix:
        """D^-1/2 (A + I) D^-1/2, D the degrees of A + I (Kipf & Welling 2017), or `propagation`."""
        if self.propagation is not None:
            return self.propagation
        graph = self.graph.formats(["coo", "csr", "csc"])  # a copy, so that its CSC is freed after this function
        ends, sources, _ = (part.numpy() for part in graph.adj_tensors("csc"))
        rows, degrees = np.arange(len(ends) - 1), np.diff(ends)
        inner = sources != np.repeat(rows, degrees)
        if not inner.all():  # a node's own edge is the loop
            sources, ends = sources[inner], np.concatenate([[0], np.cumsum(inner)])[ends]
            degrees = np.diff(ends)
        inverse = (degrees + 1).astype(np.float32) ** -0.5
        values = np.insert(inverse[sources] * np.repeat(inverse, degrees), ends[1:], inverse * inverse)
        columns = np.insert(sources.astype(np.int32), ends[1:], rows.astype(np.int32))  # each row ends with its loop
        shape = (len(rows), len(rows))
        return SparseMatrix(sp.csr_matrix((values, columns, ends + np.arange(len(ends))), shape=shape))

    @cached_property
    def summed(self) -> torch.Tensor | None:
        """(N, d) `gcn` times the features if `sums_first` and they are dense, else None."""
        return self.gcn @ self.x.value if self.sums_first and isinstance(self.x.value, torch.Tensor) else None

    @cached_property
    @on_host()
    def mean(self) -> SparseMatrix:
        """D^-1 A: the mean over neighbours, 0 for an isolated node."""
        degree = np.maximum(self.graph.in_degrees().numpy(), 1).astype(np.float32)
        return adjacency(self.graph, 1 / degree[self.graph.edges(order="eid")[1].numpy()])

    @cached_property
    def sum(self) -> SparseMatrix:
        """A: the sum over neighbours."""
        return adjacency(self.graph)

    @cached_property
    def links(self) -> tuple[torch.Tensor, list[int]]:
        """The undirected edges: (edges,) the number of each edge's node pair, and the number of pairs of each client.

        Pairs are numbered client by client, so that draws for them in order can come from each client's stream.
        """
        source, target = self.ends
        code = torch.minimum(source, target) * self.graph.num_nodes() + torch.maximum(source, target)
        pairs, pair = torch.unique(code, return_inverse=True)
        owner = self.owner[pairs // max(self.graph.num_nodes(), 1)]
        return pair, torch.bincount(owner, minlength=self.clients).tolist()

    def replace(self, *, graph: dgl.DGLGraph | None = None, x: Features | None = None) -> Batch:
        """The same nodes with another graph or other features (an augmented view)."""
        return Batch(graph or self.graph, x or self.x, self.sizes, self.label, self.masks, self.global_id)


def as_graph(source: torch.Tensor, target: torch.Tensor, nodes: int) -> dgl.DGLGraph:
    """The graph of these edges, on the host. source, target: (edges,), on any device."""
    with on_host():
        return dgl.graph((source.cpu(), target.cpu()), num_nodes=nodes)


def collate(clients: Sequence[NodeClient]) -> Batch:
    """The clients' data as one batch, in the given order."""
    with on_host():
        graphs = [client.graph for client in clients]
        graph = dgl.batch(graphs) if len(graphs) > 1 else graphs[0].local_var()  # which shares the edges
    sizes = tuple(client.graph.num_nodes() for client in clients)
    if all(client.feat.layout == torch.sparse_csr for client in clients):
        value: Any = sp.vstack([to_scipy_csr(client.feat) for client in clients], format="csr", dtype=np.float32)
    else:
        value = placed(joined([client.feat.to_dense() for client in clients]))
    masks = {name: placed(graph.ndata[f"{name}_mask"].bool()) for name in ("train", "val", "test")}
    label, ids = (placed(graph.ndata[name]) for name in ("label", "global_id"))
    return Batch(graph, Features(value, sizes), sizes, label, masks, ids)


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

    def computed(self, rows: Any) -> Any:
        """Of the rows below, those that are computed. rows: a tensor (m, ...) or `Features`."""
        at = torch.from_numpy(self.at)
        return rows.rows(at, self.above.sizes) if isinstance(rows, Features) else rows.index_select(0, placed(at))


class Part(NamedTuple):
    """Consecutive rows of a batch; their block; the rows below (m,)."""

    rows: slice
    block: Block
    below: torch.Tensor


def parts_of(batch: Batch, *, neighbours: bool) -> list[Part]:
    """The parts of `at_once` rows of a batch, with all neighbours or none; cached."""
    parts: list[Part] = batch.memo.setdefault(f"parts {neighbours}", [])
    if parts:
        return parts
    (ends, sources), offsets, total = batch.in_edges, np.array(batch.offsets), len(batch.label)
    degrees, step = np.diff(ends), batch.at_once or total

    def sizes(rows: np.ndarray) -> tuple[int, ...]:
        """The number of the given rows, sorted, of each client."""
        return tuple(np.diff(np.searchsorted(rows, offsets)).tolist())

    for first in range(0, total, step):
        rows = np.arange(first, min(first + step, total))
        bounds = ends[rows[0] : rows[-1] + 2] if neighbours else np.zeros(len(rows) + 1, np.int64)
        into = sources[bounds[0] : bounds[-1]]
        below = np.union1d(rows, into)
        block = Block(
            sizes(below), Rows(sizes(rows)), np.searchsorted(below, rows), bounds - bounds[0],
            np.searchsorted(below, into), degrees[below],
        )  # fmt: skip
        parts.append(Part(slice(first, first + len(rows)), block, torch.from_numpy(below)))
    return parts


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
            out[part.rows] = z
        assert out is not None
        outputs.append(out)
    return outputs
