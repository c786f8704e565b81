"""The data types everything else works on: a dataset, and a dataset cut into clients.

Units and shapes: N nodes, d features, C classes, K clients. Graphs are DGLGraphs with both directions of every edge, no
self-loops and no parallel edges; models add self-loops where their formula has them. Node features are a torch tensor,
either dense float32 (N, d) or sparse CSR float32 (N, d): the citation graphs are about 1% full, and a DGLGraph cannot
hold a sparse feature, so features stand beside the graph and not in `ndata`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import dgl
import torch

Task = Literal["node", "graph"]  # what a dataset is: one graph with labelled nodes, or a set of graphs
# What is done with it: "node" (nodes are classified), "graph" (graphs are clustered without labels),
# "graph-classification", or the name of a task (benchmark/engine/task.py).
Goal = str
Part = Literal["train", "val", "test"]
Measure = Literal[
    "accuracy", "macro_f1", "roc_auc", "average_precision", "mrr", "mae", "rmse"
]  # of validation and scores
PARTS: tuple[Part, ...] = ("train", "val", "test")  # a part's place here is its code in arrays of roles; -1 is no part


@dataclass(frozen=True)
class NodeData:
    """One graph with labelled nodes.

    graph: DGLGraph, N nodes, bidirected. feat: (N, d) dense or sparse CSR. label: int64 (N,), -1 = no label.
    fixed_split: the split that comes with the dataset (Planetoid public, OGB official) as int64 node ids, if any.
    source: where the bytes came from ("cache", "mirror", "package index", "upstream", "generated").
    published_splits: all splits that the dataset was published with, where it has several.
    owner: the client of each node, int64 (N,), where the dataset comes with clients.
    fingerprint: sha256 over canonical edges, raw features, labels and the published split. options: the loader's
    recorded parameters. scored_by: what validation values and scores are.
    target: float32 (N, T) of a task that predicts numbers instead of labels, nan = none; `label` is then 0, or -1 where
    a node has no target. goal: the name of that task.
    """

    name: str
    graph: dgl.DGLGraph
    feat: torch.Tensor
    label: torch.Tensor
    num_classes: int
    fingerprint: str
    source: str
    fixed_split: dict[Part, torch.Tensor] | None = None
    synthetic: bool = False
    options: dict[str, object] = field(default_factory=dict)

    scored_by: Measure = "accuracy"
    owner: torch.Tensor | None = None
    published_splits: tuple[dict[Part, torch.Tensor], ...] = ()
    target: torch.Tensor | None = None
    goal: Goal = ""

    task: Literal["node"] = "node"

    @property
    def truth(self) -> torch.Tensor:
        """What is predicted of each node."""
        return self.label if self.target is None else self.target


@dataclass(frozen=True)
class GraphSetData:
    """A set of small graphs with a label each. graphs[i].ndata["feat"]: float32 (n_i, d); label: int64 (graphs,).
    graphs[i].edata["feat"], of molecules: uint8 (m_i, b), the features of the edges.

    owner: the client of each graph, int64 (graphs,), where the dataset comes with clients. spaces: for each of these
    (features, classes) of its own, where they are not everybody's; `num_classes` and d are then the largest.
    scored_by, target, goal: as of `NodeData`. group: int64 (graphs,), what a molecule has in common with others: its
    scaffold.
    """

    name: str
    graphs: list[dgl.DGLGraph]
    label: torch.Tensor
    num_classes: int
    fingerprint: str
    source: str
    synthetic: bool = False
    options: dict[str, object] = field(default_factory=dict)

    owner: torch.Tensor | None = None
    spaces: tuple[tuple[int, int], ...] = ()
    scored_by: Measure = "accuracy"
    target: torch.Tensor | None = None
    goal: Goal = ""
    group: torch.Tensor | None = None

    task: Literal["graph"] = "graph"

    @property
    def truth(self) -> torch.Tensor:
        """What is predicted of each graph."""
        return self.label if self.target is None else self.target


Data = NodeData | GraphSetData


@dataclass(frozen=True)
class NodeClient:
    """What one client holds of a node dataset.

    graph: the induced subgraph, n nodes, with ndata "label" int64, "train_mask", "val_mask", "test_mask" bool and
    "global_id" int64 (the node's id in the whole graph). feat: (n, d) dense or sparse CSR.
    outside: int64 (2, e), the edges to other clients' nodes: row of the own node, global id of the other. Only methods
    that say so get it (`Method.edges_between_clients`); None for all others.
    """

    graph: dgl.DGLGraph
    feat: torch.Tensor
    outside: torch.Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class RowsClient(NodeClient):
    """What one client holds where other rows than its nodes are predicted, as pairs of them. Its nodes have no label.

    label: (m,) of its rows. masks: bool (m,) "train", "val", "test".
    """

    label: torch.Tensor
    masks: dict[str, torch.Tensor]

    def said(self) -> list[torch.Tensor]:
        """What tells it from another client with the same nodes."""
        return [self.label, *self.masks.values()]


@dataclass(frozen=True)
class GraphClient:
    """What one client holds of a graph set: its graphs, their labels (n,) and their places in the whole set (n,).

    masks: bool (n,) "train", "val", "test", where graphs are classified; empty where they are clustered.
    classes: how many its own labels have, where clients have label spaces of their own; 0: the federation's.
    """

    graphs: list[dgl.DGLGraph]
    label: torch.Tensor
    global_id: torch.Tensor
    masks: dict[str, torch.Tensor] = field(default_factory=dict)
    classes: int = 0


@dataclass(frozen=True)
class Federation:
    """A dataset cut into clients, with the whole dataset for the server's evaluation.

    whole: the uncut data. masks: global bool masks (N,) "train", "val", "test" of nodes, or of graphs where these are
    classified; empty where they are clustered and where other rows are predicted. With overlapping clients the masks
    agree: no node is a training node of one client and a test node of another.
    partition_hash: sha256 over which client holds which node or graph and in which split part.
    notes: what a reader of the results must know ("client 3 has no training node", ...).
    goal: what is done with it; empty: classification, or clustering of graphs without masks. outputs: of a model; 0: as
    many as there are classes.
    """

    whole: Data
    clients: Sequence[NodeClient] | Sequence[GraphClient]
    masks: dict[str, torch.Tensor]
    partition_hash: str
    seed: int
    notes: tuple[str, ...] = ()
    goal: Goal = ""
    outputs: int = 0

    @property
    def task(self) -> Goal:
        if goal := self.goal or self.whole.goal:
            return goal
        return "graph-classification" if self.whole.task == "graph" and self.masks else self.whole.task

    @property
    def domains(self) -> bool:
        """Whether clients have features and classes of their own."""
        return isinstance(self.whole, GraphSetData) and bool(self.whole.spaces)

    @property
    def scored_by(self) -> Measure:
        return self.whole.scored_by

    @property
    def num_classes(self) -> int:
        if self.outputs or self.whole.target is None:
            return self.outputs or self.whole.num_classes
        return int(self.whole.target.shape[1])

    @property
    def num_features(self) -> int:
        if isinstance(self.whole, NodeData):
            return int(self.whole.feat.shape[1])
        return int(self.whole.graphs[0].ndata["feat"].shape[1])
