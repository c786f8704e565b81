"""Write six graphs with sites to test `fglbench recommend` (docs/own-data.md), from datasets that no tuned board has.

    python tools/held_back.py FOLDER        # writes FOLDER/pages/graph.npz, ...

Each has at most 2,000 nodes and the 500 most common features. The datasets are fetched, or taken from FGLBENCH_MIRROR.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import scipy.sparse as sp
import torch

from fglbench.benchmark.engine import to_scipy_csr
from fglbench.datasets import DATASETS

FEATURES, SEED = 500, 0


class Raw(NamedTuple):
    """A graph. edges: (M, 2), each once. features: (N, d). label: (N,), -1: unknown. owner: (N,) source, or None."""

    edges: np.ndarray
    features: sp.csr_matrix
    label: np.ndarray
    owner: np.ndarray | None


def raw(name: str) -> Raw:
    data: Any = DATASETS.build(name, {}).load()
    source, target = (ends.numpy() for ends in data.graph.edges())
    once, owner = source < target, getattr(data, "owner", None)
    sparse = data.feat.layout == torch.sparse_csr
    features = to_scipy_csr(data.feat) if sparse else sp.csr_matrix(data.feat.numpy())
    edges = np.stack([source[once], target[once]], 1)
    return Raw(edges, features, data.label.numpy(), None if owner is None else np.asarray(owner))


def graph_of(edges: np.ndarray, nodes: np.ndarray) -> Any:
    graph: Any = nx.Graph()
    graph.add_nodes_from(nodes.tolist())
    graph.add_edges_from(edges[np.isin(edges, nodes).all(1)].tolist())
    return graph


def near_hubs(data: Raw, among: np.ndarray, most: int) -> np.ndarray:
    """At most `most` nodes in breadth-first order from the node of highest degree of each class, classes in turn."""
    graph, seen = graph_of(data.edges, among), set[int]()
    classes = np.unique(data.label[among][data.label[among] >= 0])
    queues = [[max((v for v in graph if data.label[v] == c), key=lambda v: graph.degree[v])] for c in classes]
    while len(seen) < most and any(queues):
        for queue in queues:
            while queue and queue[0] in seen:
                queue.pop(0)
            if queue:
                node = queue.pop(0)
                seen.add(node)
                queue += [other for other in sorted(graph[node]) if other not in seen]
    return np.array(sorted(seen)[:most])


def communities(edges: np.ndarray, count: int, sites: int) -> np.ndarray:
    """(count,) the site of each node: each Louvain community is assigned to the site with fewest nodes."""
    site, load = np.zeros(count, int), np.zeros(sites)
    groups = nx.community.louvain_communities(graph_of(edges, np.arange(count)), seed=SEED)
    for group in sorted(groups, key=len, reverse=True):
        least = int(load.argmin())
        site[list(group)], load[least] = least, load[least] + len(group)
    return site


def skewed(label: np.ndarray, sites: int, alpha: float) -> np.ndarray:
    """(N,) the site of each node: the shares of every class are drawn from a Dirichlet distribution."""
    rng, site = np.random.default_rng(SEED), np.zeros(len(label), int)
    for c in np.unique(label):
        nodes = rng.permutation(np.flatnonzero(label == c))
        ends = (np.cumsum(rng.dirichlet([alpha] * sites))[:-1] * len(nodes)).astype(int)
        for number, part in enumerate(np.split(nodes, ends)):
            site[part] = number
    return site


def write(folder: Path, data: Raw, nodes: np.ndarray, sites: np.ndarray | int) -> None:
    """Write graph.npz with these nodes. sites: the site of each node, or the number of sites, made from communities."""
    place = np.full(len(data.label), -1)
    place[nodes] = np.arange(len(nodes))
    edges = place[data.edges]
    edges = edges[(edges >= 0).all(1)]
    features = data.features[nodes]
    kept = np.sort(np.argsort(-features.getnnz(axis=0), kind="stable")[:FEATURES])
    features = features[:, kept].tocsr().astype(np.float32)
    site = communities(edges, len(nodes), sites) if isinstance(sites, int) else sites
    folder.mkdir(parents=True, exist_ok=True)
    np.savez(
        folder / "graph.npz", edges=edges, labels=data.label[nodes], clients=site, features_data=features.data,
        features_indices=features.indices, features_indptr=features.indptr, features_shape=np.array(features.shape),
    )  # fmt: skip


def main(folder: Path) -> None:
    pages = raw("facebook-pages")
    write(folder / "pages", pages, near_hubs(pages, np.arange(len(pages.label)), 2000), 5)
    papers = raw("citation-sources")
    assert papers.owner is not None
    of = [np.flatnonzero(papers.owner == source) for source in range(3)]
    write(folder / "papers-dblp", papers, near_hubs(papers, of[2], 2000), 8)
    parts = [near_hubs(papers, nodes_of_source, 650) for nodes_of_source in of]
    write(folder / "papers-three", papers, np.concatenate(parts), np.repeat(range(3), list(map(len, parts))))
    nodes = near_hubs(papers, of[1], 2000)
    write(folder / "papers-skewed", papers, nodes, skewed(papers.label[nodes], 6, 0.5))
    users = raw("twitch")
    assert users.owner is not None
    of = [np.flatnonzero(users.owner == country) for country in np.unique(users.owner)]
    write(folder / "twitch-one", users, min(of, key=len), 5)
    parts = [near_hubs(users, nodes_of_country, 280) for nodes_of_country in of]
    write(folder / "twitch-seven", users, np.concatenate(parts), np.repeat(range(len(of)), list(map(len, parts))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
