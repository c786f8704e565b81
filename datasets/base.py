"""Dataset specs: what every registered dataset knows and how canonical content becomes graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import dgl
import numpy as np
import scipy.sparse as sp
import torch
from pydantic import Field

from ..registry import Registry, Spec, UserError
from . import content as contents
from .content import Content
from .features import Preprocessing, preprocess, to_tensor
from .federation import Data, GraphSetData, NodeData
from .sources import Route, obtain


@dataclass(frozen=True)
class About:
    """What `fglbench data info` says of a dataset besides its docstring and statistics."""

    citation: str
    licence: str
    home: str
    note: str = ""


class DatasetSpec(Spec):
    """A dataset with its loading options.

    routes: the sources after the cache, in order. fingerprint: the registered sha256 over the canonical content but the
    arrays in `unverified`; None where none can be registered. synthetic: results are no accuracies on real data.
    """

    about: ClassVar[About]
    task: ClassVar[Literal["node", "graph"]]
    routes: ClassVar[tuple[Route, ...]] = ()
    fingerprint: ClassVar[str | None] = None
    unverified: ClassVar[tuple[str, ...]] = ()
    synthetic: ClassVar[bool] = False

    def content(self) -> tuple[Content, str]:
        """The canonical content and its source. Raises UserError when it cannot be had or is not the registered one."""
        return obtain(self.name, self.routes, self.fingerprint, self.unverified)

    def load(self) -> Data:
        """The dataset under these options. Raises UserError as `content` does."""
        raise NotImplementedError


DATASETS: Registry[DatasetSpec] = Registry("dataset")


def preprocessing(default: Preprocessing) -> Any:
    """The `features` field of a node dataset."""
    return Field(
        default, description="rows divided by their sums (row) or lengths (unit), 1 where not 0 (binary), as published"
    )


class NodeSpec(DatasetSpec):
    """A node dataset whose features can be preprocessed."""

    task: ClassVar[Literal["node", "graph"]] = "node"
    features: Preprocessing = preprocessing("row")

    def load(self) -> NodeData:
        content, source = self.content()
        digest = contents.fingerprint(content)
        content = self.select(content)
        return node_data(self, content, preprocess(contents.features(content), self.features), digest, source)

    def select(self, content: Content) -> Content:
        """The part of the dataset that the options ask for: all of it unless a dataset says otherwise."""
        return content


def node_data(
    spec: DatasetSpec, content: Content, feat: np.ndarray | sp.csr_matrix, digest: str, source: str
) -> NodeData:
    """NodeData of a spec from its content and its features (N, d)."""
    label = torch.from_numpy(content["label"])
    parts: tuple[Literal["train", "val", "test"], ...] = ("train", "val", "test")
    split = {part: torch.from_numpy(content[f"split_{part}"]) for part in parts if f"split_{part}" in content}
    return NodeData(
        name=spec.name,
        graph=bidirected(content["edges"], len(label)),
        feat=to_tensor(feat),
        label=label,
        num_classes=int(label.max()) + 1,
        fingerprint=digest,
        source=source,
        fixed_split=split or None,
        synthetic=spec.synthetic,
        options=spec.params(),
    )


GraphFeatures = Literal["auto", "labels", "attributes", "degree"]
MAX_DEGREE = 64  # degrees above share the last column of the one-hot code


class GraphSetSpec(DatasetSpec):
    """A set of small graphs with one label each."""

    task: ClassVar[Literal["node", "graph"]] = "graph"
    features: GraphFeatures = Field(
        "auto",
        description="node features: labels one-hot, attributes, degree one-hot; auto: labels and attributes, or degree",
    )

    def load(self) -> GraphSetData:
        content, source = self.content()
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
        )

    def _features(self, content: Content) -> np.ndarray:
        """Node features of all graphs, float32 (nodes, d)."""
        blocks = []
        if self.features in ("auto", "labels") and "node_label" in content:
            _, code = np.unique(content["node_label"], return_inverse=True)
            blocks.append(np.eye(code.max() + 1, dtype=np.float32)[code])
        if self.features in ("auto", "attributes") and "node_attr" in content:
            blocks.append(content["node_attr"])
        if not blocks and self.features in ("labels", "attributes"):
            raise UserError(f"dataset {self.name!r} has no node {self.features}; use features=auto or features=degree")
        if not blocks:
            degree = np.bincount(content["edges"].ravel(), minlength=len(content["graph"])).clip(max=MAX_DEGREE)
            blocks.append(np.eye(degree.max() + 1, dtype=np.float32)[degree])
        return np.concatenate(blocks, axis=1)


def bidirected(edges: np.ndarray, num_nodes: int) -> dgl.DGLGraph:
    """A DGLGraph with both directions of every canonical edge (M, 2), int64 ids, edges sorted by source."""
    source = np.concatenate([edges[:, 0], edges[:, 1]])
    target = np.concatenate([edges[:, 1], edges[:, 0]])
    order = np.lexsort((target, source))
    return dgl.graph((torch.from_numpy(source[order]), torch.from_numpy(target[order])), num_nodes=num_nodes)


def _split_graphs(content: Content, feat: np.ndarray) -> list[dgl.DGLGraph]:
    graph = content["graph"]
    num_graphs = len(content["label"])
    nodes = np.bincount(graph, minlength=num_graphs)
    edges = np.concatenate([content["edges"], content["edges"][:, ::-1]])
    edges = edges[np.lexsort((edges[:, 1], edges[:, 0]))]
    links = np.bincount(graph[edges[:, 0]], minlength=num_graphs)
    first = np.cumsum(nodes) - nodes
    local = torch.from_numpy(edges - first[graph[edges[:, 0]]][:, None])
    graphs = []
    for size, ends, rows in zip(
        nodes.tolist(), local.split(links.tolist()), torch.from_numpy(feat).split(nodes.tolist()), strict=True
    ):
        small = dgl.graph((ends[:, 0], ends[:, 1]), num_nodes=size)
        small.ndata["feat"] = rows
        graphs.append(small)
    return graphs
