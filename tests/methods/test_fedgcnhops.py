"""FedGCN of Yao et al. against loops over the whole graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.batch import collate
from fglbench.benchmark.engine.views import Facts, whole_client, with_edges_between
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS

from .rounds import PLAIN, Make, close, start, stepped, tracked

SIZES = (13, 7, 10)
SGD = PLAIN | {"lr": 0.2}


def neighbours(world: Federation) -> list[set[int]]:
    """The neighbours of each node of the whole graph, and the node."""
    near = [{v} for v in range(len(world.whole.label))]
    for u, v in zip(*(ends.tolist() for ends in world.whole.graph.edges()), strict=True):
        near[v].add(u)
    return near


def slow_logits(w: dict[str, torch.Tensor], world: Federation, k: int, hops: int, layers: int) -> torch.Tensor:
    """The nodes of client k, sum by sum, from features of all clients."""
    near, x = neighbours(world), world.whole.feat.to_dense()
    mine = world.clients[k].graph.ndata["global_id"].tolist()
    seen = set(mine) | ({u for v in mine for u in near[v]} if hops == 2 else set())

    def mixed(v: int, rows: Any, known: set[int]) -> torch.Tensor:
        return sum(rows[u] / (len(near[u]) * len(near[v])) ** 0.5 for u in sorted(near[v] & known))

    everyone = set(range(len(near)))
    h = {v: mixed(v, x, everyone) @ w["0.weight"] + w["0.bias"] for v in seen}
    for i in range(1, layers):
        rows = {v: torch.relu(row) for v, row in h.items()}
        known = seen if i == 1 else set(mine)
        h = {v: mixed(v, rows, known) @ w[f"{i}.weight"] + w[f"{i}.bias"] for v in mine}
    return torch.stack([h[v] for v in mine])


@pytest.mark.parametrize(("hops", "layers", "sparse"), [(1, 2, True), (2, 2, False), (2, 3, True)])
def test_rounds_equal_loops_over_nodes(hops: int, layers: int, sparse: bool, federation: Make) -> None:
    world = federation(SIZES, sparse=sparse)
    options = {**SGD, "backbone": {"dropout": 0.0, "layers": layers}}
    run = start(world, "fedgcn-hops", {"hops": hops}, **options)
    model = {n: v.clone() for n, v in run.simulation.server.initial_model().items()}
    for number in (1, 2):
        uploads, trained = run.round(number)["model"], []
        for k, client in enumerate(world.clients):
            w, train = dict(model), client.graph.ndata["train_mask"]
            for _ in range(2):
                w = tracked(w)
                logits = slow_logits(w, world, k, hops, layers)[train]
                w = stepped(w, F.cross_entropy(logits, client.graph.ndata["label"][train]), 0.2)
            trained.append(w)
            close(uploads, w, k)
        model = {n: sum(s / sum(SIZES) * m[n] for s, m in zip(SIZES, trained, strict=True)) for n in model}
    (clients,) = run.simulation.client_batches
    scores = run.method.predict_own(run.simulation.models().expanded(3), clients)
    expected = torch.cat([slow_logits(model, world, k, hops, layers) for k in range(3)])
    torch.testing.assert_close(scores, expected, rtol=1e-4, atol=1e-5)


def test_with_two_hops_clients_predict_as_on_the_whole_graph(federation: Make) -> None:
    world = federation(SIZES)
    run = start(world, "fedgcn-hops", **SGD)
    run.round(1)
    (clients,), shown = run.simulation.client_batches, run.simulation.models()
    on_own = run.method.predict_own(shown.expanded(3), clients)
    on_whole = run.method.predict(shown.expanded(1), clients.network.select([0]), (collate([whole_client(world)]),))
    ids = torch.cat([client.graph.ndata["global_id"] for client in world.clients])
    torch.testing.assert_close(on_own, on_whole[ids], rtol=1e-4, atol=1e-5)


def test_only_methods_that_ask_get_edges_between_clients(federation: Make) -> None:
    world, known_edges = federation(SIZES), set()
    owner = torch.repeat_interleave(torch.arange(3), torch.tensor(SIZES)).tolist()
    for client in with_edges_between(world).clients:
        ids = client.graph.ndata["global_id"]
        known_edges |= {
            (u, v) for u, v in zip(client.outside[1].tolist(), ids[client.outside[0]].tolist(), strict=True)
        }
    edges = zip(*(ends.tolist() for ends in world.whole.graph.edges()), strict=True)
    assert known_edges == {(u, v) for u, v in edges if owner[u] != owner[v]}
    assert known_edges
    for clients in start(world, "fedavg", kinds=["gcn"]).simulation.client_batches:
        assert all(member.outside is None for member in clients.members)


def test_overlapping_clients_are_skipped(federation: Make) -> None:
    world = federation(SIZES)
    doubled = Federation(world.whole, [*world.clients, world.clients[0]], world.masks, "toy", 0)
    method = METHODS.build("fedgcn-hops")
    assert method.skip(Facts.of(world), [object()]) is None
    assert "belongs to several" in str(method.skip(Facts.of(doubled), [object()]))
