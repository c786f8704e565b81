"""InfoGraph: its loss against loops from the formula, and its identities."""

from __future__ import annotations

import math

import pytest
import torch

from fglbench.benchmark.engine import is_statistic
from fglbench.benchmark.engine.graphs.graphsets import neighbours
from fglbench.methods.infograph import InfoGraphFedAvg, InfoGraphModel
from fglbench.methods.parts.encoders import jensen_shannon, named

from .rounds import Make, final, start_graphs

H, LAYERS, FEATURES = 4, 2, 4  # of `start_graphs`


def slow_jensen_shannon(nodes: torch.Tensor, graphs: torch.Tensor, home: list[int]) -> torch.Tensor:
    """E_neg - E_pos of one client, pair by pair. home: the graph of each node."""
    positive, negative = torch.zeros((), dtype=nodes.dtype), torch.zeros((), dtype=nodes.dtype)
    n, b = len(nodes), len(graphs)
    for i in range(n):
        for g in range(b):
            score = sum(nodes[i, c] * graphs[g, c] for c in range(nodes.shape[1]))
            if home[i] == g:
                positive = positive + (math.log(2) - torch.log(1 + torch.exp(-score))) / n
            else:
                negative = negative + (torch.log(1 + torch.exp(-score)) + score - math.log(2)) / (n * (b - 1))
    return negative - positive


def test_loss_is_the_jensen_shannon_form_client_by_client() -> None:
    torch.manual_seed(0)
    lengths, counts = [torch.tensor(sizes, dtype=torch.long) for sizes in ([2, 3, 1], [], [2, 2], [3])], (3, 0, 2, 1)
    nodes = torch.randn(13, 5, dtype=torch.float64, requires_grad=True)
    graphs = torch.randn(6, 5, dtype=torch.float64, requires_grad=True)
    loss = jensen_shannon(nodes, graphs, lengths, counts)
    expected = torch.stack([
        slow_jensen_shannon(nodes[:6], graphs[:3], [0, 0, 1, 1, 1, 2]),
        torch.zeros((), dtype=torch.float64),
        slow_jensen_shannon(nodes[6:10], graphs[3:5], [0, 0, 1, 1]),
        slow_jensen_shannon(nodes[10:], graphs[5:], [0, 0, 0]),
    ])  # fmt: skip
    torch.testing.assert_close(loss, expected)
    pull = torch.randn(4, dtype=torch.float64)
    for a, b in zip(
        torch.autograd.grad((loss * pull).sum(), (nodes, graphs)),
        torch.autograd.grad((expected * pull).sum(), (nodes, graphs)),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


def test_batch_loss_scores_discriminated_node_codes_against_graph_codes(graph_sets: Make) -> None:
    (clients,) = start_graphs(graph_sets(), "infograph-fedavg").simulation.client_batches
    next(iter(clients.steps()))
    method, batch = InfoGraphFedAvg(), clients.minibatch
    losses = method.batch_loss(clients)
    model = InfoGraphModel(hidden=H, layers=LAYERS)
    codes = model.gin.encode(named(clients.params, "encoder"), batch, neighbours)

    def discriminate(part: str, rows: torch.Tensor, k: int) -> torch.Tensor:
        params = {name: value[k] for name, value in named(clients.params, part).items()}
        h = rows
        for i in range(3):
            h = torch.relu(h @ params[f"{i}.weight"] + params[f"{i}.bias"])
        return h + rows @ params["shortcut.weight"] + params["shortcut.bias"]

    pairs = zip(codes.nodes.split(batch.sizes), codes.graphs.split(batch.counts), strict=True)
    for k, (nodes, graphs) in enumerate(pairs):
        home = [g for g, n in enumerate(batch.lengths_per_client[k]) for _ in range(n)]
        expected = slow_jensen_shannon(discriminate("local", nodes, k), discriminate("global", graphs, k), home)
        torch.testing.assert_close(losses[k], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("family", ["infograph", "mvgrl"])
def test_fedprox_without_its_term_is_fedavg_and_with_it_is_not(family: str, graph_sets: Make) -> None:
    world = graph_sets()
    plain = final(world, f"{family}-fedavg")
    for mu, same in ((0.0, True), (10.0, False)):
        near = final(world, f"{family}-fedprox", {"mu": mu})
        assert all(torch.equal(plain[name], near[name]) for name in plain) is same


def test_the_proximal_term_leaves_running_statistics_alone(graph_sets: Make) -> None:
    (clients,) = start_graphs(graph_sets(), "infograph-fedprox").simulation.client_batches
    other = {name: value + 2 for name, value in clients.params.items()}
    trained = sum(value[0].numel() for name, value in clients.params.items() if not is_statistic(name))
    torch.testing.assert_close(clients.sq_distance(other), torch.full((3,), 4.0 * trained))
