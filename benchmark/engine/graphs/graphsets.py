"""Sets of graphs: all graphs of a client batch stacked once, and batches of graphs from the stack.

A batch has graphs of K clients, client by client, as one block-diagonal graph. Features and operators (adjacency,
diffusion) of a batch are contiguous pieces of those of the stack, so no graph is batched again at each step.

For graph classification, the rows of a batch are graphs. For a method it is like a batch of nodes: rows with labels and
masks, client after client. Only the model uses the nodes of the graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import dgl
import numpy as np
import scipy.sparse as sp
import torch

from ....datasets.federation import GraphClient
from ..batch import Batch, EdgeRows, LabelledRows
from ..device import on_host, placed, section
from ..features import Features
from ..segment_ops import SparseMatrix, adjacency, owners, segment_sum

# (block-diagonal adjacency of all graphs, first row of each graph and the number of rows) -> a symmetric block-diagonal
# matrix of the same shape. Hashable, because a stack caches each operator.
Operator = Callable[[sp.csr_matrix, np.ndarray], sp.csr_matrix]
# The same arguments -> (nodes, c), a vector per node that depends only on the node's graph. Also hashable.
NodeCode = Callable[[sp.csr_matrix, np.ndarray], torch.Tensor]


def neighbours(adjacency: sp.csr_matrix, starts: np.ndarray) -> sp.csr_matrix:
    """A: the sum over neighbours."""
    return adjacency


def normalised(adjacency: sp.csr_matrix, starts: np.ndarray) -> sp.csr_matrix:
    """D^-1/2 (A + I) D^-1/2, D the degrees of A + I (Kipf & Welling 2017)."""
    looped = adjacency + sp.identity(adjacency.shape[0], format="csr")
    scale = sp.diags(np.asarray(looped.sum(1)).ravel() ** -0.5)
    return sp.csr_matrix(scale @ looped @ scale)


class GraphStack:
    """Graphs as one DGLGraph (`dgl.batch`), without self-loops, with both directions of every edge.

    graphs: each with ndata "feat" (n, d), and edata "feat" (m, b) if edges have features. starts: the first row of each
    graph, then the number of rows.
    """

    def __init__(self, graphs: Sequence[dgl.DGLGraph]) -> None:
        with on_host():
            featured = all("feat" in graph.edata for graph in graphs)
            self.graph: dgl.DGLGraph = dgl.batch(list(graphs), ndata=["feat"], edata=["feat"] if featured else None)
        self.lengths: np.ndarray = self.graph.batch_num_nodes().numpy()
        self.starts: np.ndarray = np.concatenate([[0], np.cumsum(self.lengths)])
        self.feat: torch.Tensor = placed(self.graph.ndata["feat"].float())
        self.adjacency = adjacency(self.graph).scipy()
        self._operators: dict[Operator, sp.csr_matrix] = {}
        self._used: set[Operator] = set()  # operators used here or in a part
        self._codes: dict[NodeCode, torch.Tensor] = {}

    def operator(self, kind: Operator) -> sp.csr_matrix:
        """The matrix of an operator over all graphs; cached."""
        self._used.add(kind)
        if kind not in self._operators:
            self._operators[kind] = kind(self.adjacency, self.starts).astype(np.float32)
        return self._operators[kind]

    def code(self, kind: NodeCode) -> torch.Tensor:
        """(nodes, c) the code of all nodes; cached."""
        if kind not in self._codes:
            self._codes[kind] = kind(self.adjacency, self.starts)
        return self._codes[kind]

    @cached_property
    def edge_feat(self) -> torch.Tensor | None:
        """(E, b) features of the edges in the order of the adjacency's entries; None without edge features."""
        if "feat" not in self.graph.edata:
            return None
        _, _, eids = self.graph.adj_tensors("csc")
        return placed(self.graph.edata["feat"][eids])

    def adopt(self, whole: GraphStack, picks: np.ndarray) -> None:
        """Copy operators and codes from a stack that contains these graphs. picks: their numbers in `whole`."""
        batch = whole.batch([picks])
        self._operators = {kind: batch.cut(whole.operator(kind)) for kind in [*whole._used]}
        self._codes = {kind: code[batch.places] for kind, code in whole._codes.items()}
        self._used = whole._used

    def batch(self, picks: Sequence[np.ndarray]) -> GraphBatch:
        """Some of the graphs. picks: per client, the numbers of its graphs in the stack, in order; may be empty."""
        return GraphBatch(self, np.concatenate(picks).astype(np.int64), tuple(len(graphs) for graphs in picks))


@dataclass(frozen=True, eq=False)
class GraphBatch:
    """B graphs of K clients with N nodes in total, client by client.

    picks: (B,) their numbers in the stack. counts: graphs of each client, may be 0.
    """

    stack: GraphStack
    picks: np.ndarray
    counts: tuple[int, ...]
    memo: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # values computed from the batch
    _views: dict[Operator, SparseMatrix] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def lengths(self) -> np.ndarray:
        """(B,) nodes of each graph."""
        return np.asarray(self.stack.lengths[self.picks])

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Nodes of each client."""
        return tuple(int(lengths.sum()) for lengths in self.lengths_per_client)

    @cached_property
    def lengths_per_client(self) -> list[torch.Tensor]:
        """Per client, the number of nodes of each of its graphs."""
        return list(torch.from_numpy(self.lengths).split_with_sizes(self.counts))

    @cached_property
    def x(self) -> torch.Tensor:
        """(N, d) input features."""
        return self.stack.feat[self.places]

    @cached_property
    def places(self) -> torch.Tensor:
        """(N,) the row of each node in the stack."""
        return torch.from_numpy(np.arange(len(self._moved)) - self._moved)

    def code(self, kind: NodeCode) -> torch.Tensor:
        """(N, c) the code of the nodes of the batch."""
        return self.stack.code(kind)[self.places]

    @cached_property
    def _moved(self) -> np.ndarray:
        """(N,) the row in the batch minus the row in the stack, of each node."""
        begin = np.cumsum(self.lengths) - self.lengths
        return np.repeat(begin - self.stack.starts[self.picks], self.lengths)

    @cached_property
    def membership(self) -> torch.Tensor:
        """(N,) the graph of each node, by its place in the batch."""
        return torch.repeat_interleave(torch.arange(len(self.picks)), torch.from_numpy(self.lengths))

    def view(self, kind: Operator) -> SparseMatrix:
        """An operator restricted to the graphs of the batch, (N, N)."""
        if kind not in self._views:
            with section("batching"):
                self._views[kind] = SparseMatrix(self.cut(self.stack.operator(kind)), symmetric=True)
        return self._views[kind]

    def cut(self, matrix: sp.csr_matrix) -> sp.csr_matrix:
        """The rows and columns of the batch from a matrix over the stack."""
        size = len(self._moved)
        rows = matrix[np.arange(size) - self._moved]
        columns = rows.indices + np.repeat(self._moved, np.diff(rows.indptr))
        return sp.csr_matrix((rows.data, columns, rows.indptr), shape=(size, size))

    @cached_property
    def edges(self) -> EdgeRows | None:
        """The edges with their features, sorted by target; None without edge features."""
        features = self.stack.edge_feat
        if features is None:
            return None
        whole = self.stack.adjacency
        numbered = sp.csr_matrix((np.arange(whole.nnz), whole.indices, whole.indptr), shape=whole.shape)
        entering = self.cut(numbered)
        into = np.diff(entering.indptr)
        ends = np.cumsum((0, *self.sizes))
        sizes = tuple(int(n) for n in np.diff(entering.indptr[ends]))
        ends_of = entering.indices, np.repeat(np.arange(len(into)), into), entering.data
        source, target, picks = (placed(torch.from_numpy(each.astype(np.int64))) for each in ends_of)
        return EdgeRows(source, target, features[picks].float(), sizes)

    @section("pooling")
    def pool(self, rows: torch.Tensor) -> torch.Tensor:
        """(N, c) node values -> (B, c) sums over each graph."""
        return segment_sum(rows, self.membership, len(self.picks))

    def mean_over_graphs(self, values: torch.Tensor) -> torch.Tensor:
        """(B,) one value per graph -> (K,) each client's mean; 0 for a client without a graph."""
        return _means(values, self.counts)

    def mean_over_nodes(self, values: torch.Tensor) -> torch.Tensor:
        """(N,) one value per node -> (K,) each client's mean; 0 for a client without a graph."""
        return _means(values, self.sizes)


def _means(values: torch.Tensor, counts: tuple[int, ...]) -> torch.Tensor:
    """(n,) values, `counts` of each client -> (K,) means; 0 for a client without values."""
    return segment_sum(values, owners(counts), len(counts)) / torch.tensor(counts).clamp(min=1)


FOREIGN = -1e30  # the logit of a class that a client does not have: below all others, and sums of it stay finite


class NodesOfGraphs(Batch):
    """The nodes of B graphs as the input of backbones, with matrices from the stack, without labels and masks."""

    def __init__(self, of: GraphBatch, x: Features) -> None:
        """x: (N, c) values of the nodes."""
        unlabelled = torch.full((sum(of.sizes),), -1)
        values = {"of": of, "x": x, "sizes": of.sizes, "label": unlabelled, "masks": {}}
        for name, value in {**values, "global_id": unlabelled, "propagation": None}.items():
            object.__setattr__(self, name, value)  # as a frozen dataclass does

    of: GraphBatch

    def seen(self, x: Features) -> NodesOfGraphs:
        """The same nodes with other values (N, c)."""
        return NodesOfGraphs(self.of, x)

    @cached_property
    @on_host()
    def graph(self) -> dgl.DGLGraph:
        matrix = self.of.view(neighbours).scipy().tocoo()
        ends = torch.from_numpy(matrix.col.astype(np.int64)), torch.from_numpy(matrix.row.astype(np.int64))
        return dgl.graph(ends, num_nodes=matrix.shape[0])

    @property
    def edges(self) -> EdgeRows:
        return self.of.edges or super().edges

    @cached_property
    def gcn(self) -> SparseMatrix:
        return self.of.view(normalised)

    @cached_property
    def sum(self) -> SparseMatrix:
        return self.of.view(neighbours)

    @cached_property
    def mean(self) -> SparseMatrix:
        matrix = self.sum.scipy()
        degree = np.maximum(np.diff(matrix.indptr), 1).astype(np.float32)
        return SparseMatrix(sp.csr_matrix(sp.diags(1 / degree) @ matrix))


@dataclass(frozen=True, eq=False)
class GraphRows(LabelledRows):
    """B graphs of K clients; a row is a graph. sizes: graphs of each client. label, masks: (B,); global_id: (B,) ids in
    the whole set. classes: the number of classes of each client; 0: all."""

    of: GraphBatch
    label: torch.Tensor
    masks: dict[str, torch.Tensor]
    global_id: torch.Tensor
    classes: tuple[int, ...] = ()

    @property
    def sizes(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.of.counts

    @cached_property
    def nodes(self) -> NodesOfGraphs:
        """The nodes of all graphs, with their features."""
        return NodesOfGraphs(self.of, Features(self.of.x, self.of.sizes))

    @cached_property
    def lengths(self) -> torch.Tensor:
        """(B,) nodes of each graph."""
        return torch.from_numpy(self.of.lengths)

    def own_classes(self, logits: torch.Tensor) -> torch.Tensor:
        """(B, C) logits, with `FOREIGN` for classes that the graph's client does not have."""
        if not any(self.classes):
            return logits
        counts = torch.tensor([classes or logits.shape[1] for classes in self.classes])
        foreign = torch.arange(logits.shape[1]) >= counts.unsqueeze(1)
        return logits.masked_fill(foreign[self.owner], FOREIGN)


class LabelledStack:
    """All graphs of some clients, stacked once, with their labels and masks; `rows` makes batches of them."""

    def __init__(self, clients: Sequence[GraphClient]) -> None:
        self.stack = GraphStack([graph for client in clients for graph in client.graphs])
        self.label = placed(torch.cat([client.label for client in clients]))
        self.global_id = placed(torch.cat([client.global_id for client in clients]))
        parts = clients[0].masks
        self.masks = {part: placed(torch.cat([client.masks[part] for client in clients])) for part in parts}
        self.classes = tuple(client.classes for client in clients)
        self.held = np.split(np.arange(len(self.label)), np.cumsum([len(client.graphs) for client in clients])[:-1])

    def rows(self, picks: Sequence[np.ndarray], clients: Sequence[int] | None = None) -> GraphRows:
        """Some of the graphs. picks: per client, the numbers of its graphs in the stack; may be empty. clients: the
        positions of these clients (None: all)."""
        classes = self.classes if clients is None else tuple(self.classes[k] for k in clients)
        at = torch.from_numpy(np.concatenate(picks).astype(np.int64))
        masks = {part: mask[at] for part, mask in self.masks.items()}
        return GraphRows(self.stack.batch(picks), self.label[at], masks, self.global_id[at], classes)
