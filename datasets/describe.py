"""Statistics of a dataset and of a partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
import torch

from .federation import Data, Federation, GraphSetData, NodeClient, NodeData
from .partitioning import adjacency

if TYPE_CHECKING:
    import pandas as pd


def statistics(data: Data) -> dict[str, int | float]:
    """Return the statistics that `fglbench data info` prints: sizes, shares in [0, 1], class sizes."""
    sizes = np.bincount(data.label.numpy()[data.label.numpy() >= 0], minlength=data.num_classes)
    classes = {"classes": data.num_classes, "smallest class": int(sizes.min()), "largest class": int(sizes.max())}
    if not isinstance(data, NodeData):
        nodes, edges = _nodes(data), _edges(data)
        return {
            "graphs": len(data.graphs),
            "nodes a graph (mean)": float(nodes.mean()),
            "nodes a graph (least)": int(nodes.min()),
            "nodes a graph (most)": int(nodes.max()),
            "undirected edges a graph (mean)": float(edges.mean()),
            "features": int(data.graphs[0].ndata["feat"].shape[1]),
            **classes,
        }
    matrix = adjacency(data)
    degree = np.diff(matrix.indptr)
    _, component = sp.csgraph.connected_components(matrix, directed=False)
    filled = data.feat.values().count_nonzero() if data.feat.layout == torch.sparse_csr else data.feat.count_nonzero()
    return {
        "nodes": len(degree),
        "undirected edges": data.graph.num_edges() // 2,
        "features": int(data.feat.shape[1]),
        "share of non-zero features": int(filled) / max(data.feat.shape[0] * data.feat.shape[1], 1),
        **classes,
        "nodes without label": int((data.label < 0).sum()),
        "mean degree": float(degree.mean()),
        "largest degree": int(degree.max()),
        "isolated nodes": int((degree == 0).sum()),
        "components": int(component.max()) + 1,
        "nodes of the largest component": int(np.bincount(component).max()),
        **({} if data.goal else {"edge homophily": homophily(data)[0]}),
    }


def _nodes(data: GraphSetData) -> np.ndarray:
    return np.array([graph.num_nodes() for graph in data.graphs])


def _edges(data: GraphSetData) -> np.ndarray:
    return np.array([graph.num_edges() // 2 for graph in data.graphs])


@dataclass(frozen=True)
class Description:
    """Statistics of a partition.

    clients: one row per client: "nodes" (or "graphs" and "nodes"), "edges" (undirected, inside the client), "emd" (L1
    distance of its label shares from those of the whole dataset). labels: int (clients, classes), nodes or graphs of
    each class. emd: sum of |S_i| / |S| * emd_i (FCLG, IEEE BigData 2024). coverage: share of all nodes that at least
    one client holds. in_all: share of all nodes that every client holds. pairwise: mean over pairs of clients of
    |A and B| / |A or B|. lost_edges: undirected edges inside no client; None for graph sets, which lose none.
    """

    clients: pd.DataFrame
    labels: np.ndarray
    emd: float
    coverage: float
    in_all: float
    pairwise: float
    lost_edges: int | None
    total_edges: int | None


def parts_of(federation: Federation) -> list[np.ndarray]:
    """Return the global ids of each client's nodes or graphs."""
    return [
        (client.graph.ndata["global_id"] if isinstance(client, NodeClient) else client.global_id).numpy()
        for client in federation.clients
    ]


def label_counts(data: Data, parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the number of nodes or graphs per part and class, int (clients, classes). parts: ids per client."""
    label = data.label.numpy()
    return np.stack([np.bincount(label[ids][label[ids] >= 0], minlength=data.num_classes) for ids in parts])


def describe(data: Data, parts: Sequence[np.ndarray]) -> Description:
    """Return the statistics of parts (ids of nodes or graphs, one array per client)."""
    import pandas as pd  # the import takes half a second

    sizes = np.array([len(ids) for ids in parts])
    starts, ones = np.cumsum([0, *sizes]), np.ones(sizes.sum(), dtype=np.int64)
    held = sp.csr_matrix((ones, np.concatenate(parts), starts), shape=(len(parts), len(data.label)))
    labels = label_counts(data, parts)
    emd = label_emd(labels, label_counts(data, [np.arange(len(data.label))])[0])
    lost = total = None
    if isinstance(data, NodeData):
        source, target = (ends.numpy() for ends in data.graph.edges())
        once = source < target
        inside = held[:, source[once]].multiply(held[:, target[once]])
        total, lost = inside.shape[1], int((inside.getnnz(axis=0) == 0).sum())
        columns = {"nodes": sizes, "edges": inside.getnnz(axis=1).astype(np.int64)}
    else:
        columns = {"graphs": sizes, "nodes": held @ _nodes(data), "edges": held @ _edges(data)}
    holders = held.getnnz(axis=0)
    return Description(
        clients=pd.DataFrame({**columns, "emd": emd}, index=pd.RangeIndex(len(parts), name="client")),
        labels=labels,
        emd=float((sizes / sizes.sum() * emd).sum()),
        coverage=float((holders > 0).mean()),
        in_all=float((holders == len(parts)).mean()),
        pairwise=_pairwise(held, sizes),
        lost_edges=lost,
        total_edges=total,
    )


def label_emd(labels: np.ndarray, everything: np.ndarray) -> np.ndarray:
    """Return the L1 distance, in [0, 2], of each client's label shares from the whole's; 0 for a client without labels.

    labels: counts (clients, classes); everything: counts (classes,).
    """
    shares = labels / np.maximum(labels.sum(axis=1, keepdims=True), 1)
    distance = np.abs(shares - everything / max(everything.sum(), 1)).sum(axis=1)
    return np.where(labels.sum(axis=1) > 0, distance, 0.0)


def _pairwise(held: sp.csr_matrix, sizes: np.ndarray) -> float:
    if len(sizes) < 2:
        return 0.0
    shared = (held @ held.T).toarray()
    first, second = np.triu_indices(len(sizes), k=1)
    return float((shared[first, second] / (sizes[first] + sizes[second] - shared[first, second])).mean())


def properties(data: NodeData, parts: Sequence[np.ndarray]) -> dict[str, float]:
    """Return properties of a dataset and its parts (ids of nodes, one array per client); shares are in [0, 1].

    nodes, edges (undirected), features, classes: of the whole. homophily, adjusted_homophily: see `homophily`.
    majority: share of the largest class. client_nodes, client_least, client_most: mean, minimum and maximum of nodes
    per client. client_majority: share of the largest class of a client, mean over clients. label_skew: total variation
    distance of a client's label shares from the whole's, mean over clients. lost_edges: share of edges in no client.
    """
    description = describe(data, parts)
    everything = np.bincount(data.label.numpy()[data.label.numpy() >= 0], minlength=data.num_classes)
    labelled = description.labels.sum(axis=1)
    same, adjusted = homophily(data)
    return {
        "nodes": float(data.graph.num_nodes()),
        "edges": float(data.graph.num_edges() // 2),
        "features": float(data.feat.shape[1]),
        "classes": float(data.num_classes),
        "homophily": same,
        "adjusted_homophily": adjusted,
        "majority": float(everything.max() / everything.sum()),
        "client_nodes": float(description.clients["nodes"].mean()),
        "client_least": float(description.clients["nodes"].min()),
        "client_most": float(description.clients["nodes"].max()),
        "client_majority": float((description.labels.max(axis=1)[labelled > 0] / labelled[labelled > 0]).mean()),
        "label_skew": float((label_emd(description.labels, everything) / 2)[labelled > 0].mean()),
        "lost_edges": (description.lost_edges or 0) / max(description.total_edges or 0, 1),
    }


def homophily(data: NodeData) -> tuple[float, float]:
    """Return (h, adjusted h) over the edges between labelled nodes; (0, 0) without such edges.

    h: share of edges between nodes of one class. Adjusted (Platonov et al., Characterizing graph datasets, NeurIPS
    2023): (h - e) / (1 - e), where e = sum over classes of (share of all edge ends)^2 is the expected h of a random
    graph with these degrees; 0 is the value of such a graph, for any number and size of classes.
    """
    source, target = (data.label.numpy()[ends.numpy()] for ends in data.graph.edges())
    known = (source >= 0) & (target >= 0)
    if not known.any():
        return 0.0, 0.0
    same = float((source == target)[known].mean())
    ends = np.bincount(source[known], minlength=data.num_classes)
    expected = float(((ends / ends.sum()) ** 2).sum())
    return same, (same - expected) / (1 - expected) if expected < 1 else 0.0
