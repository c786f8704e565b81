"""Sets of graphs whose graphs are classified: a batch whose rows are graphs, and the nodes below it.

To a method such a batch is what a batch of nodes is: rows with labels and masks, client after client. Only the model
looks at the nodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import dgl
import numpy as np
import scipy.sparse as sp
import torch

from ....datasets.federation import GraphClient
from ..batch import Batch, EdgeRows, Features, LabelledRows
from ..device import on_host, placed
from ..segment_ops import SparseMatrix
from .graphsets import GraphBatch, GraphStack, neighbours, normalised

FOREIGN = -1e30  # the logit of a class that a client has not: below any other, and many add up to a finite sum


class NodesOfGraphs(Batch):
    """The nodes of B graphs as the batch that backbones know; matrices are cut from the stack, not made anew.

    Nodes have no labels and no masks.
    """

    def __init__(self, of: GraphBatch, x: torch.Tensor) -> None:
        """x: (N, c) what the nodes have."""
        unlabelled = torch.full((len(x),), -1)
        values = {"of": of, "x": Features(x, of.sizes), "sizes": of.sizes, "label": unlabelled, "masks": {}}
        for name, value in {**values, "global_id": unlabelled, "propagation": None}.items():
            object.__setattr__(self, name, value)  # as a frozen dataclass does

    of: GraphBatch

    def seen(self, x: torch.Tensor) -> NodesOfGraphs:
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
    """B graphs of K clients, each a row. sizes: graphs of each client. label, masks: (B,); global_id: (B,) their places
    in the set. classes: how many the labels of each client have; 0: all."""

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
        return NodesOfGraphs(self.of, self.of.x)

    @cached_property
    def lengths(self) -> torch.Tensor:
        """(B,) nodes of each graph."""
        return torch.from_numpy(self.of.lengths)

    def own_classes(self, logits: torch.Tensor) -> torch.Tensor:
        """(B, C) logits, out of the question for classes that a client's own label space has not."""
        if not any(self.classes):
            return logits
        many = torch.tensor([own or logits.shape[1] for own in self.classes])
        foreign = torch.arange(logits.shape[1]) >= many.unsqueeze(1)
        return logits.masked_fill(foreign[self.owner], FOREIGN)


class LabelledStack:
    """All graphs of some clients, stacked once, with their labels and masks: what batches of rows are cut from."""

    def __init__(self, clients: Sequence[GraphClient]) -> None:
        self.stack = GraphStack([graph for client in clients for graph in client.graphs])
        self.label = placed(torch.cat([client.label for client in clients]))
        self.global_id = placed(torch.cat([client.global_id for client in clients]))
        parts = clients[0].masks
        self.masks = {part: placed(torch.cat([client.masks[part] for client in clients])) for part in parts}
        self.classes = tuple(client.classes for client in clients)
        self.held = np.split(np.arange(len(self.label)), np.cumsum([len(client.graphs) for client in clients])[:-1])

    def rows(self, picks: Sequence[np.ndarray], clients: Sequence[int] | None = None) -> GraphRows:
        """Some of the graphs. picks: for each client the numbers of its graphs in the stack; may be empty. clients:
        whose they are (None: of all)."""
        classes = self.classes if clients is None else tuple(self.classes[k] for k in clients)
        at = torch.from_numpy(np.concatenate(picks).astype(np.int64))
        masks = {part: mask[at] for part, mask in self.masks.items()}
        return GraphRows(self.stack.batch(picks), self.label[at], masks, self.global_id[at], classes)
