"""Small generated federations to try a method on, and short runs on them that write down all that is exchanged."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import dgl
import numpy as np
import torch
import torch.nn.functional as F

from ...datasets import DATASETS, PARTITIONS, SPLITS, build_federation
from ...datasets.federation import Federation, GraphClient, GraphSetData, NodeClient, NodeData
from ..engine import Method, Server, Step, TrainConfig
from ..engine.backbones import BACKBONES, Backbone
from ..engine.cohort import Cohort
from ..engine.exchange import Exchange
from ..engine.messages import Download, Each, Tree, transform

Entry = tuple[str, int, torch.Tensor]  # what it is, the client it belongs to (-1: the server), its value


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
    mixed = tuple(BACKBONES.build(name, {"hidden": 8}) for name in ("gcn", "gat", "sage"))
    # Momentum instead of Adam, whose first steps turn the rounding of a gradient near 0 into whole steps; papers' rate.
    sets = TrainConfig(rounds=2, local_epochs=2, batch_size=8, optimiser="sgd", momentum=0.9, lr=1e-3)
    return (
        Trial("one architecture", _without_training(node_federation(), 2), gcn, TrainConfig(rounds=3, local_epochs=2)),
        Trial("several architectures", node_federation(), mixed),
        Trial("overlapping clients", overlapping_federation(), gcn),
        Trial("sets of graphs", graph_federation(), gcn, sets),
    )


@cache
def node_federation() -> Federation:
    """An easy stochastic block model in four clients of unequal size and class mixture, dense features."""
    data = DATASETS.build("csbm", {"nodes": 180, "classes": 3, "features": 20, "signal": 2, "homophily": 0.9}).load()
    split = SPLITS.build("ratio", {"train": 0.3, "val": 0.3, "test": 0.4})
    return build_federation(data, PARTITIONS.build("label-dirichlet", {"alpha": 2, "minimum": 15}), split, 4, 2)


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
    """Rings and binary trees of very different sizes, with random shortcuts, in three unequal clients."""
    rng = np.random.default_rng(0)
    graphs, label = [], []
    for i in range(48):
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
    data = GraphSetData("rings and trees", graphs, torch.tensor(label), 2, "generated", "generated", synthetic=True)
    parts = np.split(np.arange(48), [12, 30])
    clients = [GraphClient([graphs[i] for i in ids], data.label[ids], torch.from_numpy(ids)) for ids in parts]
    return Federation(data, clients, {}, "generated", 0)


def _without_training(federation: Federation, client: int) -> Federation:
    """The training nodes of one client become validation nodes."""
    own = federation.clients[client]
    assert isinstance(own, NodeClient)
    ids, train = own.graph.ndata["global_id"], own.graph.ndata["train_mask"].bool()
    masks = {part: mask.clone() for part, mask in federation.masks.items()}
    masks["train"][ids[train]], masks["val"][ids[train]] = False, True
    return with_client(
        replace(federation, masks=masks), client, train_mask=torch.zeros_like(train),
        val_mask=own.graph.ndata["val_mask"].bool() | train,
    )  # fmt: skip


def with_client(federation: Federation, client: int, **columns: torch.Tensor) -> Federation:
    """The federation with other node data, features ("feat") included, at one client."""
    clients: list[Any] = list(federation.clients)
    own = clients[client]
    graph = own.graph.local_var()
    feat = columns.pop("feat", own.feat)
    for name, value in columns.items():
        graph.ndata[name] = value
    clients[client] = NodeClient(graph, feat)
    return replace(federation, clients=clients)


@dataclass
class Record:
    """A run: everything uploaded, client by client, every server message, and the models in the end.

    traffic: for each round its phase, and the bytes that each client sent and got. lengths: rounds of each phase.
    """

    uploads: list[Entry] = field(default_factory=list)
    models: list[Entry] = field(default_factory=list)
    messages: list[Download] = field(default_factory=list)
    traffic: list[tuple[str, list[int], list[int]]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)


def record(
    method: Method,
    trial: Trial,
    *,
    seed: int = 0,
    cohort_size: int | None = None,
    copies: bool = False,
    replay: Record | None = None,
) -> Record:
    """Run a method and write down what crosses.

    copies: hand over copies of all messages, as a network would. replay: the clients get the messages of that run,
    whatever they upload; the server does nothing, and its model is not recorded.
    """
    config = method.protocol(trial.config)
    exchange = Exchange(
        method, method.arrange(trial.federation), method.architecture(trial.backbones), config, seed, cohort_size
    )
    out = Record()
    answers = iter(replay.messages if replay else ())

    def watched(step: Step, where: str) -> Step:
        def client(cohort: Cohort) -> Tree:
            upload = step.client(cohort)
            for position, own in enumerate(cohort.clients):
                out.uploads += [(f"upload {path!r} in {where}", own, value) for path, value in _rows(upload, position)]
            return _copied(upload) if copies else upload

        def server(server: Server, uploads: Tree) -> Download:
            if replay:
                return _copied_message(next(answers))
            message = step.server(server, uploads)
            out.messages.append(_copied_message(message))
            return _copied_message(message) if copies else message

        return replace(step, client=client, server=server)

    for p, phase in enumerate(method.phases(config)):
        out.lengths.append(replay.lengths[p] if replay else phase.length(exchange.server))
        for number in range(1, out.lengths[-1] + 1):
            where = f"{phase.name} round {number}"
            steps = [watched(step, f"{where}, step {s}") for s, step in enumerate(phase.steps, 1)]
            up, down = list(exchange.upload_bytes), list(exchange.download_bytes)
            exchange.round(replace(phase, steps=tuple(steps)), number)
            out.traffic.append((
                phase.name,
                [after - before for after, before in zip(exchange.upload_bytes, up, strict=True)],
                [after - before for after, before in zip(exchange.download_bytes, down, strict=True)],
            ))  # fmt: skip
    out.uploads.sort(key=lambda entry: entry[1])  # by client; stable, so in the order of rounds
    server = {} if replay else method.global_model(exchange.server) or {}
    out.models = [(f"final parameter {name!r}", -1, value.clone()) for name, value in server.items()]
    for cohort, model in zip(exchange.cohorts, exchange.personal_models() or (), strict=False):
        for position, client in enumerate(cohort.clients):
            own = cohort.network.take(model, [position])
            out.models += [
                (f"final parameter {name.split(':')[-1]!r}", client, value[0]) for name, value in own.items()
            ]
    out.models.sort(key=lambda entry: entry[1])
    return out


def _rows(tree: Tree, position: int, path: str = "") -> list[tuple[str, torch.Tensor]]:
    """The values of one client in an upload, copied, with their paths."""
    found: list[tuple[str, torch.Tensor]] = []
    for key, value in tree.items():
        if isinstance(value, dict):
            found += _rows(value, position, f"{path}{key}.")
        else:
            found.append((f"{path}{key}", value[position].detach().clone()))
    return found


def _copied(tree: Any) -> Any:
    return transform(tree, lambda leaf: [v.clone() for v in leaf] if isinstance(leaf, list) else leaf.clone())


def _copied_message(message: Download) -> Download:
    return Each(_copied(message.tree), message.clients) if isinstance(message, Each) else _copied(message)


def perturbed(federation: Federation, client: int) -> Federation:
    """Another graph with other features and labels of the same shapes and masks at one client, or other graphs."""
    rng = np.random.default_rng(1)
    own = federation.clients[client]
    if isinstance(own, GraphClient):
        clients: list[Any] = list(federation.clients)
        other = []
        for graph in own.graphs:
            n = graph.num_nodes()
            path = torch.arange(n - 1)
            moved = dgl.graph((torch.cat([path, path + 1]), torch.cat([path + 1, path])), num_nodes=n)
            moved.ndata["feat"] = graph.ndata["feat"][torch.from_numpy(rng.permutation(n))]
            other.append(moved)
        clients[client] = GraphClient(other, 1 - own.label.clamp(max=1), own.global_id)
        return replace(federation, clients=clients)
    n = own.graph.num_nodes()
    order = torch.from_numpy(rng.permutation(n))
    dense = own.feat.to_dense()[order] + 0.5
    feat = dense.to_sparse_csr() if own.feat.layout == torch.sparse_csr else dense
    graph = dgl.graph(tuple(order[end] for end in own.graph.edges(order="eid")), num_nodes=n)
    for name, value in own.graph.ndata.items():
        graph.ndata[name] = value
    graph.ndata["label"] = (own.graph.ndata["label"] + 1) % federation.num_classes
    moved_clients: list[Any] = list(federation.clients)
    moved_clients[client] = NodeClient(graph, feat)
    return replace(federation, clients=moved_clients)


def relabelled(federation: Federation) -> Federation:
    """Other labels wherever a client has no business to know them: on all nodes that are not training nodes of its own,
    and on all graphs of a set."""
    whole, classes = federation.whole, federation.num_classes
    shifted = (whole.label + 1) % classes
    if isinstance(whole, GraphSetData):
        sets = [
            GraphClient(c.graphs, (c.label + 1) % classes, c.global_id)
            for c in federation.clients
            if isinstance(c, GraphClient)
        ]
        return replace(federation, whole=replace(whole, label=shifted), clients=sets)
    known = federation.masks["train"]
    out = replace(federation, whole=replace(whole, label=torch.where(known, whole.label, shifted)))
    for k, own in enumerate(federation.clients):
        assert isinstance(own, NodeClient)
        label, train = own.graph.ndata["label"], own.graph.ndata["train_mask"].bool()
        out = with_client(out, k, label=torch.where(train, label, (label + 1) % classes))
    return out
