"""Graph sets: batches against `dgl.batch`, minibatches, and common properties of their methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
import dgl.nn
import numpy as np
import pytest
import torch

from fglbench.benchmark.engine import Diverged, Facts, Skip, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.graphs import clustering
from fglbench.benchmark.engine.graphs.clustering import GraphClientBatch
from fglbench.benchmark.engine.graphs.graphsets import GraphStack, neighbours, normalised
from fglbench.benchmark.engine.rng import stream
from fglbench.benchmark.engine.sampled_batch import cut
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.benchmark.engine.train import train
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS

Make = Callable[..., Federation]
GIN = BACKBONES.build("gin", {"hidden": 4, "layers": 2})
PICKS = [np.array([4, 1]), np.array([], np.int64), np.array([7, 6, 5])]


def simulation(
    world: Federation, name: str, clients_per_batch: int | None = None, seed: int = 5, **config: Any
) -> Simulation:
    method = METHODS.build(name)
    settings = method.protocol(TrainConfig(**{"local_epochs": 2, "batch_size": 3, "lr": 0.01, **config}))
    return Simulation(method, method.arrange(world), method.architecture([GIN]), settings, seed, clients_per_batch)


def run(world: Federation, name: str, rounds: int = 3, **kwargs: Any) -> Simulation:
    running = simulation(world, name, **kwargs)
    phase = running.method.phases(running.config)[0]
    for number in range(1, rounds + 1):
        running.round(phase, number)
    return running


def cohort_of(world: Federation, name: str = "intra-fedavg", **kwargs: Any) -> GraphClientBatch:
    return simulation(world, name, **kwargs).client_batches[0]


# -- batches ----------------------------------------------------------------------------------------------------------


def test_a_batch_equals_dgl_batch(graph_sets: Make) -> None:
    graphs = graph_sets((5, 3, 4)).whole.graphs
    batch = GraphStack(graphs).batch(PICKS)
    expected = dgl.batch([graphs[i] for i in np.concatenate(PICKS)])
    assert torch.equal(batch.x, expected.ndata["feat"])
    assert batch.lengths.tolist() == expected.batch_num_nodes().tolist()
    assert batch.counts == (2, 0, 3)
    assert batch.sizes == tuple(sum(graphs[i].num_nodes() for i in picks) for picks in PICKS)
    rows = torch.randn(expected.num_nodes(), 3)
    torch.testing.assert_close(batch.view(neighbours) @ rows, dgl.ops.copy_u_sum(expected, rows))
    conv = dgl.nn.GraphConv(3, 3, norm="both", weight=False, bias=False)
    torch.testing.assert_close(batch.view(normalised) @ rows, conv(dgl.add_self_loop(expected), rows))
    pooled = torch.stack([part.sum(0) for part in rows.split(expected.batch_num_nodes().tolist())])
    torch.testing.assert_close(batch.pool(rows), pooled)
    values = torch.randn(5)
    by_hand = torch.stack([values[:2].mean(), torch.tensor(0.0), values[2:].mean()])
    torch.testing.assert_close(batch.mean_over_graphs(values), by_hand)


def test_the_gradient_of_a_view_equals_the_dense_product(graph_sets: Make) -> None:
    batch = GraphStack(graph_sets().whole.graphs).batch(PICKS)
    rows, pull = torch.randn(sum(batch.sizes), 3, requires_grad=True), torch.randn(sum(batch.sizes), 3)
    for view in (neighbours, normalised):
        (grad,) = torch.autograd.grad((batch.view(view) @ rows * pull).sum(), rows)
        dense = torch.from_numpy(batch.view(view).scipy().toarray())
        torch.testing.assert_close(grad, dense.T @ pull)


# -- minibatches ------------------------------------------------------------------------------------------------------


def test_cut_makes_no_minibatch_of_one_graph() -> None:
    order = np.arange(7)
    assert [len(c) for c in cut(order, 3)] == [3, 4]
    assert [len(c) for c in cut(order, 4)] == [4, 3]
    assert [len(c) for c in cut(order, None)] == [7]
    assert [len(c) for c in cut(order[:1], 4)] == [1]
    assert np.concatenate(cut(order, 3)).tolist() == order.tolist()


def test_an_epoch_shows_every_graph_once_in_the_order_of_the_client(graph_sets: Make) -> None:
    world = graph_sets((8, 3, 5))
    among, alone = cohort_of(world), simulation(world, "intra-fedavg", clients_per_batch=1).client_batches[2]
    for _ in range(2):
        seen: list[list[int]] = [[], [], []]
        active = []
        for moving in among.steps():
            active.append(moving)
            picked = np.split(among.minibatch.picks, np.cumsum(among.minibatch.counts)[:-1])
            for shown, picks in zip(seen, picked, strict=True):
                shown.extend(picks.tolist())
        assert [sorted(shown) for shown in seen] == [held.tolist() for held in among.held]
        assert active == [None, [0, 2], [0]]  # 3 + 3 + 2, 3, and 3 + 2 graphs
        single = [g for _ in alone.steps() for g in alone.minibatch.picks.tolist()]
        assert [g - 11 for g in seen[2]] == single
    assert seen[0] != sorted(seen[0])


# -- every method -----------------------------------------------------------------------------------------------------


def held(running: Simulation) -> list[torch.Tensor]:
    """All that the clients hold, client by client."""
    return [
        torch.cat([value[k].flatten() for _, value in sorted(clients.params.items())])
        for clients in running.client_batches
        for k in range(len(clients))
    ]


@pytest.mark.parametrize("name", ["fclg", "infograph-fedavg"])
def test_whole_run(name: str, graph_sets: Make) -> None:
    world = graph_sets((8, 3, 5))
    config = TrainConfig(rounds=2, local_epochs=2, batch_size=4, lr=0.01)
    method = METHODS.build(name)
    first, again = (train(world, method, [GIN], method.protocol(config), 3) for _ in range(2))
    assert first.history["score"] == again.history["score"]
    assert (first.best_round, first.rounds, first.val) == (2, 2, None)
    assert first.score_metric == "clustering accuracy, global model, k-means on all graphs, best matching"
    assert first.score == first.matrix["global_on_global"] == first.score_weighted == first.history["score"][-1]
    assert first.score * 16 == pytest.approx(round(first.score * 16))
    assert first.score >= 1 / 3  # a best matching of three classes
    assert 0 < first.macro_f1 <= 1
    assert first.matrix["personal_on_global"] is not None
    assert first.matrix["global_on_local"] is first.matrix["personal_on_local"] is None


def test_k_means_uses_the_seed_of_the_federation(graph_sets: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawn from its stream of that purpose, 31 bits of it."""
    seen, plain, world = list[int](), clustering.k_means, graph_sets()

    def noted(rows: np.ndarray, k: int, seed: int) -> np.ndarray:
        seen.append(seed)
        return plain(rows, k, seed)

    monkeypatch.setattr(clustering, "k_means", noted)
    train(world, METHODS.build("intra-fedavg"), [GIN], TrainConfig(rounds=1), 3)
    assert set(seen) == {int(stream(world.seed, "k-means").integers(2**31))}


def test_personal_models_are_scored_on_request(graph_sets: Make) -> None:
    out = train(graph_sets(), METHODS.build("intra-fedavg"), [GIN], TrainConfig(rounds=1, score_model="personal"), 3)
    assert out.score == out.matrix["personal_on_global"]
    assert len(out.per_client["score"]) == 3


def test_methods_name_their_task(graph_sets: Make, federation: Make) -> None:
    for name in METHODS.names():
        other = federation() if METHODS.cls(name).tasks == ("graph",) else graph_sets()
        reason = METHODS.build(name).skip(Facts.of(other), [GIN])
        assert reason is not None
        assert name in reason
    assert METHODS.build("fclg").skip(Facts.of(graph_sets()), [GIN]) is None
    assert "architectures" in (METHODS.build("fclg").skip(Facts.of(graph_sets()), [GIN, GIN]) or "")
    with pytest.raises(Skip, match="fclg is defined for sets of graphs, not for node classification"):
        train(federation(), METHODS.build("fclg"), [GIN], TrainConfig(rounds=1), 0)


def test_divergence_is_reported(graph_sets: Make) -> None:
    with pytest.raises(Diverged, match="not finite after round"):
        train(graph_sets(), METHODS.build("mvgrl-fedavg"), [GIN], TrainConfig(rounds=3, optimiser="sgd", lr=1e20), 0)


@pytest.mark.parametrize(("weighting", "expected"), [("uniform", [1, 1, 0]), ("nodes", [5, 3, 0])])
def test_weights_of_sets_of_graphs(weighting: str, expected: list[int], graph_sets: Make) -> None:
    """Equal ones or the graphs held; a client without a graph has none."""
    world = graph_sets((5, 3, 0))
    method = METHODS.build("intra-fedavg")
    server = Simulation(method, method.arrange(world), [GIN], TrainConfig(rounds=1, weighting=weighting), 0).server
    assert server.sizes.tolist() == expected
    assert server.weights.tolist() == pytest.approx([each / sum(expected) for each in expected])
