"""Each method on degenerate clients: it trains to finite numbers or gives the reason for skipping.

Nodes: one node, no edge, one class, no training node in a round, features of zero, nodes without a label.
Graph sets: one graph, graphs of one node, no training graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fglbench.benchmark.engine import Skip, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.train import train
from fglbench.datasets import PARTITIONS, SPLITS, build_federation
from fglbench.datasets.content import undirected
from fglbench.datasets.federation import Federation, GraphSetData, NodeData
from fglbench.datasets.spec import bidirected
from fglbench.methods import METHODS
from fglbench.methods.adafgl import signed_propagation
from fglbench.methods.fedtgp import PrototypeNet

from ..sampled import sampled_pairs

CLASSES, FEATURES = 3, 6
SHORT: dict[str, dict[str, Any]] = {
    "fedsage+": {"generator_epochs": 2, "exchange_epochs": 1, "latent": 4, "generator_hidden": 8},
    "gcfl": {"warm_up": 0},
    "gcfl+": {"warm_up": 0, "length": 2},
    "adafgl": {"extractor_rounds": 1},
    "fedtgp": {"server_epochs": 3},
    "o-pfgl": {"condense_steps": 60},
}
RATE = {"scaffold": {"lr": 0.05}, "scaffold-mlp": {"lr": 0.05}}
CONFIG: dict[str, Any] = {"rounds": 2, "local_epochs": 2, "optimiser": "adam", "lr": 0.01}


def nodes(
    sizes: tuple[int, ...],
    edges: Callable[[int, int], bool] = lambda u, v: (u * 7 + v * 5) % 3 == 0,
    without_train: tuple[int, ...] = (),
    label: Callable[[int, int], int] = lambda node, client: node % CLASSES,
    without_features: tuple[int, ...] = (),
) -> Federation:
    """Clients of the given sizes. edges(u, v): is there an edge, u < v. label(node, client): its class."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    n = len(owner)
    pairs = [(u, v) for u in range(n) for v in range(u + 1, n) if owner[u] == owner[v] and edges(u, v)]
    labels = np.array([label(node, int(owner[node])) for node in range(n)])
    feat = rng.normal(size=(n, FEATURES)).astype(np.float32)
    feat[np.isin(owner, without_features)] = 0
    role = np.where(np.isin(owner, without_train), 2, np.arange(n) % 3)
    role[labels < 0] = -1
    split = {
        part: torch.from_numpy(np.flatnonzero(role == number)) for number, part in enumerate(("train", "val", "test"))
    }
    graph = bidirected(undirected(np.array(pairs).reshape(-1, 2), n), n)
    data = NodeData(
        "edge", graph, torch.from_numpy(feat), torch.from_numpy(labels), CLASSES, "x", "generated", split, True,
        owner=torch.from_numpy(owner),
    )  # fmt: skip
    return build_federation(data, PARTITIONS.build("own"), SPLITS.build("fixed"), len(sizes), 0)


def graphs(counts: tuple[int, ...], of: Callable[[int], int], clustered: bool = False) -> Federation:
    """Clients with these numbers of graphs; graph i is a path of `of(i)` nodes."""
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(len(counts)), counts)
    paths = []
    for i in range(len(owner)):
        n = of(i)
        graph = bidirected(np.stack([np.arange(n - 1), np.arange(1, n)], 1), n)
        graph.ndata["feat"] = torch.from_numpy(rng.normal(size=(n, FEATURES)).astype(np.float32))
        paths.append(graph)
    label = torch.arange(len(owner)) % 2
    data = GraphSetData("edge", paths, label, 2, "x", "generated", owner=torch.from_numpy(owner))
    split = SPLITS.build("none") if clustered else SPLITS.build("ratio", {"train": 0.5, "val": 0.25, "test": 0.25})
    return build_federation(data, PARTITIONS.build("own"), split, len(counts), 0)


def links(sizes: tuple[int, ...], edges: list[tuple[int, int]]) -> Federation:
    """Link prediction on clients of these sizes. edges: pairs u < v."""
    base = nodes(sizes, edges=lambda u, v: (u, v) in edges).whole
    shares = {"train": 0.4, "val": 0.3, "test": 0.3}
    return build_federation(base, PARTITIONS.build("own"), SPLITS.build("links", shares), len(sizes), 0)


def ring(first: int, n: int) -> list[tuple[int, int]]:
    return [(first + i, first + (i + 1) % n) if i + 1 < n else (first, first + i) for i in range(n)]


FEDERATIONS: dict[str, Callable[[], Federation]] = {
    "one and two nodes": lambda: nodes((1, 1, 2, 9)),
    "one node that trains": lambda: nodes((3, 1, 9), without_train=(2,)),
    "no edges": lambda: nodes((6, 7, 8), edges=lambda u, v: False),
    "one class per client": lambda: nodes((6, 7, 8), label=lambda node, client: client),
    "features of zero, no edges": lambda: nodes((6, 7, 8), edges=lambda u, v: u >= 13, without_features=(0,)),
    "one client": lambda: nodes((12,)),
    "nodes without a label": lambda: nodes((6, 7, 8), label=lambda node, client: -1 if client == 0 else node % CLASSES),
    "one that trains": lambda: nodes((9, 6, 5, 7), without_train=(1, 2, 3)),
    "links, one node": lambda: links((1, 8, 9), [*ring(1, 8), *ring(9, 9)]),
    "links, no edges": lambda: links((5, 8), ring(5, 8)),
    "links, one edge": lambda: links((2, 8), [(0, 1), *ring(2, 8)]),
    "links, every edge": lambda: links((4, 8), [*((u, v) for u in range(4) for v in range(u + 1, 4)), *ring(4, 8)]),
    "graphs of one node": lambda: graphs((6, 8, 7), lambda i: 1),
    "one graph": lambda: graphs((1, 8, 7), lambda i: 3 + i % 4),
    "clustering, one graph": lambda: graphs((1, 8, 7), lambda i: 3 + i % 4, clustered=True),
    "clustering, graphs of one node": lambda: graphs((4, 5, 6), lambda i: 1, clustered=True),
}


@pytest.mark.parametrize(("name", "case"), sampled_pairs(METHODS.names(), FEDERATIONS, 3))
def test_a_method_trains_on_degenerate_clients(name: str, case: str) -> None:
    federation = FEDERATIONS[case]()
    backbone = BACKBONES.build("gcn" if isinstance(federation.whole, NodeData) else "gin", {"hidden": 8})
    extra = {} if isinstance(federation.whole, NodeData) else {"batch_size": 4}
    for changes in ({}, {"participation": 0.3, "rounds": 4}):
        config = TrainConfig(**{**CONFIG, **extra, **RATE.get(name, {}), **changes})
        with suppress(Skip):
            outcome = train(federation, METHODS.build(name, SHORT.get(name, {})), [backbone], config, 0)
            scores = [outcome.score, *outcome.history["score"]]
            assert all(math.isfinite(score) for score in scores if score is not None), changes
            assert outcome.score is not None


def test_adafgl_keeps_scores_of_an_isolated_node() -> None:
    """Both matrices are zero for one node, so its scores stay."""
    h, slope = torch.tensor([[0.5, -1.0, 2.0]]), torch.tensor([0.25])
    alone = signed_propagation(h, slope, torch.zeros(1, 1), 0.5)
    positive, negative = h, -slope * h
    torch.testing.assert_close(alone, (positive.softmax(1) - negative.softmax(1) + h) / 2)


def test_fedtgp_keeps_its_prototypes_without_an_upload() -> None:
    server = SimpleNamespace(state={"net": PrototypeNet.fresh(np.random.default_rng(0), 3, 4)}, classes=3)
    before = server.state["net"].forward()[1].copy()
    empty = {"prototypes": [torch.empty(0, 4)], "classes": [torch.empty(0, dtype=torch.int64)]}
    kept = METHODS.build("fedtgp").server(server, empty)["prototypes"]
    np.testing.assert_array_equal(kept.numpy(), before)
