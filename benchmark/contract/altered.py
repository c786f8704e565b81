"""Federations made from another: the same clients with other data or labels where it must, or must not, matter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dgl
import numpy as np
import torch

from ...datasets.federation import Federation, GraphClient, GraphSetData, NodeClient, RowsClient


def with_client(federation: Federation, client: int, **columns: torch.Tensor) -> Federation:
    """The federation with other node data, features ("feat") included, at one client."""
    own = federation.clients[client]
    assert isinstance(own, NodeClient)
    graph = own.graph.local_var()
    feat = columns.pop("feat", own.feat)
    graph.ndata.update(columns)
    return _with(federation, client, NodeClient(graph, feat))


def _with(federation: Federation, client: int, own: NodeClient | GraphClient) -> Federation:
    clients: list[Any] = list(federation.clients)
    clients[client] = own
    return replace(federation, clients=clients)


def without_training(federation: Federation, client: int) -> Federation:
    """The training nodes (graphs) of one client become validation nodes."""
    own = federation.clients[client]
    if isinstance(own, GraphClient):
        train = own.masks["train"]
        parts = {**own.masks, "train": torch.zeros_like(train), "val": own.masks["val"] | train}
        return _with(_as_validation(federation, own.global_id[train]), client, replace(own, masks=parts))
    train = own.graph.ndata["train_mask"].bool()
    federation = _as_validation(federation, own.graph.ndata["global_id"][train])
    val, none = own.graph.ndata["val_mask"].bool() | train, torch.zeros_like(train)
    return with_client(federation, client, train_mask=none, val_mask=val)


def _as_validation(federation: Federation, ids: torch.Tensor) -> Federation:
    """The masks of the whole, where some training nodes (graphs) have become validation nodes."""
    masks = {part: mask.clone() for part, mask in federation.masks.items()}
    masks["train"][ids], masks["val"][ids] = False, True
    return replace(federation, masks=masks)


def swapped(federation: Federation) -> Federation:
    """Training and test nodes with their parts exchanged, as another seed's split may have them."""
    masks = federation.masks | {"train": federation.masks["test"], "test": federation.masks["train"]}
    out = replace(federation, masks=masks)
    for k, own in enumerate(federation.clients):
        assert isinstance(own, NodeClient)
        train, test = own.graph.ndata["train_mask"], own.graph.ndata["test_mask"]
        out = with_client(out, k, train_mask=test, test_mask=train)
    return out


def drawn(federation: Federation) -> Federation:
    """Labels drawn at random, anew at each call, wherever a client has no business to know them."""
    whole, rng = federation.whole, np.random.default_rng()
    if _in_rows(federation):
        return _with_rows(federation, lambda label: torch.from_numpy(rng.integers(0, 2, len(label))))
    if whole.target is None:
        label = torch.from_numpy(rng.integers(0, federation.num_classes, len(whole.label)))
    else:  # 1 or -1
        label = torch.from_numpy(rng.choice(np.array([-1, 1], np.float32), whole.target.shape))
    return _with_labels(federation, torch.where(_known(federation, label), whole.truth, label))


def relabelled(federation: Federation) -> Federation:
    """Other labels wherever a client has no business to know them: on all nodes that are not training nodes of its own,
    and on all graphs of a set that is clustered."""
    if _in_rows(federation):
        return _with_rows(federation, lambda label: 1 - label)
    truth = federation.whole.truth
    shifted = truth + 1 if truth.is_floating_point() else (truth + 1) % federation.num_classes
    return _with_labels(federation, torch.where(_known(federation, shifted), truth, shifted), shifted)


def _known(federation: Federation, label: torch.Tensor) -> torch.Tensor:
    """Bool of the shape (N, 1, ...) that fits labels: whose label some client may know."""
    known = federation.masks.get("train", torch.zeros(len(label), dtype=torch.bool)).bool()
    return known.view(-1, *[1] * (label.dim() - 1))


def _in_rows(federation: Federation) -> list[RowsClient]:
    return [client for client in federation.clients if isinstance(client, RowsClient)]


def _with_rows(federation: Federation, changed: Callable[[torch.Tensor], torch.Tensor]) -> Federation:
    """The federation with other labels of the rows that validate and test."""
    rows = _in_rows(federation)
    others = [replace(own, label=torch.where(own.masks["train"], own.label, changed(own.label))) for own in rows]
    return replace(federation, clients=others)


def _with_labels(federation: Federation, label: torch.Tensor, others: torch.Tensor | None = None) -> Federation:
    """The federation with other labels, or targets. others: of nodes that are no training nodes of their client; None:
    label."""
    whole = federation.whole
    changed = replace(whole, label=label) if whole.target is None else replace(whole, target=label)
    out = replace(federation, whole=changed)
    if isinstance(federation.whole, GraphSetData):
        sets = [replace(c, label=label[c.global_id]) for c in federation.clients if isinstance(c, GraphClient)]
        return replace(out, clients=sets)
    for k, own in enumerate(federation.clients):
        assert isinstance(own, NodeClient)
        ids, train = own.graph.ndata["global_id"], own.graph.ndata["train_mask"].bool()
        train = train.view(-1, *[1] * (label.dim() - 1))
        out = with_client(out, k, label=torch.where(train, label[ids], (label if others is None else others)[ids]))
    return out


def perturbed(federation: Federation, client: int) -> Federation:
    """Another graph with other features and labels of the same shapes and masks at one client, or other graphs."""
    rng = np.random.default_rng(1)
    own = federation.clients[client]
    if isinstance(own, GraphClient):
        others = [_path(graph, rng) for graph in own.graphs]
        label = own.label + 1 if own.label.is_floating_point() else 1 - own.label.clamp(max=1)
        return _with(federation, client, replace(own, graphs=others, label=label))
    n = own.graph.num_nodes()
    order = torch.from_numpy(rng.permutation(n))
    dense = own.feat.to_dense()[order] + 0.5
    feat = dense.to_sparse_csr() if own.feat.layout == torch.sparse_csr else dense
    graph = dgl.graph(tuple(order[end] for end in own.graph.edges(order="eid")), num_nodes=n)
    label = own.graph.ndata["label"] + 1
    if not label.is_floating_point():
        label %= federation.num_classes
    graph.ndata.update({**own.graph.ndata, "label": label})
    if isinstance(own, RowsClient):
        return _with(federation, client, replace(own, graph=graph, feat=feat, label=1 - own.label))
    return _with(federation, client, NodeClient(graph, feat))


def _path(graph: dgl.DGLGraph, rng: np.random.Generator) -> dgl.DGLGraph:
    """A path with the graph's nodes, their features shuffled."""
    n = graph.num_nodes()
    path = torch.arange(n - 1)
    out = dgl.graph((torch.cat([path, path + 1]), torch.cat([path + 1, path])), num_nodes=n)
    out.ndata["feat"] = graph.ndata["feat"][torch.from_numpy(rng.permutation(n))]
    return out
