"""Conditions that make a node dataset harder: noise and gaps in features, edges and training labels.

OpenFGL has six such modes (Li et al., PVLDB 2025, arXiv 2408.16288: noise and sparsity of features, edges and labels).
Here a condition has a strength of at least 0; at 0 the data are bitwise identical. Conditions are applied after the
partition, so clients, splits and partition hashes are those of the run without conditions. Features and edges change
for training, validation and test; labels change for training nodes only.

Each (seed, condition, client) has a separate random stream that does not depend on the strength: with the same seed, a
stronger condition includes all changes of a weaker one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

import dgl
import numpy as np
import scipy.sparse as sp
import torch

from ..registry import UserError
from .build import derive, node_client
from .federation import Federation, GraphClient, NodeClient, NodeData, Rows, RowsClient, Stress, csr_tensor, to_scipy
from .spec import bidirected

BLOCK = 4096  # random pairs drawn at a time


def for_nodes_only(conditions: Sequence[str], reason: str) -> str:
    """The message about conditions that the task does not have."""
    return f"{', '.join(conditions)}: these conditions are for node classification, and {reason}; leave them out"


def stressed(federation: Federation, conditions: Stress) -> Federation:
    """Return the federation with the conditions applied, or the same federation if all strengths are 0.

    The seed is that of the federation. Nodes, features, edges and labels that several clients share change once, by the
    draws of the first of these clients. Raises UserError for tasks other than node classification.
    """
    wanted = conditions.present
    if not wanted:
        return federation
    whole = federation.whole
    if not isinstance(whole, NodeData) or federation.task != "node":
        raise UserError(for_nodes_only(wanted, f"the task of {whole.name!r} with this split is another"))
    members = [client for client in federation.clients if isinstance(client, NodeClient)]
    parts = [client.graph.ndata["global_id"].numpy() for client in members]
    train = federation.masks["train"].numpy()
    missing = _draw(_within(parts, train), len(train), conditions.missing_labels, federation.seed, "missing labels", 1)
    changed = replace(
        whole,
        feat=_features(whole.feat, parts, conditions, federation.seed),
        graph=_graph(whole, parts, conditions, federation.seed),
        label=_labels(whole, parts, train & ~missing, conditions.label_noise, federation.seed),
    )
    kept, clients = torch.from_numpy(~missing), []
    for ids, client, feat in zip(parts, members, Rows(changed.feat).each(parts), strict=True):
        masks = {part: client.graph.ndata[f"{part}_mask"] for part in federation.masks}
        masks["train"] = masks["train"] & kept[torch.from_numpy(ids)]
        clients.append(node_client(changed, feat, ids, masks))
    masks = {**federation.masks, "train": federation.masks["train"] & kept}
    return replace(federation, whole=changed, clients=clients, masks=masks)


def reversed_labels(federation: Federation, hostile: Collection[int]) -> Federation:
    """Return the federation in which the `hostile` clients train on reversed labels: class c becomes C - 1 - c.

    Only training labels at these clients change; a node that another client also holds keeps its label there. Returns
    the same federation if no client is hostile. UserError if labels are numbers instead of classes.
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
        graph.ndata["label"] = _reversed_labels(graph.ndata["label"], graph.ndata["train_mask"].bool(), classes)
        return replace(client, graph=graph)
    if not client.masks:
        raise UserError("label_flip needs labels to train on, and sets of graphs are clustered without labels")
    if isinstance(client, GraphClient):
        classes = client.classes or classes
    return replace(client, label=_reversed_labels(client.label, client.masks["train"].bool(), classes))


def _reversed_labels(label: torch.Tensor, train: torch.Tensor, classes: int) -> torch.Tensor:
    if label.is_floating_point():
        raise UserError("label_flip reverses classes, and this task predicts numbers or several labels: leave it out")
    return torch.where(train, classes - 1 - label, label)


def _draw(parts: Sequence[np.ndarray], total: int, share: float, seed: int, purpose: str, spare: int = 0) -> np.ndarray:
    """Return bool (total,): of the n items of each part, the first round(share n) in a random order of that part.

    Items that an earlier part has keep its decision, and count. spare: items per part that are never drawn.
    """
    drawn, decided = np.zeros(total, dtype=bool), np.zeros(total, dtype=bool)
    for client, part in enumerate(parts if share else ()):
        order = np.random.default_rng(derive(seed, f"{purpose} {client}")).permutation(part)
        free = order[~decided[order]]
        wanted = min(round(share * len(part)), len(part) - spare) - int(drawn[part].sum())
        drawn[free[: max(wanted, 0)]] = True
        decided[part] = True
    return drawn


def _within(parts: Sequence[np.ndarray], mask: np.ndarray) -> list[np.ndarray]:
    return [ids[mask[ids]] for ids in parts]


def _with_rest(parts: Sequence[np.ndarray], total: int) -> list[np.ndarray]:
    """Return the parts, and the nodes in none of them as one more part."""
    return [*parts, np.setdiff1d(np.arange(total), np.concatenate(parts))]


def _features(feat: torch.Tensor, parts: Sequence[np.ndarray], conditions: Stress, seed: int) -> torch.Tensor:
    """Return the features (N, d) with missing values and noise; noise makes sparse features dense."""
    if not conditions.missing_features and not conditions.feature_noise:
        return feat
    sparse, nodes = feat.layout == torch.sparse_csr, _with_rest(parts, feat.shape[0])
    matrix = sp.csr_matrix(to_scipy(feat) if sparse else feat.numpy(), copy=True)
    length = float(np.sqrt(np.square(matrix.data, dtype=np.float64).sum() / max(matrix.shape[0], 1)))
    if conditions.missing_features:
        entries = [_entries(matrix, ids) for ids in nodes]
        matrix.data[_draw(entries, matrix.nnz, conditions.missing_features, seed, "missing features")] = 0
        matrix.eliminate_zeros()
    if not conditions.feature_noise:
        return csr_tensor(matrix) if sparse else torch.from_numpy(matrix.toarray())
    noise = np.empty(matrix.shape, dtype=np.float32)
    for client, ids in reversed([*enumerate(nodes)]):  # a shared node gets the noise of its first client
        rng = np.random.default_rng(derive(seed, f"feature noise {client}"))
        noise[ids] = rng.standard_normal((len(ids), matrix.shape[1]), dtype=np.float32)
    scale = conditions.feature_noise * length / np.sqrt(max(matrix.shape[1], 1))
    return torch.from_numpy(matrix.toarray() + np.float32(scale) * noise)


def _entries(matrix: sp.csr_matrix, ids: np.ndarray) -> np.ndarray:
    starts, sizes = matrix.indptr[ids].astype(np.int64), np.diff(matrix.indptr)[ids]
    return np.asarray(np.arange(sizes.sum()) + np.repeat(starts - np.cumsum(sizes) + sizes, sizes))


def _graph(whole: NodeData, parts: Sequence[np.ndarray], conditions: Stress, seed: int) -> dgl.DGLGraph:
    """Return the whole graph without the dropped edges and with the random ones; clients get its induced subgraphs.

    The same share of the edges between clients, which only the whole graph has, is dropped; none is added there.
    """
    if not conditions.dropped_edges and not conditions.edge_noise:
        return whole.graph
    source, target = (ends.numpy() for ends in whole.graph.edges())
    edges = np.stack([source, target], axis=1)[source < target]
    inside = [np.flatnonzero(np.isin(edges, ids).all(axis=1)) for ids in parts]
    dropped = _draw(_with_rest(inside, len(edges)), len(edges), conditions.dropped_edges, seed, "dropped edges")
    pairs = [edges[~dropped]]
    for client, (ids, positions) in enumerate(zip(parts, inside, strict=True)):
        rng = np.random.default_rng(derive(seed, f"edge noise {client}"))
        pairs.append(ids[_new_pairs(len(ids), np.searchsorted(ids, edges[positions]), conditions.edge_noise, rng)])
    return bidirected(np.unique(np.concatenate(pairs), axis=0), whole.graph.num_nodes())


def _new_pairs(nodes: int, edges: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    """Return round(share M) random pairs u < v, (n, 2), of `nodes` nodes that are none of the edges (M, 2); at most
    half of all such pairs."""
    free = nodes * (nodes - 1) // 2 - len(edges)
    wanted = min(round(share * len(edges)), free // 2)
    taken = edges[:, 0] * nodes + edges[:, 1]
    codes = np.empty(0, dtype=np.int64)
    while len(codes) < wanted:
        low, high = np.sort(rng.integers(nodes, size=(BLOCK, 2)), axis=1).T
        drawn = (low * nodes + high)[low < high]
        codes = np.concatenate([codes, drawn[~np.isin(drawn, taken)]])
        codes = codes[np.sort(np.unique(codes, return_index=True)[1])]  # without duplicates, in the order of drawing
    return np.stack([codes[:wanted] // max(nodes, 1), codes[:wanted] % max(nodes, 1)], axis=1)


def _labels(whole: NodeData, parts: Sequence[np.ndarray], train: np.ndarray, share: float, seed: int) -> torch.Tensor:
    """Return labels (N,) with a wrong class, drawn uniformly, for a share of each client's training nodes."""
    if not share:
        return whole.label
    wrong = _draw(_within(parts, train), len(train), share, seed, "label noise")
    label = whole.label.numpy().copy()
    step = np.random.default_rng(derive(seed, "wrong labels")).integers(1, whole.num_classes, size=len(label))
    label[wrong] = (label + step)[wrong] % whole.num_classes
    return torch.from_numpy(label)
