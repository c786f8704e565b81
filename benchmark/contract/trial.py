"""Federations to try a method on: small generated ones of every kind, and a real dataset."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache

import dgl
import numpy as np
import torch
import torch.nn.functional as F

from ...datasets import DATASETS, PARTITIONS, SPLITS, build_federation
from ...datasets.federation import Federation, GraphClient, GraphSetData, NodeClient, NodeData, RowsClient
from ...datasets.sources import obtain
from ..engine import TrainConfig
from ..engine.backbones import BACKBONES, Backbone
from .altered import without_training

REAL = "cora"


@dataclass(frozen=True, eq=False)
class Trial:
    """A federation, the clients' backbones, and how they train."""

    name: str
    federation: Federation
    backbones: tuple[Backbone, ...]
    config: TrainConfig = field(default_factory=lambda: TrainConfig(rounds=2, local_epochs=2))


@cache
def trials() -> tuple[Trial, ...]:
    """Every kind of federation that the benchmark knows, few nodes each; a method must pass on all it does not skip."""
    gcn = (BACKBONES.build("gcn", {"hidden": 8}),)
    gin = (BACKBONES.build("gin", {"hidden": 8, "readout": "mean"}),)
    mean = (BACKBONES.build("gcn", {"hidden": 8, "readout": "mean"}),)  # rates for nodes let GIN diverge
    mixed = tuple(BACKBONES.build(name, {"hidden": 8}) for name in ("gcn", "gat", "sage"))
    # Momentum instead of Adam, whose first steps turn the rounding of a gradient near 0 into whole steps; papers' rate.
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


@cache
def node_federation() -> Federation:
    """An easy stochastic block model in four clients of unequal size and class mixture, dense features."""
    data = DATASETS.build("csbm", {"nodes": 180, "classes": 3, "features": 20, "signal": 2, "homophily": 0.9}).load()
    split = SPLITS.build("ratio", {"train": 0.3, "val": 0.3, "test": 0.4})
    return build_federation(data, PARTITIONS.build("label-dirichlet", {"alpha": 2, "minimum": 15}), split, 4, 2)


@cache
def link_federation() -> Federation:
    """Three unequal clients of a stochastic block model whose links are predicted, sparse features."""
    data = DATASETS.build("csbm", {"nodes": 120, "classes": 3, "features": 20, "signal": 2, "homophily": 0.9}).load()
    assert isinstance(data, NodeData)
    sparse = replace(data, feat=torch.relu(data.feat).to_sparse_csr())
    partition = PARTITIONS.build("label-dirichlet", {"alpha": 2, "minimum": 15})
    return build_federation(sparse, partition, SPLITS.build("links"), 3, 2)


@cache
def node_numbers() -> Federation:
    """Three clients of the model; predicted is a number that follows from a node's features, a tenth is not known."""
    data = DATASETS.build("csbm", {"nodes": 120, "classes": 3, "features": 20, "signal": 2, "homophily": 0.9}).load()
    assert isinstance(data, NodeData)
    target = 3 * data.feat[:, :1] - 2
    target[::10] = torch.nan
    numbers = replace(
        data, label=-target.isnan().all(1).long(), num_classes=1, target=target, goal="node-regression",
        scored_by="rmse",
    )  # fmt: skip
    split = SPLITS.build("ratio", {"train": 0.3, "val": 0.3, "test": 0.4})
    return build_federation(numbers, PARTITIONS.build("uniform"), split, 3, 2)


@cache
def graph_numbers() -> Federation:
    """Rings and trees in three clients; predicted is the number of nodes, in hundreds."""
    data = rings_and_trees(90)
    target = torch.tensor([[graph.num_nodes() / 100] for graph in data.graphs])
    numbers = replace(
        data, label=torch.zeros(90, dtype=torch.long), num_classes=1, target=target, goal="graph-regression",
        scored_by="mae",
    )  # fmt: skip
    split = SPLITS.build("ratio", {"train": 0.4, "val": 0.2, "test": 0.4})
    return build_federation(numbers, PARTITIONS.build("uniform"), split, 3, 0)


@cache
def overlapping_federation() -> Federation:
    """Three clients that share nodes of the same model, sparse features."""
    data = DATASETS.build("csbm", {"nodes": 120, "classes": 3, "features": 20, "signal": 2, "homophily": 0.9}).load()
    assert isinstance(data, NodeData)
    sparse = replace(data, feat=torch.relu(data.feat).to_sparse_csr())
    split = SPLITS.build("per-class", {"k": 8, "val": 36, "test": 48})
    return build_federation(sparse, PARTITIONS.build("random-overlap", {"proportions": (0.3, 0.5, 0.6)}), split, 3, 0)


@cache
def graph_federation() -> Federation:
    """Rings and binary trees in three unequal clients, to be clustered."""
    data = rings_and_trees(48)
    parts = np.split(np.arange(48), [12, 30])
    clients = [GraphClient([data.graphs[i] for i in ids], data.label[ids], torch.from_numpy(ids)) for ids in parts]
    return Federation(data, clients, {}, "generated", 0)


@cache
def labelled_graphs() -> Federation:
    """Rings and binary trees in four clients of unequal size and class mixture, to be classified."""
    split = SPLITS.build("ratio", {"train": 0.5, "val": 0.2, "test": 0.3})
    partition = PARTITIONS.build("label-dirichlet", {"alpha": 2, "minimum": 15})
    return build_federation(rings_and_trees(140), partition, split, 4, 3)


@cache
def domains_federation() -> Federation:
    """Three clients of rings and trees; one has fewer features than the others, and tells large rings from small."""
    data = rings_and_trees(80)
    owner = torch.arange(80).clamp(max=69) // 25
    large = torch.tensor([graph.num_nodes() > 15 for graph in data.graphs])
    label = torch.where((owner == 1) & large & (data.label == 1), 2, data.label)
    for graph, own in zip(data.graphs, owner.tolist(), strict=True):
        if own == 1:
            graph.ndata["feat"][:, 4:] = 0
    data = replace(data, label=label, num_classes=3, owner=owner, spaces=((6, 2), (4, 3), (6, 2)))
    split = SPLITS.build("ratio", {"train": 0.4, "val": 0.2, "test": 0.4})
    return build_federation(data, PARTITIONS.build("own"), split, 3, 0)


def rings_and_trees(count: int) -> GraphSetData:
    """`count` graphs of very different sizes, in turn binary trees and rings (the classes), with random shortcuts."""
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
    """(n,) the labels of a client's test nodes, graphs or pairs; (n, T) where these are numbers."""
    if isinstance(client, GraphClient | RowsClient):
        return client.label[client.masks["test"]]
    return client.graph.ndata["label"][client.graph.ndata["test_mask"].bool()]


def real_trial(*, near: bool = False) -> Trial:
    """A real dataset in five clients. near: UserError unless it is in the cache or a mirror; else it is fetched."""
    spec = DATASETS.build(REAL)
    if near:
        obtain(REAL, [route for route in spec.routes if route.kind == "mirror"], spec.fingerprint, spec.unverified)
    split = SPLITS.build("ratio")
    federation = build_federation(spec.load(), PARTITIONS.build("louvain"), split, 5, 0)
    config = TrainConfig(rounds=2, local_epochs=1)
    return Trial(f"{REAL} in 5 clients", federation, (BACKBONES.build("gcn", {"hidden": 16}),), config)
