"""The central data types: a dataset, and a dataset divided among clients; also tensors and preprocessing of features.

Shapes: N nodes, d features, C classes, K clients. Graphs are DGLGraphs with both directions of every edge, no
self-loops and no parallel edges; models add self-loops if their formula has them. Node features are a torch tensor
float32 (N, d), dense or sparse CSR. They are next to the graph and not in `ndata`, because a DGLGraph cannot hold a
sparse feature, and the features of citation graphs have about 1% non-zeros.
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

from ..registry import Spec, option

Task = Literal["node", "graph"]  # the kind of a dataset: one graph with labelled nodes, or a set of graphs
# The learning task: "node" (nodes are classified), "graph" (graphs are clustered without labels),
# "graph-classification", or the name of a task (benchmark/engine/evaluate.py).
Goal = str
Part = Literal["train", "val", "test"]
# The metric of validation values and scores.
Measure = Literal["accuracy", "macro_f1", "roc_auc", "average_precision", "mrr", "mae", "rmse"]
PARTS: tuple[Part, ...] = ("train", "val", "test")  # the index is the code in arrays of roles; -1 is no part


@dataclass(frozen=True)
class NodeData:
    """One graph with labelled nodes.

    graph: DGLGraph, N nodes, bidirected. feat: (N, d) dense or sparse CSR. label: int64 (N,), -1 = no label.
    fixed_split: the published split (Planetoid public, OGB official) as int64 node ids by part, or None.
    source: where the bytes came from ("cache", "mirror", "package index", "upstream", "generated").
    published_splits: all published splits if there are several.
    owner: the client of each node, int64 (N,), if the dataset defines clients.
    fingerprint: sha256 over canonical edges, raw features, labels and the published split. options: the loader's
    recorded parameters. scored_by: the metric of validation values and scores.
    target: float32 (N, T) of a task that predicts numbers instead of labels, nan = none; `label` is then 0, or -1 for a
    node without target. goal: the name of that task.
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
        """The label or target of each node."""
        return self.label if self.target is None else self.target


@dataclass(frozen=True)
class GraphSetData:
    """A set of small graphs with one label per graph. graphs[i].ndata["feat"]: float32 (n_i, d); label: int64
    (graphs,). graphs[i].edata["feat"], of molecules: uint8 (m_i, b), the features of the edges.

    owner: the client of each graph, int64 (graphs,), if the dataset defines clients. spaces: (number of features,
    number of classes) of each client, if clients have different ones; `num_classes` and d are then the largest.
    scored_by, target, goal: as in `NodeData`. group: int64 (graphs,), the scaffold of each molecule.
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
        """The label or target of each graph."""
        return self.label if self.target is None else self.target


Data = NodeData | GraphSetData


@dataclass(frozen=True)
class NodeClient:
    """A client of a node dataset.

    graph: the induced subgraph, n nodes, with ndata "label" int64, "train_mask", "val_mask", "test_mask" bool and
    "global_id" int64 (the node's id in the whole graph). feat: (n, d) dense or sparse CSR.
    outside: int64 (2, e), the edges to other clients' nodes: row of the client's node, global id of the other node.
    None unless the method has `edges_between_clients`.
    """

    graph: dgl.DGLGraph
    feat: torch.Tensor
    outside: torch.Tensor | None = None


@dataclass(frozen=True, kw_only=True)
class RowsClient(NodeClient):
    """A client whose predicted rows are not its nodes, as pairs of nodes. Its nodes have no label.

    label: (m,) of its rows. masks: bool (m,) "train", "val", "test".
    """

    label: torch.Tensor
    masks: dict[str, torch.Tensor]

    def said(self) -> list[torch.Tensor]:
        """Return the tensors in which clients with the same nodes may differ."""
        return [self.label, *self.masks.values()]


@dataclass(frozen=True)
class GraphClient:
    """A client of a graph set: its graphs, their labels (n,) and their indices in the whole set (n,).

    masks: bool (n,) "train", "val", "test"; empty if graphs are clustered. classes: the number of classes of this
    client if clients have different classes; 0: that of the federation.
    """

    graphs: list[dgl.DGLGraph]
    label: torch.Tensor
    global_id: torch.Tensor
    masks: dict[str, torch.Tensor] = field(default_factory=dict)
    classes: int = 0


@dataclass(frozen=True)
class Federation:
    """A dataset divided among clients, with the whole dataset for the server's evaluation.

    whole: the undivided data. masks: global bool masks (N,) "train", "val", "test" of nodes, or of graphs that are
    classified; empty for clustering and for other predicted rows. With overlapping clients the masks agree: no node is
    a training node of one client and a test node of another.
    partition_hash: sha256 over the nodes or graphs of each client and their split parts.
    notes: warnings for readers of the results ("client 3 has no training node", ...).
    goal: the learning task; empty: classification, or clustering of graphs without masks. outputs: number of model
    outputs; 0: the number of classes.
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
        """Whether clients have different features and classes."""
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

# On one core, X @ W of width 64 is faster in CSR than dense up to about 20% of non-zeros (PubMed at 10%: 3x, Wiki at
# 13%: 1.5x); Amazon, at 35%, is faster dense.
SPARSE_BELOW = 0.2


def preprocess(feat: np.ndarray | sp.csr_matrix, how: Preprocessing) -> np.ndarray | sp.csr_matrix:
    """Return scaled rows: "row" divided by their sum (Kipf and Welling, ICLR 2017), "unit" by their Euclidean length,
    "binary" 1 for each non-zero, "raw" unchanged. Empty rows stay empty.
    """
    if how == "raw":
        return feat
    if how == "unit":
        from sklearn.preprocessing import normalize  # the import takes about a second

        numbers = feat if np.issubdtype(feat.dtype, np.floating) else feat.astype(np.float64)
        return normalize(numbers).astype(np.float32)
    if how == "binary":
        return (feat != 0).astype(np.float32)
    total = np.asarray(feat.sum(axis=1, dtype=np.float64)).ravel()
    scale = np.divide(1.0, total, out=np.ones_like(total), where=total != 0)
    if isinstance(feat, np.ndarray):
        return (feat * scale[:, None]).astype(np.float32)
    return sp.csr_matrix(sp.diags(scale) @ feat, dtype=np.float32)


def to_tensor(feat: np.ndarray | sp.csr_matrix) -> torch.Tensor:
    """Return float32 (N, d): sparse CSR with int32 indices, as MKL uses, below `SPARSE_BELOW` non-zeros, else dense."""
    filled = np.count_nonzero(feat) if isinstance(feat, np.ndarray) else feat.nnz
    if filled < SPARSE_BELOW * max(feat.shape[0] * feat.shape[1], 1):
        return csr_tensor(sp.csr_matrix(feat))
    dense = feat if isinstance(feat, np.ndarray) else feat.toarray()
    return torch.from_numpy(np.require(dense, np.float32, ("C", "W")))  # torch warns about read-only arrays


def csr_tensor(matrix: sp.csr_matrix) -> torch.Tensor:
    """Return a SciPy CSR matrix as a torch sparse CSR tensor, float32, same shape."""
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
    """Return a sparse CSR tensor as a SciPy matrix that shares its memory."""
    arrays = (feat.values().numpy(), feat.col_indices().numpy(), feat.crow_indices().numpy())
    return sp.csr_matrix(arrays, shape=tuple(feat.shape))


class Rows:
    """Selects rows of a feature tensor in its layout; a sparse tensor is converted to SciPy only once."""

    def __init__(self, feat: torch.Tensor) -> None:
        self._feat = to_scipy(feat) if feat.layout == torch.sparse_csr else feat

    def __call__(self, ids: np.ndarray) -> torch.Tensor:
        """Return the rows (len(ids), d) in the order of `ids`."""
        if isinstance(self._feat, torch.Tensor):
            return self._feat[torch.from_numpy(ids)]
        return csr_tensor(self._feat[ids])

    def each(self, parts: Sequence[np.ndarray]) -> Sequence[torch.Tensor]:
        """Return the rows of each part. Dense rows are contiguous in memory, so `joined` does not copy them."""
        if isinstance(self._feat, torch.Tensor):
            return self(np.concatenate(parts)).split_with_sizes([len(ids) for ids in parts])
        return [self(ids) for ids in parts]


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return dense rows (n_k, d) as one tensor (N, d): a view if they are adjacent parts of one tensor, else a copy."""
    whole, start = parts[0]._base, parts[0].storage_offset()
    starts = np.cumsum([start, *[part.numel() for part in parts[:-1]]])
    views = whole is not None and all(part._base is whole for part in parts)
    if not views or [part.storage_offset() for part in parts] != starts.tolist():
        return torch.cat(list(parts)) if len(parts) > 1 else parts[0]
    return torch.as_strided(parts[0], (sum(map(len, parts)), parts[0].shape[1]), parts[0].stride())


class Stress(Spec):
    """The strength of each condition that makes a dataset harder (`corruptions.py`); 0: the condition is absent."""

    feature_noise: float = option(
        0.0, "Gaussian noise on all features: its length, in units of a node's mean (RMS) length", ge=0, later=True
    )
    missing_features: float = option(
        0.0, "share of the non-zero features of each client's nodes that are set to 0", ge=0, le=1, later=True
    )
    edge_noise: float = option(
        0.0, "random edges per client, as a share of its edges; at most half of the free pairs", ge=0, later=True
    )
    dropped_edges: float = option(0.0, "share of each client's edges that are removed", ge=0, le=1, later=True)
    label_noise: float = option(
        0.0, "share of each client's training nodes that get a random wrong label", ge=0, le=1, later=True
    )
    missing_labels: float = option(
        0.0, "share of each client's training nodes that lose their label, except one", ge=0, lt=1, later=True
    )

    @property
    def present(self) -> list[str]:
        """The names of the conditions with a strength."""
        return [name for name in Stress.model_fields if getattr(self, name)]
