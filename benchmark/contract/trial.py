"""Federations for the checks: small generated ones of every kind, and a real dataset.

Functions change the data or the labels of clients, to check what a method depends on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import dgl
import numpy as np
import torch
import torch.nn.functional as F

from ...datasets import DATASETS, PARTITIONS, SPLITS, PartitionSpec, SplitSpec, build_federation
from ...datasets.federation import Federation, GraphClient, GraphSetData, NodeClient, NodeData, RowsClient
from ...datasets.sources import obtain
from ..engine import BACKBONES, Backbone, TrainConfig, of_shape

REAL = "cora"


@dataclass(frozen=True, eq=False)
class Trial:
    """A federation, the clients' backbones, and the training configuration."""

    name: str
    federation: Federation
    backbones: tuple[Backbone, ...]
    config: TrainConfig = field(default_factory=lambda: TrainConfig(rounds=2, local_epochs=2))


@cache
def trials() -> tuple[Trial, ...]:
    """A small federation of every kind; a method must pass on all that it does not skip."""
    gcn = (BACKBONES.build("gcn", {"hidden": 8}),)
    gin = (BACKBONES.build("gin", {"hidden": 8, "readout": "mean"}),)
    mean = (BACKBONES.build("gcn", {"hidden": 8, "readout": "mean"}),)  # GIN diverges at learning rates for nodes
    mixed = tuple(BACKBONES.build(name, {"hidden": 8}) for name in ("gcn", "gat", "sage"))
    # Momentum, because Adam's first steps amplify the rounding of gradients near 0; the learning rate of the papers.
    sets = TrainConfig(rounds=2, local_epochs=2, batch_size=8, optimiser="sgd", momentum=0.9, lr=1e-3)
    return (
        Trial("one architecture", without_training(node_federation(), 2), gcn, TrainConfig(rounds=3, local_epochs=2)),
        Trial("several architectures", node_federation(), mixed),
        Trial("overlapping clients", overlapping_federation(), gcn),
        Trial("sets of graphs", graph_federation(), gcn, sets),
        Trial("graphs to classify", without_training(labelled_graphs(), 2), gin, sets),
        Trial("clients of their own domains", domains_federation(), gin, sets),
        Trial("links to predict", link_federation(), gcn),
        Trial("numbers of nodes", node_numbers(), gcn),
        Trial("numbers of graphs", graph_numbers(), mean, sets),
    )


def _blocks(nodes: int, *, sparse: bool = False) -> NodeData:
    """An easy stochastic block model."""
    params = {"nodes": nodes, "classes": 3, "features": 20, "signal": 2, "homophily": 0.9}
    data = DATASETS.build("csbm", params).load()
    assert isinstance(data, NodeData)
    return replace(data, feat=torch.relu(data.feat).to_sparse_csr()) if sparse else data


def _uneven() -> PartitionSpec:
    """Clients of different sizes and class shares."""
    return PARTITIONS.build("label-dirichlet", {"alpha": 2, "minimum": 15})


def _ratio(train: float, val: float, test: float) -> SplitSpec:
    return SPLITS.build("ratio", {"train": train, "val": val, "test": test})


@cache
def node_federation() -> Federation:
    """A stochastic block model in four clients of different sizes and class shares, dense features."""
    return build_federation(_blocks(180), _uneven(), _ratio(0.3, 0.3, 0.4), 4, 2)


@cache
def link_federation() -> Federation:
    """Link prediction in a stochastic block model, three clients of different sizes, sparse features."""
    return build_federation(_blocks(120, sparse=True), _uneven(), SPLITS.build("links"), 3, 2)


@cache
def node_numbers() -> Federation:
    """Node regression in the same model, three clients; a linear function of one feature, a tenth is unknown."""
    data = _blocks(120)
    target = 3 * data.feat[:, :1] - 2
    target[::10] = torch.nan
    numbers = replace(
        data, label=-target.isnan().all(1).long(), num_classes=1, target=target, goal="node-regression",
        scored_by="rmse",
    )  # fmt: skip
    return build_federation(numbers, PARTITIONS.build("uniform"), _ratio(0.3, 0.3, 0.4), 3, 2)


@cache
def graph_numbers() -> Federation:
    """Graph regression on rings and trees, three clients; the number of nodes in hundreds."""
    data = rings_and_trees(90)
    target = torch.tensor([[graph.num_nodes() / 100] for graph in data.graphs])
    numbers = replace(
        data, label=torch.zeros(90, dtype=torch.long), num_classes=1, target=target, goal="graph-regression",
        scored_by="mae",
    )  # fmt: skip
    return build_federation(numbers, PARTITIONS.build("uniform"), _ratio(0.4, 0.2, 0.4), 3, 0)


@cache
def overlapping_federation() -> Federation:
    """Three clients that share nodes of a stochastic block model, sparse features."""
    partition = PARTITIONS.build("random-overlap", {"proportions": (0.3, 0.5, 0.6)})
    split = SPLITS.build("per-class", {"k": 8, "val": 36, "test": 48})
    return build_federation(_blocks(120, sparse=True), partition, split, 3, 0)


@cache
def graph_federation() -> Federation:
    """Clustering of rings and binary trees, three clients of different sizes."""
    data = rings_and_trees(48)
    parts = np.split(np.arange(48), [12, 30])
    clients = [GraphClient([data.graphs[i] for i in ids], data.label[ids], torch.from_numpy(ids)) for ids in parts]
    return Federation(data, clients, {}, "generated", 0)


@cache
def labelled_graphs() -> Federation:
    """Classification of rings and binary trees, four clients of different sizes and class shares."""
    return build_federation(rings_and_trees(140), _uneven(), _ratio(0.5, 0.2, 0.3), 4, 3)


@cache
def domains_federation() -> Federation:
    """Rings and trees in three clients; one has fewer features, and small and large rings as different classes."""
    data = rings_and_trees(80)
    owner = torch.arange(80).clamp(max=69) // 25
    large = torch.tensor([graph.num_nodes() > 15 for graph in data.graphs])
    label = torch.where((owner == 1) & large & (data.label == 1), 2, data.label)
    for graph, domain in zip(data.graphs, owner.tolist(), strict=True):
        if domain == 1:
            graph.ndata["feat"][:, 4:] = 0
    data = replace(data, label=label, num_classes=3, owner=owner, spaces=((6, 2), (4, 3), (6, 2)))
    return build_federation(data, PARTITIONS.build("own"), _ratio(0.4, 0.2, 0.4), 3, 0)


def rings_and_trees(count: int) -> GraphSetData:
    """`count` graphs of different sizes, alternately binary trees and rings (the classes), with random shortcuts."""
    rng = np.random.default_rng(0)
    graphs, label = [], []
    for i in range(count):
        n = int(rng.integers(4, 30))
        node = np.arange(n)
        other = (node + 1) % n if i % 2 else (node - 1).clip(0) // 2
        pairs = np.concatenate([np.stack([node, other]), rng.integers(0, n, (2, 2))], 1)
        pairs = pairs[:, pairs[0] != pairs[1]]
        pairs = np.unique(np.concatenate([pairs, pairs[::-1]], 1), axis=1)
        graph = dgl.graph((torch.from_numpy(pairs[0]), torch.from_numpy(pairs[1])), num_nodes=n)
        graph.ndata["feat"] = F.one_hot(graph.in_degrees().clamp(max=5), 6).float()
        graphs.append(graph)
        label.append(i % 2)
    return GraphSetData("rings and trees", graphs, torch.tensor(label), 2, "generated", "generated", synthetic=True)


def scored_labels(client: NodeClient | GraphClient) -> torch.Tensor:
    """(n,) the labels of a client's test nodes, graphs or pairs; (n, T) for regression."""
    if isinstance(client, GraphClient | RowsClient):
        return client.label[client.masks["test"]]
    return client.graph.ndata["label"][client.graph.ndata["test_mask"].bool()]


def real_trial(*, near: bool = False) -> Trial:
    """A real dataset in five clients. near: do not download it; UserError if it is not in the cache or a mirror."""
    spec = DATASETS.build(REAL)
    if near:
        obtain(REAL, [route for route in spec.routes if route.kind == "mirror"], spec.fingerprint, spec.unverified)
    split = SPLITS.build("ratio")
    federation = build_federation(spec.load(), PARTITIONS.build("louvain"), split, 5, 0)
    config = TrainConfig(rounds=2, local_epochs=1)
    return Trial(f"{REAL} in 5 clients", federation, (BACKBONES.build("gcn", {"hidden": 16}),), config)


def with_client(federation: Federation, client: int, **columns: torch.Tensor) -> Federation:
    """The federation with other node data, features ("feat") included, at one client."""
    former = federation.clients[client]
    assert isinstance(former, NodeClient)
    graph = former.graph.local_var()
    feat = columns.pop("feat", former.feat)
    graph.ndata.update(columns)
    return _with(federation, client, NodeClient(graph, feat))


def _with(federation: Federation, client: int, changed: NodeClient | GraphClient) -> Federation:
    clients: list[Any] = list(federation.clients)
    clients[client] = changed
    return replace(federation, clients=clients)


def without_training(federation: Federation, client: int) -> Federation:
    """The training nodes (graphs) of one client become validation nodes."""
    chosen = federation.clients[client]
    if isinstance(chosen, GraphClient):
        train = chosen.masks["train"]
        parts = {**chosen.masks, "train": torch.zeros_like(train), "val": chosen.masks["val"] | train}
        return _with(_as_validation(federation, chosen.global_id[train]), client, replace(chosen, masks=parts))
    train = chosen.graph.ndata["train_mask"].bool()
    federation = _as_validation(federation, chosen.graph.ndata["global_id"][train])
    val, none = chosen.graph.ndata["val_mask"].bool() | train, torch.zeros_like(train)
    return with_client(federation, client, train_mask=none, val_mask=val)


def _as_validation(federation: Federation, ids: torch.Tensor) -> Federation:
    """The federation with these training nodes (graphs) as validation nodes in the masks of the whole."""
    masks = {part: mask.clone() for part, mask in federation.masks.items()}
    masks["train"][ids], masks["val"][ids] = False, True
    return replace(federation, masks=masks)


def swapped(federation: Federation) -> Federation:
    """The federation with training and test nodes exchanged, as another seed's split may do."""
    masks = federation.masks | {"train": federation.masks["test"], "test": federation.masks["train"]}
    out = replace(federation, masks=masks)
    for k, client in enumerate(federation.clients):
        assert isinstance(client, NodeClient)
        train, test = client.graph.ndata["train_mask"], client.graph.ndata["test_mask"]
        out = with_client(out, k, train_mask=test, test_mask=train)
    return out


def drawn(federation: Federation) -> Federation:
    """The federation with all hidden labels drawn at random, anew at each call; numbers are 1 or -1."""
    rng = np.random.default_rng()

    def random(label: torch.Tensor) -> torch.Tensor:
        if label.is_floating_point():
            return torch.from_numpy(rng.choice(np.array([-1, 1], np.float32), label.shape))
        return torch.from_numpy(rng.integers(0, federation.num_classes, len(label)))

    return _with_hidden(federation, random)


def relabelled(federation: Federation) -> Federation:
    """The federation with other hidden labels."""
    classes = federation.num_classes
    return _with_hidden(federation, lambda label: label + 1 if label.is_floating_point() else (label + 1) % classes)


def _with_hidden(federation: Federation, changed: Callable[[torch.Tensor], torch.Tensor]) -> Federation:
    """The federation with changed hidden labels or targets: at each client those of all nodes (graphs, rows) but its
    training nodes, and those of all graphs that are clustered."""
    clients: list[Any] = list(federation.clients)
    if isinstance(clients[0], RowsClient):
        labels = [torch.where(each.masks["train"], each.label, changed(each.label)) for each in clients]
        return replace(federation, clients=[replace(each, label=y) for each, y in zip(clients, labels, strict=True)])
    whole, truth = federation.whole, federation.whole.truth
    hidden = changed(truth)
    known = federation.masks.get("train", torch.zeros(len(truth), dtype=torch.bool)).bool()
    label = torch.where(of_shape(known, truth), truth, hidden)
    changed_whole = replace(whole, label=label) if whole.target is None else replace(whole, target=label)
    out = replace(federation, whole=changed_whole)
    if isinstance(whole, GraphSetData):
        return replace(out, clients=[replace(each, label=label[each.global_id]) for each in clients])
    for k, client in enumerate(clients):
        ids, train = client.graph.ndata["global_id"], client.graph.ndata["train_mask"].bool()
        out = with_client(out, k, label=torch.where(of_shape(train, truth), truth[ids], hidden[ids]))
    return out


def perturbed(federation: Federation, client: int) -> Federation:
    """The federation with another graph (or graphs), features and labels of the same shapes at one client."""
    rng = np.random.default_rng(1)
    chosen = federation.clients[client]
    if isinstance(chosen, GraphClient):
        others = [_path(graph, rng) for graph in chosen.graphs]
        label = chosen.label + 1 if chosen.label.is_floating_point() else 1 - chosen.label.clamp(max=1)
        return _with(federation, client, replace(chosen, graphs=others, label=label))
    n = chosen.graph.num_nodes()
    order = torch.from_numpy(rng.permutation(n))
    dense = chosen.feat.to_dense()[order] + 0.5
    feat = dense.to_sparse_csr() if chosen.feat.layout == torch.sparse_csr else dense
    graph = dgl.graph(tuple(order[end] for end in chosen.graph.edges(order="eid")), num_nodes=n)
    label = chosen.graph.ndata["label"] + 1
    if not label.is_floating_point():
        label %= federation.num_classes
    graph.ndata.update({**chosen.graph.ndata, "label": label})
    if isinstance(chosen, RowsClient):
        return _with(federation, client, replace(chosen, graph=graph, feat=feat, label=1 - chosen.label))
    return _with(federation, client, NodeClient(graph, feat))


def _path(graph: dgl.DGLGraph, rng: np.random.Generator) -> dgl.DGLGraph:
    n = graph.num_nodes()
    path = torch.arange(n - 1)
    out = dgl.graph((torch.cat([path, path + 1]), torch.cat([path + 1, path])), num_nodes=n)
    out.ndata["feat"] = graph.ndata["feat"][torch.from_numpy(rng.permutation(n))]
    return out
