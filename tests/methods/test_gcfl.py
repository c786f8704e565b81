"""GCFL and GCFL+ against a slow server from the paper: brute-force cuts, recursive warping; and identities."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.train import train
from fglbench.methods import METHODS
from fglbench.methods.gcfl import dtw, min_cut

from .rounds import Make, close, start

COUNTS = (9, 6, 8, 7, 10)
TRAINING: dict[str, Any] = {"kinds": ["gin"], "local_epochs": 2, "batch_size": 3, "lr": 0.01}


def slow_dtw(one: list[float], other: list[float]) -> float:
    @cache
    def best(i: int, j: int) -> float:
        here = (one[i] - other[j]) ** 2
        if i == j == 0:
            return here
        earlier = [best(a, b) for a, b in ((i - 1, j), (i, j - 1), (i - 1, j - 1)) if a >= 0 and b >= 0]
        return here + min(earlier)

    return float(best(len(one) - 1, len(other) - 1) ** 0.5)


def cut_value(weight: np.ndarray, side: tuple[int, ...]) -> float:
    rest = [i for i in range(len(weight)) if i not in side]
    return float(sum(weight[i, j] for i in side for j in rest))


def slow_cut(weight: np.ndarray) -> float:
    n = len(weight)
    return min(cut_value(weight, side) for size in range(1, n) for side in combinations(range(n), size))


def test_cut_is_the_minimum() -> None:
    rng = np.random.default_rng(0)
    for n in (2, 3, 5, 7):
        weight = rng.random((n, n))
        weight = weight + weight.T
        first, second = min_cut(weight)
        assert sorted(first + second) == list(range(n)) and first[0] == 0 and second
        assert cut_value(weight, tuple(first)) == pytest.approx(slow_cut(weight))


def test_weakly_connected_groups_are_separated() -> None:
    weight = np.full((5, 5), 0.01)
    weight[np.ix_([0, 3], [0, 3])] = weight[np.ix_([1, 2, 4], [1, 2, 4])] = 5.0
    assert min_cut(weight) == ([0, 3], [1, 2, 4])


def test_warping_by_hand() -> None:
    rng = np.random.default_rng(1)
    for _ in range(5):
        one, other = rng.random(6), rng.random(4)
        assert dtw(one, other) == pytest.approx(slow_dtw(one.tolist(), other.tolist()))
    assert dtw(np.array([0.0, 1, 2]), np.array([0.0, 0, 1, 2, 2])) == 0.0
    assert dtw(np.array([0.0, 0]), np.array([1.0, 1])) == pytest.approx(2**0.5)


class SlowServer:
    """The server from uploads: clusters, series, and the next model per client."""

    def __init__(self, model: dict[str, torch.Tensor], sizes: list[int], plus: bool, params: dict[str, Any]) -> None:
        self.clusters = [list(range(len(sizes)))]
        self.sent = [dict(model) for _ in sizes]
        self.sizes, self.plus, self.params = sizes, plus, params
        self.series: list[list[float]] = [[] for _ in sizes]

    def round(self, number: int, uploads: list[dict[str, torch.Tensor]], norms: list[float]) -> None:
        moved = [
            torch.cat([(model[n] - sent[n]).flatten() for n in model])
            for model, sent in zip(uploads, self.sent, strict=True)
        ]
        for history, norm in zip(self.series, norms, strict=True):
            history.append(norm)
        clusters = []
        for cluster in self.clusters:
            mean = torch.stack([moved[k] for k in cluster]).mean(0).norm()
            most = max(float(moved[k].norm()) for k in cluster)
            asked = len(cluster) > 2 and number > self.params["warm_up"]
            if not (asked and mean < self.params["eps1"] and most > self.params["eps2"]):
                clusters.append(cluster)
                continue
            if self.plus and min(map(len, self.series)) < self.params["length"]:
                clusters.append(cluster)
                continue
            first, second = min_cut(self.weights(cluster, moved))
            assert cut_value(self.weights(cluster, moved), tuple(first)) == pytest.approx(
                slow_cut(self.weights(cluster, moved)), abs=1e-6
            )
            clusters += [[cluster[i] for i in first], [cluster[i] for i in second]]
            if self.plus:
                self.series = [[] for _ in self.series]
        self.clusters = clusters
        for cluster in clusters:
            total = sum(self.sizes[k] for k in cluster)
            mean_model = {n: sum(self.sizes[k] / total * uploads[k][n] for k in cluster) for n in uploads[0]}
            for k in cluster:
                self.sent[k] = mean_model

    def weights(self, cluster: list[int], moved: list[torch.Tensor]) -> np.ndarray:
        n = len(cluster)
        weight = np.zeros((n, n))
        for a, i in enumerate(cluster):
            for b, j in enumerate(cluster):
                if self.plus:
                    last = self.params["length"]
                    weight[a, b] = slow_dtw(self.series[i][-last:], self.series[j][-last:])
                else:
                    weight[a, b] = 1 + torch.dot(moved[i], moved[j]) / (moved[i].norm() * moved[j].norm())
        return weight.max() - weight if self.plus else weight


@pytest.mark.parametrize("name", ["gcfl", "gcfl+"])
def test_rounds_equal_a_slow_server(name: str, labelled_sets: Make) -> None:
    plus = name == "gcfl+"
    params: dict[str, Any] = {"eps1": 1e9, "eps2": 0.0, "warm_up": 2} | ({"length": 2} if plus else {})
    run = start(labelled_sets(COUNTS), name, params, **TRAINING)
    server = run.simulation.server
    slow = SlowServer(server.initial_model(), list(COUNTS), plus, params)
    history = []
    for number in range(1, 7):
        uploads = run.round(number)
        models = [{n: v[k] for n, v in uploads["model"].items()} for k in range(5)]
        slow.round(number, models, uploads["norm"].squeeze(1).tolist() if plus else [0.0] * 5)
        assert server.state["clusters"] == slow.clusters
        history.append(len(slow.clusters))
        for k in range(5):
            close(server.state["sent"], slow.sent[k], k, atol=1e-6)
    assert history[1] == 1 and history[-1] > 2, history
    (personal,) = run.simulation.personal_models()
    assert all(torch.equal(personal[n], value) for n, value in server.state["sent"].items())


def test_the_norm_is_that_of_the_last_minibatch_of_each_client(labelled_sets: Make) -> None:
    """One epoch at a rate near 0: a client with one minibatch has the norm of its whole gradient."""
    world = labelled_sets((13, 5, 6))  # 7, 3, 3 training graphs: three minibatches (the last joined), one and one
    run = start(world, "gcfl+", kinds=["gin"], local_epochs=1, batch_size=3, lr=1e-9, backbone={"dropout": 0.0})
    norms = run.round(1)["norm"].squeeze(1)
    (clients,) = run.simulation.client_batches
    model = run.simulation.server.initial_model()
    leaf = {n: v.expand(3, *v.shape).clone().requires_grad_(True) for n, v in model.items()}
    loss = clients.cross_entropy(clients.forward(leaf, training=False).logits).sum()
    grads = torch.autograd.grad(loss, list(leaf.values()))
    whole = sum(g.flatten(1).square().sum(1) for g in grads).sqrt()
    torch.testing.assert_close(norms[1:], whole[1:], rtol=1e-4, atol=1e-6)
    assert float(norms[0]) > 0 and not torch.isclose(norms[0], whole[0])


def test_norms_of_updates_replace_norms_of_gradients(labelled_sets: Make) -> None:
    run = start(labelled_sets(COUNTS), "gcfl+", {"series": "update"}, **TRAINING)
    sent = run.simulation.server.initial_model()
    uploads = run.round(1)
    assert set(uploads) == {"model"}
    for k, (norm,) in enumerate(run.simulation.server.state["series"]):
        moved = torch.cat([(uploads["model"][n][k] - sent[n]).flatten() for n in sent])
        assert norm == pytest.approx(float(moved.norm()), rel=1e-5)


@pytest.mark.parametrize("name", ["gcfl", "gcfl+"])
@pytest.mark.parametrize("participation", [1.0, 0.5])
def test_one_cluster_is_fedavg(name: str, participation: float, labelled_sets: Make) -> None:
    world, backbone = labelled_sets(COUNTS), BACKBONES.build("gin", {"hidden": 4})
    config = TrainConfig(rounds=4, local_epochs=2, batch_size=3, participation=participation)
    mine = train(world, METHODS.build(name, {"eps1": 0.0, "warm_up": 0}), [backbone], config, 0)
    plain = train(world, METHODS.build("fedavg"), [backbone], config, 0)
    assert mine.personal_on_local == plain.global_on_local
    assert mine.history["score"] == plain.history["score"] and mine.history["val"] == plain.history["val"]


def test_bounds_in_units_of_the_largest_mean_update() -> None:
    """The largest mean update is 5, so bounds 0.1 and 0.4 mean 0.5 and 2."""
    method = METHODS.build("gcfl", {"eps1": 0.1, "eps2": 0.4, "scale": "largest", "warm_up": 0})
    server: Any = SimpleNamespace(participants=[0, 1, 2], round=9, state={"largest": 5.0})
    cut = torch.tensor([[1.0, 2.0], [1.0, 2.0], [-1.0, -3.0]])  # mean norm 0.47, largest 3.2
    assert len(method.parted(server, [0, 1, 2], cut)) == 2
    assert len(method.parted(server, [0, 1, 2], cut * 1.1)) == 1  # the mean moves by 0.52
    assert len(method.parted(server, [0, 1, 2], cut * 0.6)) == 1  # no client moves by 2


def test_a_cluster_with_absent_clients_is_not_cut(labelled_sets: Make) -> None:
    params = {"eps1": 1e9, "eps2": 0.0, "warm_up": 0}
    run = start(labelled_sets(COUNTS), "gcfl", params, **TRAINING, participation=0.5)
    for number in range(1, 5):
        run.round(number)
    assert run.simulation.server.state["clusters"] == [[0, 1, 2, 3, 4]]


def test_mean_update_is_over_clients() -> None:
    method = METHODS.build("gcfl", {"eps1": 0.1, "eps2": 1.0, "warm_up": 0})
    server: Any = SimpleNamespace(participants=[0, 1, 2], round=1, state={})
    against = torch.tensor([[1.0, 1.0], [1.0, 1.0], [-2.0, -2.0]])  # mean 0 over clients, not over entries
    assert sorted(map(sorted, method.parted(server, [0, 1, 2], against))) == [[0, 1], [2]]
    equal = torch.tensor([[3.0, -3.0], [3.0, -3.0], [3.0, -3.0]])  # mean 0 over entries, not over clients
    assert method.parted(server, [0, 1, 2], equal) == [[0, 1, 2]]


def test_pairs_and_clusters_with_small_updates_are_not_cut(labelled_sets: Make) -> None:
    for counts, params in (((9, 6), {"eps1": 1e9}), (COUNTS, {"eps1": 1e9, "eps2": 1e9}), (COUNTS, {"eps1": 1e-9})):
        run = start(labelled_sets(counts), "gcfl", {"eps2": 0.0, "warm_up": 0, **params}, **TRAINING)
        run.round(1)
        assert len(run.simulation.server.state["clusters"]) == 1
