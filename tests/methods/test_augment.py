"""Graph augmentation: what goes, what stays, and whose numbers decide."""

from __future__ import annotations

from collections.abc import Callable

import dgl
import pytest
import torch

from fglbench.benchmark.engine.batch import Batch, collate
from fglbench.benchmark.engine.rng import Streams
from fglbench.datasets.federation import Federation
from fglbench.methods.parts.contrast import augment

Make = Callable[..., Federation]


def edges(batch: Batch) -> set[tuple[int, int]]:
    source, target = batch.graph.edges()
    return set(zip(source.tolist(), target.tolist(), strict=True))


def fresh(clients: tuple[int, ...], seed: int = 0) -> Streams:
    return Streams(seed, clients, {})


@pytest.mark.parametrize("sparse", [True, False])
def test_edges_go_in_pairs_and_columns_client_by_client(federation: Make, sparse: bool) -> None:
    batch = collate(federation((30, 20, 25), sparse=sparse).clients)
    seen = augment(batch, fresh((0, 1, 2)), "weak", 0.4, 0.5)
    kept, whole = edges(seen), edges(batch)
    assert kept < whole and len(kept) > 0
    assert {(v, u) for u, v in kept} == kept  # the input is symmetric, so the view is
    before, after = batch.x.dense(), seen.x.dense()
    dropped = []
    for x, y in zip(before.split(batch.sizes), after.split(batch.sizes), strict=True):
        columns = [bool((y[:, j] == 0).all()) for j in range(x.shape[1])]
        for j, gone in enumerate(columns):
            torch.testing.assert_close(y[:, j], torch.zeros_like(x[:, j]) if gone else x[:, j], rtol=0, atol=0)
        dropped.append(columns)
    assert dropped[0] != dropped[1] or dropped[1] != dropped[2]  # each client has its own
    assert edges(batch) == whole and torch.equal(batch.x.dense(), before)  # the original is untouched


def test_rates_are_kept(federation: Make) -> None:
    batch = collate(federation((120, 90), features=40).clients)
    streams, rounds = fresh((0, 1)), 200
    pairs, width = len(edges(batch)) // 2, 2 * 40
    gone = [0, 0]
    for _ in range(rounds):
        seen = augment(batch, streams, "strong", 0.8, 0.3)
        gone[0] += pairs - len(edges(seen)) // 2
        gone[1] += sum(int((x == 0).all(0).sum()) for x in seen.x.dense().split(batch.sizes))
    for count, total, p in zip(gone, (pairs, width), (0.8, 0.3), strict=True):
        assert abs(count / (rounds * total) - p) < 4 * (p * (1 - p) / (rounds * total)) ** 0.5  # four standard errors


def test_a_client_alone_sees_the_same_view(federation: Make) -> None:
    clients = federation((13, 7, 10)).clients
    together, alone = fresh((0, 1, 2)), fresh((1,))
    for _ in range(3):
        among = augment(collate(clients), together, "weak", 0.5, 0.5)
        own = augment(collate(clients[1:2]), alone, "weak", 0.5, 0.5)
        inside = {(u - 13, v - 13) for u, v in edges(among) if 13 <= u < 20}
        assert edges(own) == inside
        assert torch.equal(own.x.dense(), among.x.dense()[13:20])


def test_purposes_are_independent_and_zero_rates_change_nothing(federation: Make) -> None:
    batch = collate(federation((40, 30)).clients)
    one, two = (augment(batch, fresh((0, 1)), purpose, 0.5, 0.5) for purpose in ("local", "global"))
    assert edges(one) != edges(two) and not torch.equal(one.x.dense(), two.x.dense())
    same = augment(batch, fresh((0, 1)), "local", 0.0, 0.0)
    assert same.graph is batch.graph and same.x is batch.x


def test_a_graph_without_edges(federation: Make) -> None:
    batch = collate(federation((3, 2)).clients)
    lonely = batch.replace(graph=dgl.graph(([], []), num_nodes=5))
    assert augment(lonely, fresh((0, 1)), "weak", 0.5, 0.5).graph.num_edges() == 0
