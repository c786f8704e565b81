"""Views of a federated dataset: without hidden labels, as public facts, or as one client.

Only the evaluator has the federated dataset itself. A method gets views: hidden labels cannot be reached from them, and
writing into their labels or masks changes no score. Views share features and edges, which are large and not secret.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TypeVar

import dgl
import torch

from ...datasets.federation import Federation, Goal, GraphClient, GraphSetData, NodeClient, NodeData, RowsClient
from .device import on_host
from .payload import detached
from .segment_ops import of_shape, take_rows

D = TypeVar("D", NodeData, GraphSetData)
HIDDEN = -1  # the value of a hidden label; hidden targets are nan
NODE_COLUMNS = ("label", "global_id", "train_mask", "val_mask", "test_mask")


# -- facts -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClientFacts:
    """Sizes of one client. size: number of nodes, graphs or other predicted rows; parts: the same per part of the split
    (empty without a split); degrees: (n,) in-edges per node, empty if nodes are not classified."""

    size: int
    parts: dict[str, int]
    degrees: torch.Tensor


@dataclass(frozen=True)
class Facts:
    """The facts for `Method.skip`: the task, counts and sizes of a federated dataset, without labels and features.

    size: nodes of the whole graph, or graphs of the whole set. domains: clients have their own features and classes.
    overlap: a node belongs to several clients.
    """

    task: Goal
    domains: bool
    num_features: int
    num_classes: int
    size: int
    clients: tuple[ClientFacts, ...]
    overlap: bool = False

    @classmethod
    @on_host()
    def of(cls, federation: Federation) -> Facts:
        """Return the facts of a federated dataset."""
        clients = tuple(map(_client_facts, federation.clients))
        size = len(federation.whole.label)
        held = [client.graph.ndata["global_id"] for client in federation.clients if isinstance(client, NodeClient)]
        overlap = bool(held) and len(torch.unique(torch.cat(held))) < sum(map(len, held))
        return cls(
            federation.task, federation.domains, federation.num_features, federation.num_classes, size, clients, overlap
        )


def _client_facts(client: NodeClient | GraphClient) -> ClientFacts:
    if isinstance(client, GraphClient | RowsClient):
        parts = {part: int(mask.sum()) for part, mask in client.masks.items()}
        return ClientFacts(len(client.label), parts, torch.empty(0, dtype=torch.long))
    masks = {part: client.graph.ndata[f"{part}_mask"] for part in ("train", "val", "test")}
    parts = {part: int(mask.sum()) for part, mask in masks.items()}
    return ClientFacts(client.graph.num_nodes(), parts, client.graph.in_degrees())


# -- labels ----------------------------------------------------------------------------------------------------------


@on_host()
def hide_labels(federation: Federation) -> Federation:
    """Return a copy with HIDDEN for every label except those of a client's own training nodes (or training graphs).

    Sets of graphs that are clustered have no split: all their labels are hidden.
    """
    whole, masks = federation.whole, {part: mask.clone() for part, mask in federation.masks.items()}
    if isinstance(whole, GraphSetData):
        sets = [_hide_in_set(client) for client in federation.clients if isinstance(client, GraphClient)]
        bare = replace(_bare(whole, masks), graphs=[graph.local_var() for graph in whole.graphs])
        return replace(federation, whole=bare, clients=sets, masks=masks)
    rows = [_hide_in_rows(client) for client in federation.clients if isinstance(client, RowsClient)]
    if rows:
        # No edge of the whole graph: those that are predicted may be among them.
        no_edges = dgl.graph(([], []), num_nodes=whole.graph.num_nodes())
        bare_nodes = replace(_bare(whole, {}), graph=no_edges)
        return replace(federation, whole=bare_nodes, clients=rows)
    graph = whole.graph.local_var()
    for name in list(graph.ndata):
        del graph.ndata[name]
    clients = [_hide_in_graph(client) for client in federation.clients if isinstance(client, NodeClient)]
    bare_graph = replace(_bare(whole, masks), graph=graph)
    return replace(federation, whole=bare_graph, clients=clients, masks=masks)


def _bare(whole: D, masks: dict[str, torch.Tensor]) -> D:
    """The whole graph or set with hidden labels and targets."""
    target = None if whole.target is None else _seen(whole.target, masks)
    return replace(whole, label=_seen(whole.label, masks), target=target)


def _seen(label: torch.Tensor, masks: dict[str, torch.Tensor]) -> torch.Tensor:
    """Hide all labels (n,) or targets (n, T) except those of training nodes or graphs; all without a split."""
    hidden = torch.full_like(label, math.nan if label.is_floating_point() else HIDDEN)
    return torch.where(of_shape(masks["train"].bool(), label), label, hidden) if masks else hidden


def _hide_in_graph(client: NodeClient) -> NodeClient:
    graph = _copy(client.graph)
    graph.ndata["label"] = _seen(graph.ndata["label"], {"train": graph.ndata["train_mask"]})
    return NodeClient(graph, client.feat)


def _hide_in_rows(client: RowsClient) -> RowsClient:
    masks = {part: mask.clone() for part, mask in client.masks.items()}
    values = {field.name: getattr(client, field.name) for field in fields(client) if field.name != "feat"}
    copies = {name: value.clone() for name, value in values.items() if isinstance(value, torch.Tensor)}
    copies |= {"label": _seen(client.label, masks)}
    return replace(client, **copies, graph=_copy(client.graph), masks=masks)


def _hide_in_set(client: GraphClient) -> GraphClient:
    graphs = [_copy(graph) for graph in client.graphs]
    masks = {part: mask.clone() for part, mask in client.masks.items()}
    return GraphClient(graphs, _seen(client.label, masks), client.global_id.clone(), masks, client.classes)


def _copy(graph: dgl.DGLGraph) -> dgl.DGLGraph:
    """Return the graph with copied columns. Features are shared, unless they are a view of others' features."""
    graph = graph.local_var()
    for name, column in list(graph.ndata.items()):
        graph.ndata[name] = detached(column) if name == "feat" else column.clone()
    return graph


@on_host()
def unlabelled(client: NodeClient) -> NodeClient:
    """Return a copy without labels, for predictions."""
    graph = client.graph.local_var()
    columns = {name: graph.ndata[name].clone() for name in NODE_COLUMNS}
    for name in list(graph.ndata):
        del graph.ndata[name]
    graph.ndata.update(columns | {"label": torch.full_like(columns["label"], HIDDEN)})
    return NodeClient(graph, client.feat)


# -- one client ------------------------------------------------------------------------------------------------------


@on_host()
def whole_client(federation: Federation) -> NodeClient:
    """The whole graph as one client, with the global masks."""
    data = federation.whole
    assert isinstance(data, NodeData)
    return _client(data.graph, data.feat, data.truth, federation.masks, torch.arange(data.graph.num_nodes()))


@on_host()
def union_client(federation: Federation) -> NodeClient:
    """The union of the clients as one client: their nodes, and the edges with both ends at the same client."""
    data = federation.whole
    assert isinstance(data, NodeData)
    kept = torch.zeros(data.graph.num_edges(), dtype=torch.bool)
    source, target = data.graph.edges(order="eid")
    held = [client.graph.ndata["global_id"] for client in federation.clients if isinstance(client, NodeClient)]
    for nodes in held:
        mine = torch.zeros(data.graph.num_nodes(), dtype=torch.bool)
        mine[nodes] = True
        kept |= mine[source] & mine[target]
    ids = torch.unique(torch.cat(held))
    place = torch.full((data.graph.num_nodes(),), -1)
    place[ids] = torch.arange(len(ids))
    graph = dgl.graph((place[source[kept]], place[target[kept]]), num_nodes=len(ids))
    masks = {part: mask[ids] for part, mask in federation.masks.items()}
    return _client(graph, take_rows(data.feat, ids), data.truth[ids], masks, ids)


@on_host()
def with_edges_between(federation: Federation) -> Federation:
    """Return the federation with each client's edges to the nodes of others (`NodeClient.outside`).

    Edges to nodes without a client are left out. No node may belong to two clients.
    """
    data, clients = federation.whole, [c for c in federation.clients if isinstance(c, NodeClient)]
    assert isinstance(data, NodeData)
    owner, row = torch.full((2, data.graph.num_nodes()), -1)
    for k, client in enumerate(clients):
        ids = client.graph.ndata["global_id"]
        owner[ids], row[ids] = k, torch.arange(len(ids))
    source, target = data.graph.edges(order="eid")
    between = (owner[source] != owner[target]) & (owner[source] >= 0) & (owner[target] >= 0)
    source, target = source[between], target[between]
    extended = []
    for k, client in enumerate(clients):
        entering = owner[target] == k
        extended.append(replace(client, outside=torch.stack([row[target[entering]], source[entering]])))
    return replace(federation, clients=extended)


def _client(
    graph: dgl.DGLGraph, feat: torch.Tensor, label: torch.Tensor, masks: dict[str, torch.Tensor], ids: torch.Tensor
) -> NodeClient:
    graph = graph.local_var()
    graph.ndata["label"], graph.ndata["global_id"] = label, ids
    for part in ("train", "val", "test"):
        graph.ndata[f"{part}_mask"] = masks[part]
    return NodeClient(graph, feat)
