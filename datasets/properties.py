"""What makes one task unlike another: figures of a node dataset and of the way it is cut, side by side."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .describe import describe, label_emd
from .federation import NodeData


def properties(data: NodeData, parts: Sequence[np.ndarray]) -> dict[str, float]:
    """Figures of a dataset and the parts (ids of nodes, one array per client) that it is cut into; shares in [0, 1].

    nodes, edges (undirected), features, classes: of the whole. homophily: share of edges within a class.
    adjusted_homophily: see there. majority: share of the largest class. client_nodes, client_least, client_most: nodes
    a client, mean and extremes. client_majority: mean over clients of the share of their largest class. label_skew:
    mean over clients of the total variation distance of their label shares from the whole's. lost_edges: share of edges
    inside no client.
    """
    cut = describe(data, parts)
    everything = np.bincount(data.label.numpy()[data.label.numpy() >= 0], minlength=data.num_classes)
    held = cut.labels.sum(axis=1)
    same, adjusted = homophily(data)
    return {
        "nodes": float(data.graph.num_nodes()),
        "edges": float(data.graph.num_edges() // 2),
        "features": float(data.feat.shape[1]),
        "classes": float(data.num_classes),
        "homophily": same,
        "adjusted_homophily": adjusted,
        "majority": float(everything.max() / everything.sum()),
        "client_nodes": float(cut.clients["nodes"].mean()),
        "client_least": float(cut.clients["nodes"].min()),
        "client_most": float(cut.clients["nodes"].max()),
        "client_majority": float((cut.labels.max(axis=1)[held > 0] / held[held > 0]).mean()),
        "label_skew": float((label_emd(cut.labels, everything) / 2)[held > 0].mean()),
        "lost_edges": (cut.lost_edges or 0) / max(cut.total_edges or 0, 1),
    }


def homophily(data: NodeData) -> tuple[float, float]:
    """(h, adjusted h) over the edges whose ends have labels; 0 where there is none.

    h: share of edges between nodes of one class. Adjusted (Platonov et al., Characterizing graph datasets, NeurIPS
    2023): (h - e) / (1 - e), where e = sum over classes of (share of all edge ends)^2 is what h is expected to be
    between nodes of these degrees at random; 0 means no more than that, for any number and size of classes.
    """
    source, target = (data.label.numpy()[ends.numpy()] for ends in data.graph.edges())
    known = (source >= 0) & (target >= 0)
    if not known.any():
        return 0.0, 0.0
    same = float((source == target)[known].mean())
    ends = np.bincount(source[known], minlength=data.num_classes)
    expected = float(((ends / ends.sum()) ** 2).sum())
    return same, (same - expected) / (1 - expected) if expected < 1 else 0.0
