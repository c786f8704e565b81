"""MVGRL: its loss and embedding against loops."""

from __future__ import annotations

import math

import dgl
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.backbones import Params
from fglbench.methods.mvgrl import MVGRLFedAvg

from .rounds import Make, close, start_graphs

H, LAYERS, FEATURES, ALPHA = 4, 2, 4, 0.2  # width and depth of `start_graphs`


def operators(graph: dgl.DGLGraph) -> list[torch.Tensor]:
    """Dense (n, n) of one graph: normalised adjacency, PPR diffusion."""
    n = graph.num_nodes()
    looped = torch.eye(n, dtype=torch.float64)
    looped[graph.edges()] = 1
    scale = looped.sum(1) ** -0.5
    walk = scale[:, None] * looped * scale[None, :]
    return [walk.float(), (ALPHA * torch.linalg.inv(torch.eye(n) - (1 - ALPHA) * walk)).float()]


def head(params: Params, part: str, rows: torch.Tensor) -> torch.Tensor:
    h = rows
    for i in range(3):
        h = F.prelu(h @ params[f"{part}.{i}.weight"] + params[f"{part}.{i}.bias"], params[f"{part}.{i}.slope"])
    return h + rows @ params[f"{part}.shortcut.weight"] + params[f"{part}.shortcut.bias"]


def codes(params: Params, graph: dgl.DGLGraph) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """For each view projected node codes (n, h) and graph code (h)."""
    out = []
    for view, operator in zip(("first", "second"), operators(graph), strict=True):
        h, sums = graph.ndata["feat"], []
        for i in range(LAYERS):
            z = operator @ h @ params[f"{view}.{i}.weight"] + params[f"{view}.{i}.bias"]
            h = F.prelu(z, params[f"{view}.{i}.slope"])
            sums.append(h.sum(0))
        out.append((head(params, "node", h), head(params, "graph", torch.cat(sums))))
    return out


def cross(nodes: list[torch.Tensor], graphs: list[torch.Tensor]) -> torch.Tensor:
    """The Jensen-Shannon loss over pairs of one client (node of one view, graph of the other)."""
    n, b = sum(len(rows) for rows in nodes), len(graphs)
    loss = torch.zeros(())
    for home, rows in enumerate(nodes):
        for node in rows:
            for g, graph in enumerate(graphs):
                score = node @ graph
                if g == home:
                    loss = loss - (math.log(2) - F.softplus(-score)) / n
                else:
                    loss = loss + (F.softplus(-score) + score - math.log(2)) / (n * (b - 1))
    return loss


def test_loss_contrasts_nodes_of_one_view_with_graphs_of_the_other(graph_sets: Make) -> None:
    world = graph_sets((5, 3, 4))
    (clients,) = start_graphs(world, "mvgrl-fedavg").simulation.client_batches
    torch.manual_seed(0)
    clients.params = {name: value + 0.1 * torch.randn_like(value) for name, value in clients.params.items()}
    next(iter(clients.steps()))
    for value in clients.params.values():
        value.requires_grad_(True)
    losses = MVGRLFedAvg().batch_loss(clients)
    grads = torch.autograd.grad(losses.sum(), list(clients.params.values()))
    grads = dict(zip(clients.params, grads, strict=True))
    graphs = [graph for client in world.clients for graph in client.graphs]
    place = 0
    for k, count in enumerate(clients.minibatch.counts):
        picks = clients.minibatch.picks[place : place + count]
        place += count
        params = {name: value[k].detach().requires_grad_(True) for name, value in clients.params.items()}
        seen = [codes(params, graphs[i]) for i in picks]
        nodes, graph_codes = ([[views[v][part] for views in seen] for v in (0, 1)] for part in (0, 1))
        expected = cross(nodes[0], graph_codes[1]) + cross(nodes[1], graph_codes[0])
        torch.testing.assert_close(losses[k], expected, rtol=1e-5, atol=1e-6)
        close(grads, dict(zip(params, torch.autograd.grad(expected, list(params.values())), strict=True)), k)


def test_embedding_is_the_sum_of_both_views_graph_codes(graph_sets: Make) -> None:
    world = graph_sets((5, 3, 4))
    (clients,) = start_graphs(world, "mvgrl-fedavg").simulation.client_batches
    batch = clients.stack.batch(clients.held)
    embedding = MVGRLFedAvg().embed(clients.params, clients.network, batch)
    params = {name: value[0] for name, value in clients.params.items()}
    graphs = [graph for client in world.clients for graph in client.graphs]
    expected = [first[1] + second[1] for first, second in (codes(params, graph) for graph in graphs)]
    torch.testing.assert_close(embedding, torch.stack(expected), rtol=1e-5, atol=1e-6)
