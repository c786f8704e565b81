"""Small generated federations to try a method on, and short runs on them that write down all that is exchanged."""

from __future__ import annotations

from collections.abc import Iterator
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

Logged = tuple[str, int, torch.Tensor]  # what it is, the client it belongs to (-1: the server), its value


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
    val, none = own.graph.ndata["val_mask"].bool() | train, torch.zeros_like(train)
    return with_client(replace(federation, masks=masks), client, train_mask=none, val_mask=val)


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


@dataclass
class Record:
    """A run: everything uploaded, client by client, every server message, and the models in the end.

    traffic: for each round its phase, and the bytes that each client sent and got. lengths: rounds of each phase.
    """

    uploads: list[Logged] = field(default_factory=list)
    models: list[Logged] = field(default_factory=list)
    messages: list[Download] = field(default_factory=list)
    traffic: list[tuple[str, list[int], list[int]]] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)

    @property
    def values(self) -> list[Logged]:
        return [*self.uploads, *self.models]

    def of(self, clients: set[int]) -> list[Logged]:
        return [logged for logged in self.values if logged[1] in clients]


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
    architecture = method.architecture(trial.backbones)
    config = method.protocol(trial.config)
    exchange = Exchange(method, method.arrange(trial.federation), architecture, config, seed, cohort_size)
    out, answers = Record(), iter(replay.messages) if replay else None
    for p, phase in enumerate(method.phases(config)):
        out.lengths.append(replay.lengths[p] if replay else phase.length(exchange.server))
        for number in range(1, out.lengths[-1] + 1):
            where = f"{phase.name} round {number}"
            steps = [
                _watched(each, f"{where}, step {s}", out, answers, copies) for s, each in enumerate(phase.steps, 1)
            ]
            before = np.array([exchange.upload_bytes, exchange.download_bytes])
            exchange.round(replace(phase, steps=tuple(steps)), number)
            up, down = np.array([exchange.upload_bytes, exchange.download_bytes]) - before
            out.traffic.append((phase.name, up.tolist(), down.tolist()))
    server = {} if replay else method.global_model(exchange.server) or {}
    out.models = [(f"final parameter {name!r}", -1, value.clone()) for name, value in server.items()]
    out.models += _personal_models(exchange)
    for log in (out.uploads, out.models):
        log.sort(key=lambda logged: logged[1])  # by client; stable, so in the order of rounds
    return out


def _watched(step: Step, where: str, out: Record, answers: Iterator[Download] | None, copies: bool) -> Step:
    """The step, writing down what crosses; with the answers of another run in place of the server's own, if given."""

    def client(cohort: Cohort) -> Tree:
        upload = step.client(cohort)
        for position, own in enumerate(cohort.clients):
            out.uploads += [(f"upload {path!r} in {where}", own, value) for path, value in _rows(upload, position)]
        return _copied(upload) if copies else upload

    def server(server: Server, uploads: Tree) -> Download:
        if answers is not None:
            return _copied_message(next(answers))
        message = step.server(server, uploads)
        out.messages.append(_copied_message(message))
        return _copied_message(message) if copies else message

    return replace(step, client=client, server=server)


def _personal_models(exchange: Exchange) -> Iterator[Logged]:
    for cohort, model in zip(exchange.cohorts, exchange.personal_models() or (), strict=False):
        for position, client in enumerate(cohort.clients):
            for name, value in cohort.network.take(model, [position]).items():
                yield f"final parameter {getattr(name, 'name', name)!r}", client, value[0]


def _rows(tree: Tree, position: int, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    """The values of one client in an upload, copied, with their paths."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _rows(value, position, f"{path}{key}.")
        else:
            yield f"{path}{key}", value[position].detach().clone()


def _copied(tree: Any) -> Any:
    return transform(tree, lambda leaf: [v.clone() for v in leaf] if isinstance(leaf, list) else leaf.clone())


def _copied_message(message: Download) -> Download:
    return Each(_copied(message.tree), message.clients) if isinstance(message, Each) else _copied(message)


def perturbed(federation: Federation, client: int) -> Federation:
    """Another graph with other features and labels of the same shapes and masks at one client, or other graphs."""
    rng = np.random.default_rng(1)
    own = federation.clients[client]
    if isinstance(own, GraphClient):
        others = [_path(graph, rng) for graph in own.graphs]
        return _with(federation, client, GraphClient(others, 1 - own.label.clamp(max=1), own.global_id))
    n = own.graph.num_nodes()
    order = torch.from_numpy(rng.permutation(n))
    dense = own.feat.to_dense()[order] + 0.5
    feat = dense.to_sparse_csr() if own.feat.layout == torch.sparse_csr else dense
    graph = dgl.graph(tuple(order[end] for end in own.graph.edges(order="eid")), num_nodes=n)
    label = (own.graph.ndata["label"] + 1) % federation.num_classes
    graph.ndata.update({**own.graph.ndata, "label": label})
    return _with(federation, client, NodeClient(graph, feat))


def _path(graph: dgl.DGLGraph, rng: np.random.Generator) -> dgl.DGLGraph:
    """A path with the graph's nodes, their features shuffled."""
    n = graph.num_nodes()
    path = torch.arange(n - 1)
    out = dgl.graph((torch.cat([path, path + 1]), torch.cat([path + 1, path])), num_nodes=n)
    out.ndata["feat"] = graph.ndata["feat"][torch.from_numpy(rng.permutation(n))]
    return out


def relabelled(federation: Federation) -> Federation:
    """Other labels wherever a client has no business to know them: on all nodes that are not training nodes of its own,
    and on all graphs of a set."""
    whole, classes = federation.whole, federation.num_classes
    shifted = (whole.label + 1) % classes
    if isinstance(whole, GraphSetData):
        sets = [replace(c, label=(c.label + 1) % classes) for c in federation.clients if isinstance(c, GraphClient)]
        return replace(federation, whole=replace(whole, label=shifted), clients=sets)
    known = federation.masks["train"]
    out = replace(federation, whole=replace(whole, label=torch.where(known, whole.label, shifted)))
    for k, own in enumerate(federation.clients):
        assert isinstance(own, NodeClient)
        label, train = own.graph.ndata["label"], own.graph.ndata["train_mask"].bool()
        out = with_client(out, k, label=torch.where(train, label, (label + 1) % classes))
    return out
