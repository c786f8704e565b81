"""Graphs beside the clients' own: the whole one, and the union of what the clients hold."""

from __future__ import annotations

import dgl
import torch

from ...datasets.federation import Federation, NodeClient, NodeData
from .device import on_host
from .ops import take_rows


@on_host()
def whole_client(federation: Federation) -> NodeClient:
    """The uncut graph as one client, with the global masks."""
    data = federation.whole
    assert isinstance(data, NodeData)
    return _client(data.graph, data.feat, data.label, federation.masks, torch.arange(data.graph.num_nodes()))


@on_host()
def union_client(federation: Federation) -> NodeClient:
    """What the clients hold together, as one client: their nodes, and the edges both ends of which one client holds."""
    data = federation.whole
    assert isinstance(data, NodeData)
    kept = torch.zeros(data.graph.num_edges(), dtype=torch.bool)
    source, target = data.graph.edges(order="eid")
    held = [client.graph.ndata["global_id"] for client in federation.clients if isinstance(client, NodeClient)]
    for own in held:
        mine = torch.zeros(data.graph.num_nodes(), dtype=torch.bool)
        mine[own] = True
        kept |= mine[source] & mine[target]
    ids = torch.unique(torch.cat(held))
    place = torch.full((data.graph.num_nodes(),), -1)
    place[ids] = torch.arange(len(ids))
    graph = dgl.graph((place[source[kept]], place[target[kept]]), num_nodes=len(ids))
    masks = {part: mask[ids] for part, mask in federation.masks.items()}
    return _client(graph, take_rows(data.feat, ids), data.label[ids], masks, ids)


def _client(
    graph: dgl.DGLGraph, feat: torch.Tensor, label: torch.Tensor, masks: dict[str, torch.Tensor], ids: torch.Tensor
) -> NodeClient:
    graph = graph.local_var()
    graph.ndata["label"], graph.ndata["global_id"] = label, ids
    for part in ("train", "val", "test"):
        graph.ndata[f"{part}_mask"] = masks[part]
    return NodeClient(graph, feat)
