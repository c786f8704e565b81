"""What a method may see of a federation: the labels of training nodes and no others.

The evaluator scores on the federation itself. Methods get copies: no object that is handed to one leads to a label that
it may not see, and what it writes into labels, masks or numbers of nodes reaches no score. Features and edges are large
and no secret, so these are shared.
"""

from __future__ import annotations

from dataclasses import replace

import dgl
import torch

from ...datasets.federation import Federation, GraphClient, GraphSetData, NodeClient
from .device import on_host
from .messages import detached

HIDDEN = -1  # stands for a label that may not be seen


@on_host()
def blind(federation: Federation, *, training: bool = True) -> Federation:
    """The federation with HIDDEN for every label but a client's own training nodes', or for all of them.

    Of a set of graphs that are clustered all labels are hidden: its methods learn without.
    """
    whole, masks = federation.whole, {part: mask.clone() for part, mask in federation.masks.items()}
    if isinstance(whole, GraphSetData):
        label = _seen_of(whole.label, masks, training)
        sets = [_blinded_set(client, training) for client in federation.clients if isinstance(client, GraphClient)]
        bare = replace(whole, graphs=[graph.local_var() for graph in whole.graphs], label=label)
        return replace(federation, whole=bare, clients=sets, masks=masks)
    graph = whole.graph.local_var()
    for name in list(graph.ndata):
        del graph.ndata[name]
    label = _seen(whole.label, masks["train"] & training)
    clients = [_blinded(client, training) for client in federation.clients if isinstance(client, NodeClient)]
    return replace(federation, whole=replace(whole, graph=graph, label=label), clients=clients, masks=masks)


def _seen(label: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return torch.where(mask, label, HIDDEN)


def _blinded(client: NodeClient, training: bool) -> NodeClient:
    graph = _copy(client.graph)
    graph.ndata["label"] = _seen(graph.ndata["label"], graph.ndata["train_mask"].bool() & training)
    return NodeClient(graph, client.feat)


def _seen_of(label: torch.Tensor, masks: dict[str, torch.Tensor], training: bool) -> torch.Tensor:
    """Labels of graphs that may be seen: none without a split."""
    return _seen(label, masks["train"] & training) if masks else torch.full_like(label, HIDDEN)


def _blinded_set(client: GraphClient, training: bool) -> GraphClient:
    graphs = [_copy(graph) for graph in client.graphs]
    masks = {part: mask.clone() for part, mask in client.masks.items()}
    return GraphClient(graphs, _seen_of(client.label, masks, training), client.global_id.clone(), masks, client.classes)


def _copy(graph: dgl.DGLGraph) -> dgl.DGLGraph:
    """The graph with columns of its own; features may be shared, but lead to no other graph's."""
    graph = graph.local_var()
    for name, column in list(graph.ndata.items()):
        graph.ndata[name] = detached(column) if name == "feat" else column.clone()
    return graph
