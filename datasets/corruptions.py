"""Conditions that make a node dataset harder: noise and gaps in features, edges and training labels.

OpenFGL has six such modes (Li et al., PVLDB 2025, arXiv 2408.16288: noise and sparsity of features, edges and labels).
Here a condition has a strength of at least 0, and 0 is the data as they are, to the bit. It is laid on the federation
as it was cut, so that clients, splits and partition hashes are those of the plain cell. Features and edges change
everywhere, for training, validation and testing, labels of training nodes only: those that validate and test are never
touched.

What is drawn has a stream of its own for each (seed, condition, client), and does not depend on the strength: of one
seed, a stronger condition has all that a weaker one has, and more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import dgl
import numpy as np
import scipy.sparse as sp
import torch

from ..registry import Spec, UserError, option
from .build import derive, node_client
from .federation import Federation, GraphClient, NodeClient, NodeData, Rows, RowsClient, csr_tensor, to_scipy
from .spec import bidirected

BLOCK = 4096  # random pairs drawn at a time


class Stress(Spec):
    """The strength of each condition; 0 is none."""

    feature_noise: float = option(
        0.0, "Gaussian noise on all features: its length, in units of a node's mean (RMS) length", ge=0, later=True
    )
    missing_features: float = option(
        0.0, "share of the non-zero features of each client's nodes that are set to 0", ge=0, le=1, later=True
    )
    edge_noise: float = option(
        0.0, "random edges that each client gets besides, as a share of the edges that it has", ge=0, later=True
    )
    dropped_edges: float = option(0.0, "share of each client's edges that it loses", ge=0, le=1, later=True)
    label_noise: float = option(
        0.0, "share of each client's training nodes whose label is another class at random", ge=0, le=1, later=True
    )
    missing_labels: float = option(
        0.0, "share of each client's training nodes that no longer train; one always does", ge=0, lt=1, later=True
    )


def stressed(federation: Federation, conditions: Stress) -> Federation:
    """The federation under conditions; itself where all strengths are 0.

    The seed is the federation's. What nodes, features, edges or labels several clients share is changed once, by the
    first of them. Raises UserError for sets of graphs, for which no condition is defined.
    """
    wanted = [name for name in Stress.model_fields if getattr(conditions, name)]
    if not wanted:
        return federation
    whole = federation.whole
    if not isinstance(whole, NodeData) or federation.task != "node":
        what = "is for another task" if isinstance(whole, NodeData) else "is a set of graphs"
        raise UserError(f"{', '.join(wanted)}: conditions are for node classification, and {whole.name!r} {what}")
    owners = [client for client in federation.clients if isinstance(client, NodeClient)]
    held = [client.graph.ndata["global_id"].numpy() for client in owners]
    trains = federation.masks["train"].numpy()
    gone = _picked(_of(held, trains), len(trains), conditions.missing_labels, federation.seed, "missing labels", 1)
    hard = replace(
        whole,
        feat=_features(whole.feat, held, conditions, federation.seed),
        graph=_graph(whole, held, conditions, federation.seed),
        label=_labels(whole, held, trains & ~gone, conditions.label_noise, federation.seed),
    )
    left, clients = torch.from_numpy(~gone), []
    for ids, client, feat in zip(held, owners, Rows(hard.feat).each(held), strict=True):
        masks = {part: client.graph.ndata[f"{part}_mask"] for part in federation.masks}
        masks["train"] = masks["train"] & left[torch.from_numpy(ids)]
        clients.append(node_client(hard, feat, ids, masks))
    return replace(
        federation, whole=hard, clients=clients, masks={**federation.masks, "train": federation.masks["train"] & left}
    )


def reversed_labels(federation: Federation, hostile: Collection[int]) -> Federation:
    """Return the federation in which some clients train on reversed labels: class c becomes C - 1 - c.

    Only labels of training nodes (or graphs) change, and only those that these clients hold: what two clients share is
    wrong at the hostile one alone. The federation itself if no client is hostile.
    """
    if not hostile:
        return federation
    clients: list[Any] = [*federation.clients]
    for place in hostile:
        clients[place] = _reversed(clients[place], federation.num_classes)
    return replace(federation, clients=clients)


def _reversed(client: NodeClient | GraphClient, classes: int) -> NodeClient | GraphClient:
    if isinstance(client, NodeClient) and not isinstance(client, RowsClient):
        graph = client.graph.local_var()
        label, trains = graph.ndata["label"], graph.ndata["train_mask"].bool()
        graph.ndata["label"] = torch.where(trains, classes - 1 - label, label)
        return replace(client, graph=graph)
    if not client.masks:
        raise UserError("label_flip needs labels to train on, and sets of graphs are clustered without labels")
    return replace(client, label=torch.where(client.masks["train"].bool(), classes - 1 - client.label, client.label))


def _picked(
    parts: Sequence[np.ndarray], total: int, share: float, seed: int, purpose: str, spare: int = 0
) -> np.ndarray:
    """Bool (total,): of the n items of each part round(share n), the first ones of an order of the part's own.

    What an earlier part decided stays, and counts. spare: at least this number of each part is left.
    """
    picked, decided = np.zeros(total, dtype=bool), np.zeros(total, dtype=bool)
    for client, part in enumerate(parts if share else ()):
        order = np.random.default_rng(derive(seed, f"{purpose} {client}")).permutation(part)
        free = order[~decided[order]]
        wanted = min(round(share * len(part)), len(part) - spare) - int(picked[part].sum())
        picked[free[: max(wanted, 0)]] = True
        decided[part] = True
    return picked


def _of(held: Sequence[np.ndarray], mask: np.ndarray) -> list[np.ndarray]:
    """The nodes of each client that are in a mask (N,)."""
    return [ids[mask[ids]] for ids in held]


def _with_rest(held: Sequence[np.ndarray], total: int) -> list[np.ndarray]:
    """The nodes of each client, and those that no client holds."""
    return [*held, np.setdiff1d(np.arange(total), np.concatenate(held))]


def _features(feat: torch.Tensor, held: Sequence[np.ndarray], conditions: Stress, seed: int) -> torch.Tensor:
    """(N, d) with gaps and noise; noise makes sparse features dense."""
    if not conditions.missing_features and not conditions.feature_noise:
        return feat
    sparse, nodes = feat.layout == torch.sparse_csr, _with_rest(held, feat.shape[0])
    matrix = sp.csr_matrix(to_scipy(feat) if sparse else feat.numpy(), copy=True)
    length = float(np.sqrt(np.square(matrix.data, dtype=np.float64).sum() / max(matrix.shape[0], 1)))
    if conditions.missing_features:
        entries = [_entries(matrix, ids) for ids in nodes]
        matrix.data[_picked(entries, matrix.nnz, conditions.missing_features, seed, "missing features")] = 0
        matrix.eliminate_zeros()
    if not conditions.feature_noise:
        return csr_tensor(matrix) if sparse else torch.from_numpy(matrix.toarray())
    noise = np.empty(matrix.shape, dtype=np.float32)
    for client, ids in reversed([*enumerate(nodes)]):  # the first of several that hold a node has the last word
        rng = np.random.default_rng(derive(seed, f"feature noise {client}"))
        noise[ids] = rng.standard_normal((len(ids), matrix.shape[1]), dtype=np.float32)
    scale = conditions.feature_noise * length / np.sqrt(max(matrix.shape[1], 1))
    return torch.from_numpy(matrix.toarray() + np.float32(scale) * noise)


def _entries(matrix: sp.csr_matrix, ids: np.ndarray) -> np.ndarray:
    """The places in `matrix.data` of the entries of some rows."""
    starts, sizes = matrix.indptr[ids].astype(np.int64), np.diff(matrix.indptr)[ids]
    return np.asarray(np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes))


def _graph(whole: NodeData, held: Sequence[np.ndarray], conditions: Stress, seed: int) -> dgl.DGLGraph:
    """The whole graph without the edges that are dropped and with random ones; clients' graphs are induced by it.

    Edges between clients, which the whole graph has alone, are dropped in the same share; none is added there.
    """
    if not conditions.dropped_edges and not conditions.edge_noise:
        return whole.graph
    source, target = (ends.numpy() for ends in whole.graph.edges())
    edges = np.stack([source, target], axis=1)[source < target]
    inside = [np.flatnonzero(np.isin(edges, ids).all(axis=1)) for ids in held]
    gone = _picked(_with_rest(inside, len(edges)), len(edges), conditions.dropped_edges, seed, "dropped edges")
    pairs = [edges[~gone]]
    for client, (ids, positions) in enumerate(zip(held, inside, strict=True)):
        rng = np.random.default_rng(derive(seed, f"edge noise {client}"))
        pairs.append(ids[_new_pairs(len(ids), np.searchsorted(ids, edges[positions]), conditions.edge_noise, rng)])
    return bidirected(np.unique(np.concatenate(pairs), axis=0), whole.graph.num_nodes())


def _new_pairs(nodes: int, edges: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """(round(share M), 2) distinct pairs u < v of `nodes` nodes that are none of the edges (M, 2), at random; at most
    half of those that there are."""
    free = nodes * (nodes - 1) // 2 - len(edges)
    wanted = min(round(share * len(edges)), free // 2)
    taken = edges[:, 0] * nodes + edges[:, 1]
    codes = np.empty(0, dtype=np.int64)
    while len(codes) < wanted:
        low, high = np.sort(rng.integers(nodes, size=(BLOCK, 2)), axis=1).T
        drawn = (low * nodes + high)[low < high]
        codes = np.concatenate([codes, drawn[~np.isin(drawn, taken)]])
        codes = codes[np.sort(np.unique(codes, return_index=True)[1])]  # each where it was drawn first
    return np.stack([codes[:wanted] // max(nodes, 1), codes[:wanted] % max(nodes, 1)], axis=1)


def _labels(whole: NodeData, held: Sequence[np.ndarray], trains: np.ndarray, share: float, seed: int) -> torch.Tensor:
    """(N,) with another class, each with the same probability, for a share of each client's training nodes."""
    if not share:
        return whole.label
    wrong = _picked(_of(held, trains), len(trains), share, seed, "label noise")
    label = whole.label.numpy().copy()
    step = np.random.default_rng(derive(seed, "wrong labels")).integers(1, whole.num_classes, size=len(label))
    label[wrong] = (label + step)[wrong] % whole.num_classes
    return torch.from_numpy(label)
