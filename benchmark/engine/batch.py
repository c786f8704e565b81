"""The data of a client batch: the clients' graphs as one block-diagonal DGLGraph, their rows one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import dgl
import numpy as np
import scipy.sparse as sp
import torch

from ...datasets.federation import NodeClient, joined
from ...registry import UserError
from .device import on_host, placed
from .rng import Streams, rate
from .row_sparse import Touched, rows_of, touched_product
from .segment_ops import SparseMatrix, adjacency, is_shared, owners, segment_product, to_scipy_csr


class Features:
    """The input features of N stacked rows: dense (N, d), or sparse with one column block per client.

    The sparse block-diagonal matrix (N, K d) times the stacked weights (K d, h) is the input product of all clients.
    """

    def __init__(self, value: torch.Tensor | sp.csr_matrix, sizes: Sequence[int]) -> None:
        self.value, self.sizes = value, tuple(sizes)

    @property
    def width(self) -> int:
        return int(self.value.shape[1])

    @property
    def sparse(self) -> bool:
        return not isinstance(self.value, torch.Tensor)

    @cached_property
    def matrix(self) -> SparseMatrix:
        """Sparse features as one (N, d) matrix, without column blocks."""
        return SparseMatrix(self.value, "input product")

    @cached_property
    def _blocks(self) -> SparseMatrix:
        x: sp.csr_matrix = self.value
        if len(self.sizes) == 1:
            return self.matrix
        block = np.repeat(np.arange(len(self.sizes), dtype=np.int64), self.sizes)
        shift = np.repeat(block * x.shape[1], np.diff(x.indptr))
        columns = x.indices.astype(np.int64) + shift
        shape = (x.shape[0], x.shape[1] * len(self.sizes))
        return SparseMatrix(sp.csr_matrix((x.data, columns, x.indptr), shape=shape), "input product")

    @cached_property
    def touched(self) -> Touched:
        """The rows of the input weights that each client's sparse features touch."""
        return Touched(self.value, self.sizes)

    @cached_property
    def _compact(self) -> SparseMatrix:
        """Sparse features with one column per touched pair of client and row, (N, R)."""
        x: sp.csr_matrix = self.value
        shape = (x.shape[0], len(self.touched.pairs))
        return SparseMatrix(sp.csr_matrix((x.data, self.touched.entry, x.indptr), shape=shape), "input product")

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        """(N, d) x (K, d, h) -> (N, h), client k's rows times client k's weights."""
        if isinstance(self.value, torch.Tensor):
            return segment_product(self.value, weight, self.sizes)
        by_rows = rows_of(weight)
        if by_rows is not None and by_rows.touched is self.touched:
            return touched_product(weight, self._compact)
        if is_shared(weight):
            return self.matrix @ weight[0]
        return self._blocks @ weight.reshape(-1, weight.shape[2])

    def rows(self, picks: torch.Tensor, sizes: Sequence[int]) -> Features:
        """Some of the rows, client after client. picks: (n,) row numbers; sizes: rows of each client among them."""
        return Features(self.value[picks if isinstance(self.value, torch.Tensor) else picks.numpy()], sizes)

    def dense(self) -> torch.Tensor:
        """(N, d) float32. Large for bag-of-words features: use it only if a model needs dense features."""
        return self.value if isinstance(self.value, torch.Tensor) else torch.from_numpy(self.value.toarray())

    def dropout(self, p: float, streams: Streams) -> Features:
        """Inverted dropout on the entries; of a sparse matrix on the stored entries only."""
        if p == 0:
            return self
        scale = 1 / (1 - rate(p))
        if isinstance(self.value, torch.Tensor):
            keep = streams.keep("input dropout", [n * self.width for n in self.sizes], p)
            return Features(self.value * keep.view(self.value.shape) * scale, self.sizes)
        ends = self.value.indptr[np.cumsum((0, *self.sizes))]
        kept = streams.kept("input dropout", np.diff(ends).tolist(), p)
        return self._with_data(self.value.data * kept * np.float32(scale))

    def drop_columns(self, keep: torch.Tensor) -> Features:
        """Zero whole feature columns; keep: bool (K, d), one row per client."""
        if isinstance(self.value, torch.Tensor):
            rows = [x * k for x, k in zip(self.value.split_with_sizes(self.sizes), keep, strict=True)]
            return Features(torch.cat(rows), self.sizes)
        owner = np.repeat(np.repeat(np.arange(len(self.sizes)), self.sizes), np.diff(self.value.indptr))
        return self._with_data(self.value.data * keep.numpy()[owner, self.value.indices])

    def _with_data(self, data: np.ndarray) -> Features:
        x: sp.csr_matrix = self.value
        made = Features(sp.csr_matrix((data, x.indices, x.indptr), shape=x.shape), self.sizes)
        if "touched" in self.__dict__:
            made.touched = self.touched
        return made


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
    at_once: rows that a backbone computes at a time without gradients (`blocks.in_parts`); None: all.
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

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cached results by name."""
        return {}

    # The interface to the layers of a backbone; `blocks.Block` and `blocks.SampledRows` have it too.

    def layer(self, i: int) -> Batch:
        """The input of layer i: this batch, or a block."""
        return self

    @property
    def above(self) -> Batch:
        """The rows that a layer computes."""
        return self

    def computed(self, rows: Any) -> Any:
        """Of the rows of the layer below, those that the layer computes. rows: a tensor or `Features`."""
        return rows

    def final(self, i: int, rows: torch.Tensor) -> torch.Tensor:
        """Of the rows of layer i, those that the last layer computes."""
        return rows

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
