"""The data types everything else works on: a dataset, and a dataset cut into clients.

Units and shapes: N nodes, d features, C classes, K clients. Graphs are DGLGraphs with both directions of every edge, no
self-loops and no parallel edges; models add self-loops where their formula has them. Node features are a torch tensor,
either dense float32 (N, d) or sparse CSR float32 (N, d): the citation graphs are about 1% full, and a DGLGraph cannot
hold a sparse feature, so features stand beside the graph and not in `ndata`. What makes such tensors and preprocesses
them, as results record it, is here too.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import dgl
import numpy as np
import scipy.sparse as sp
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


Preprocessing = Literal["row", "unit", "binary", "raw"]

# On one core, X @ W of width 64 in CSR beats the dense product up to about a fifth of non-zeros (PubMed at 10%: 3x,
# Wiki at 13%: 1.5x); Amazon's 35% is faster dense.
SPARSE_BELOW = 0.2


def preprocess(feat: np.ndarray | sp.csr_matrix, how: Preprocessing) -> np.ndarray | sp.csr_matrix:
    """Scale the rows: "row" divided by their sum (Kipf and Welling, ICLR 2017), "unit" by their Euclidean length,
    "binary" 1 where not 0, "raw" as they are. Empty rows stay empty.
    """
    if how == "raw":
        return feat
    if how == "unit":
        return _unit(feat)
    if how == "binary":
        return (feat != 0).astype(np.float32)
    total = np.asarray(feat.sum(axis=1, dtype=np.float64)).ravel()
    scale = np.divide(1.0, total, out=np.ones_like(total), where=total != 0)
    if isinstance(feat, np.ndarray):
        return (feat * scale[:, None]).astype(np.float32)
    return sp.csr_matrix(sp.diags(scale) @ feat, dtype=np.float32)


def _unit(feat: np.ndarray | sp.csr_matrix) -> np.ndarray | sp.csr_matrix:
    """Rows divided by their Euclidean lengths, to the bit as scikit-learn's `normalize` does, whose import takes longer
    than most commands: sparse rows are summed in double precision, one value after the other, dense ones in their own.
    """
    feat = feat if np.issubdtype(feat.dtype, np.floating) else feat.astype(np.float64)
    if isinstance(feat, np.ndarray):
        with np.errstate(over="ignore"):
            length = np.sqrt(np.einsum("ij,ij->i", feat, feat))
        if not np.isfinite(length).all():  # a square is too large for float32
            feat = feat.astype(np.float64)
            length = np.sqrt(np.einsum("ij,ij->i", feat, feat))
        length[length < 10 * np.finfo(length.dtype).eps] = 1
        return (feat / length[:, None]).astype(np.float32)
    unit = sp.csr_matrix(feat, copy=True)
    with np.errstate(over="ignore"):
        square = unit.data**2
    if not np.isfinite(square).all():  # too large for float32
        square = unit.data.astype(np.float64) ** 2
    squares = sp.csr_matrix((square.astype(np.float64), unit.indices, unit.indptr), shape=unit.shape)
    length = np.sqrt(squares @ np.ones(unit.shape[1]))
    length[length == 0] = 1
    unit.data = (unit.data / np.repeat(length, np.diff(unit.indptr))).astype(feat.dtype)
    return unit.astype(np.float32)


def to_tensor(feat: np.ndarray | sp.csr_matrix) -> torch.Tensor:
    """(N, d) float32: sparse CSR (int32 indices, MKL's own) below `SPARSE_BELOW` non-zeros, else dense."""
    filled = np.count_nonzero(feat) if isinstance(feat, np.ndarray) else feat.nnz
    if filled < SPARSE_BELOW * max(feat.shape[0] * feat.shape[1], 1):
        return csr_tensor(sp.csr_matrix(feat))
    dense = feat if isinstance(feat, np.ndarray) else feat.toarray()
    return torch.from_numpy(np.require(dense, np.float32, ("C", "W")))  # torch wants to be able to write


def csr_tensor(matrix: sp.csr_matrix) -> torch.Tensor:
    """A SciPy CSR matrix as a torch sparse CSR tensor, float32, same shape."""
    matrix.sort_indices()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int32)),
            torch.from_numpy(matrix.indices.astype(np.int32)),
            torch.from_numpy(matrix.data.astype(np.float32)),
            size=matrix.shape,
            check_invariants=True,
        )


def to_scipy(feat: torch.Tensor) -> sp.csr_matrix:
    """A sparse CSR tensor as a SciPy matrix that shares its memory."""
    arrays = (feat.values().numpy(), feat.col_indices().numpy(), feat.crow_indices().numpy())
    return sp.csr_matrix(arrays, shape=tuple(feat.shape))


class Rows:
    """Cuts rows out of a feature tensor, keeping its layout; a sparse one is converted to SciPy once for all cuts."""

    def __init__(self, feat: torch.Tensor) -> None:
        self._feat = to_scipy(feat) if feat.layout == torch.sparse_csr else feat

    def __call__(self, ids: np.ndarray) -> torch.Tensor:
        """(len(ids), d), rows in the order of `ids`."""
        if isinstance(self._feat, torch.Tensor):
            return self._feat[torch.from_numpy(ids)]
        return csr_tensor(self._feat[ids])

    def each(self, parts: Sequence[np.ndarray]) -> Sequence[torch.Tensor]:
        """The rows of each part. Dense ones lie one after the other in memory, so that `joined` need not copy them."""
        if isinstance(self._feat, torch.Tensor):
            return self(np.concatenate(parts)).split_with_sizes([len(ids) for ids in parts])
        return [self(ids) for ids in parts]


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Dense rows (n_k, d) as one tensor (N, d): the one that they are parts of, where they are, else a copy."""
    whole, start = parts[0]._base, parts[0].storage_offset()
    starts = np.cumsum([start, *[part.numel() for part in parts[:-1]]])
    one = whole is not None and all(part._base is whole for part in parts)
    if not one or [part.storage_offset() for part in parts] != starts.tolist():
        return torch.cat(list(parts)) if len(parts) > 1 else parts[0]
    return torch.as_strided(parts[0], (sum(map(len, parts)), parts[0].shape[1]), parts[0].stride())
