"""Dataset specs: facts and options of registered datasets, and the conversion of canonical content to graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import dgl
import numpy as np
import scipy.sparse as sp
import torch

from ..registry import Registry, Spec, UserError, option
from . import content as contents
from .content import Content
from .federation import (
    PARTS,
    Data,
    Goal,
    GraphSetData,
    Measure,
    NodeData,
    Part,
    Preprocessing,
    Task,
    preprocess,
    to_tensor,
)
from .sources import Route, obtain


@dataclass(frozen=True)
class About:
    """Facts of a dataset that `fglbench data info` prints with its docstring and statistics."""

    citation: str
    licence: str
    home: str
    note: str = ""


class DatasetSpec(Spec):
    """A dataset with its loading options.

    routes: the sources after the cache, in order. fingerprint: the registered sha256 over the canonical content without
    the arrays in `unverified`, or None. synthetic: the data are not real. scored_by: the metric of the dataset's
    source. kind: of data, as citations or products. goal: the task of its targets; empty: labels are classified.
    sources: see `own_clients`. divisible: by any partition; if not, only by `own`. features_from_edges: features are
    computed from all edges.
    """

    about: ClassVar[About]
    task: ClassVar[Task]
    routes: ClassVar[tuple[Route, ...]] = ()
    fingerprint: ClassVar[str | None] = None
    unverified: ClassVar[tuple[str, ...]] = ()
    synthetic: ClassVar[bool] = False
    goal: ClassVar[Goal] = ""
    kind: ClassVar[str] = "other"
    scored_by: ClassVar[Measure] = "accuracy"
    sources: ClassVar[int | None] = None
    divisible: ClassVar[bool] = True
    features_from_edges: ClassVar[bool] = False

    def own_clients(self) -> int | None:
        """Return the number of clients that come with the data (partition `own`), 0 without; None if it is unknown."""
        return self.sources

    @classmethod
    def row_fingerprint(cls) -> str | None:
        """Return the fingerprint that rows of this dataset must have; None if it is not known."""
        return None if cls.unverified else cls.fingerprint

    def content(self) -> tuple[Content, str]:
        """Return the canonical content and its source. Raises UserError as `obtain` does."""
        return obtain(self.name, self.routes, self.fingerprint, self.unverified)

    def sourced(self) -> tuple[Content, str]:
        """`content`. UserError if it returns something else, as without the source."""
        found: Any = self.content()
        if not (isinstance(found, tuple) and len(found) == 2):
            kind = type(found).__name__
            raise UserError(f"dataset {self.name!r}: `content` returns {kind}: return the content and its source")
        return found[0], found[1]

    @property
    def measure(self) -> Measure:
        """The metric of validation values and scores under these options."""
        return self.scored_by

    def targets(self, content: Content) -> torch.Tensor | None:
        """Return the numbers to predict, float32 (N, T), nan = none; None if labels are classified."""
        return torch.from_numpy(content["target"]) if "target" in content else None

    @property
    def parts(self) -> tuple[DatasetSpec, ...]:
        """The datasets that it consists of; itself unless it is a combination."""
        return (self,)

    def load(self) -> Data:
        """Return the dataset under these options. Raises UserError as `content` does."""
        raise NotImplementedError


DATASETS: Registry[DatasetSpec] = Registry("dataset", needs=("task",))


class AnyNodeSpec(DatasetSpec):
    """A node dataset without an option to preprocess features."""

    task: ClassVar[Task] = "node"

    def load(self) -> NodeData:
        try:
            return self._load()
        except contents.Unsound as error:
            raise UserError(f"dataset {self.name!r}: {error}") from None

    def _load(self) -> NodeData:
        content, source = self.sourced()
        digest = self.digest(content)
        published = self.published_splits(content)
        content = self.select(content)
        label, target = torch.from_numpy(content["label"]), self.targets(content)
        if target is not None:
            label = -target.isnan().all(1).long()
        split = {part: torch.from_numpy(content[f"split_{part}"]) for part in PARTS if f"split_{part}" in content}
        owner = content.get("client")
        return NodeData(
            name=self.name,
            graph=bidirected(content["edges"], len(label)),
            feat=to_tensor(self.prepare(contents.features(content))),
            label=label,
            num_classes=int(label.max()) + 1,
            target=target,
            goal=self.goal,
            fingerprint=digest,
            source=source,
            fixed_split=split or None,
            synthetic=self.synthetic,
            options=self.params(),
            scored_by=self.measure,
            published_splits=published,
            owner=None if owner is None else torch.from_numpy(owner),
        )

    def published_splits(self, content: Content) -> tuple[dict[Part, torch.Tensor], ...]:
        """Return all published splits (node ids by part) if there are several, else ()."""
        return ()

    def digest(self, content: Content) -> str:
        """Return the fingerprint for the results."""
        return contents.fingerprint(content)

    def select(self, content: Content) -> Content:
        """Return the content under these options."""
        return content

    def prepare(self, feat: np.ndarray | sp.csr_matrix) -> np.ndarray | sp.csr_matrix:
        """Return the preprocessed features (N, d), the input of methods."""
        return feat


def preprocessing(default: Preprocessing) -> Any:
    """Return the `features` field of a node dataset."""
    return option(default, "rows divided by sums (row) or lengths (unit), 1 for non-zeros (binary), as published (raw)")


class NodeSpec(AnyNodeSpec):
    """A node dataset whose features can be preprocessed."""

    features: Preprocessing = preprocessing("row")

    def prepare(self, feat: np.ndarray | sp.csr_matrix) -> np.ndarray | sp.csr_matrix:
        return preprocess(feat, self.features)


class NumbersSpec(DatasetSpec):
    """A mixin of `NodeSpec` or `GraphSetSpec` for datasets whose targets are numbers."""

    score: Literal["rmse", "mae"] = option("rmse", "the measure: root mean square error, or mean absolute")
    scaled: bool = option(True, "subtract the mean of all targets of the set and divide by their standard deviation")

    @property
    def measure(self) -> Measure:
        return self.score

    def targets(self, content: Content) -> torch.Tensor:
        """Return the targets (N, T), nan = none. If `scaled`, an error of 1 is that of the set's mean as prediction."""
        values = self.published_targets(content)
        if not self.scaled:
            return values
        known = np.ma.masked_invalid(values.numpy().astype(np.float64))
        return torch.from_numpy(((known - known.mean(0)) / known.std(0)).filled(np.nan).astype(np.float32))

    def published_targets(self, content: Content) -> torch.Tensor:
        """Return the targets (N, T) in their unit."""
        return torch.from_numpy(content["target"])


BONDS = (5, 6, 2)  # values of each column of `edge_label`: OGB's features of a bond (get_bond_feature_dims)
GraphFeatures = Literal["auto", "labels", "attributes", "degree", "first"]
MAX_DEGREE = 64  # degrees above share the last column of the one-hot code


class GraphSetSpec(DatasetSpec):
    """A set of small graphs with one label per graph."""

    task: ClassVar[Task] = "graph"
    features: GraphFeatures = option(
        "auto",
        "node features: labels one-hot, attributes, degree one-hot; auto: labels and attributes, or "
        "degree; first: the first of the three that the set has",
    )

    def load(self) -> GraphSetData:
        content, source = self.sourced()
        values, label = np.unique(content["label"], return_inverse=True)
        return GraphSetData(
            name=self.name,
            graphs=_split_graphs(content, self._features(content)),
            label=torch.from_numpy(label.astype(np.int64)),
            num_classes=len(values),
            fingerprint=contents.fingerprint(content),
            source=source,
            synthetic=self.synthetic,
            options=self.params(),
            scored_by=self.measure,
            target=self.targets(content),
            goal=self.goal,
            group=torch.from_numpy(content["scaffold"]) if "scaffold" in content else None,
        )

    def _features(self, content: Content) -> np.ndarray:
        """Return the node features of all graphs, float32 (nodes, d)."""
        blocks = []
        if self.features in ("auto", "labels", "first") and "node_label" in content:
            for column in content["node_label"].reshape(len(content["graph"]), -1).T:
                _, code = np.unique(column, return_inverse=True)
                blocks.append(np.eye(code.max() + 1, dtype=np.float32)[code])
        attributes = self.features in ("auto", "attributes") or (self.features == "first" and not blocks)
        if attributes and "node_attr" in content:
            blocks.append(content["node_attr"])
        if not blocks and self.features in ("labels", "attributes"):
            raise UserError(f"dataset {self.name!r} has no node {self.features}; use features=auto or features=degree")
        if not blocks:
            degree = np.bincount(content["edges"].ravel(), minlength=len(content["graph"])).clip(max=MAX_DEGREE)
            blocks.append(np.eye(degree.max() + 1, dtype=np.float32)[degree])
        return np.concatenate(blocks, axis=1)


def bidirected(edges: np.ndarray, num_nodes: int) -> dgl.DGLGraph:
    """Return the DGLGraph with both directions of every canonical edge (M, 2), int64 ids, edges sorted by source."""
    one, other = np.asarray(edges, dtype=np.int64).reshape(-1, 2).T
    upper = sp.coo_matrix((np.ones(len(one), dtype=bool), (one, other)), shape=(num_nodes,) * 2).tocsr()
    both = upper + upper.T.tocsr()  # merges sorted rows, which is faster than sorting all edges
    source, target = np.repeat(np.arange(num_nodes), np.diff(both.indptr)), both.indices.astype(np.int64)
    return dgl.graph((torch.from_numpy(source), torch.from_numpy(target)), num_nodes=num_nodes)


def _split_graphs(content: Content, feat: np.ndarray) -> list[dgl.DGLGraph]:
    graph = content["graph"]
    nodes = np.bincount(graph, minlength=len(content["label"]))
    edges = np.concatenate([content["edges"], content["edges"][:, ::-1]])
    order = np.lexsort((edges[:, 1], edges[:, 0]))
    edges = edges[order]
    links = np.bincount(graph[edges[:, 0]], minlength=len(nodes))
    first = np.cumsum(nodes) - nodes
    local = torch.from_numpy(edges - first[graph[edges[:, 0]]][:, None])
    sizes, graphs = nodes.tolist(), []
    pieces = zip(sizes, torch.split(local, links.tolist()), torch.split(torch.from_numpy(feat), sizes), strict=True)
    for size, ends, rows in pieces:
        small = dgl.graph((ends[:, 0], ends[:, 1]), num_nodes=size)
        small.ndata["feat"] = rows
        graphs.append(small)
    if "edge_label" in content:  # one-hot, uint8
        columns = zip(BONDS, content["edge_label"].T, strict=True)
        codes = [np.eye(size, dtype=np.uint8)[column] for size, column in columns]
        of_edges = torch.from_numpy(np.tile(np.concatenate(codes, axis=1), (2, 1))[order])
        for small, bonds in zip(graphs, torch.split(of_edges, links.tolist()), strict=True):
            small.edata["feat"] = bonds
    return graphs
