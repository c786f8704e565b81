"""Code for many nodes gives the results of the plain code, and matrices of graphs equal plain sums."""

from __future__ import annotations

import dgl
import numpy as np
import pytest
import torch

from fglbench.benchmark.engine import evaluate, sampled_batch, simulation
from fglbench.benchmark.engine.backbones import GCN
from fglbench.benchmark.engine.batch import Batch
from fglbench.benchmark.engine.config import TrainConfig
from fglbench.benchmark.engine.features import Features
from fglbench.benchmark.engine.train import train
from fglbench.datasets import build_federation
from fglbench.datasets.csbm import CSBM
from fglbench.datasets.federation import Rows, joined
from fglbench.datasets.partitioning import Uniform
from fglbench.datasets.spec import bidirected
from fglbench.datasets.splits import Ratio
from fglbench.methods import METHODS

TIMES = {"history", "total_seconds", "train_seconds"}
CONFIG = TrainConfig(rounds=3, local_epochs=2)


def outcome(config=CONFIG):
    data = CSBM(nodes=400, features=8).load()
    return train(build_federation(data, Uniform(), Ratio(), 5, 1), METHODS.build("fedavg"), [GCN(hidden=8)], config, 1)


@pytest.fixture(scope="module")
def plain():
    return outcome()


def test_client_batches_bounded_by_nodes_have_the_same_numbers(plain, monkeypatch) -> None:
    monkeypatch.setattr(simulation, "BATCH_ROWS", 170)  # two clients of 80
    sizes: list[int] = []
    whole = simulation.client_batches

    def seen(*arguments):
        batches = whole(*arguments)
        sizes.extend(len(each) for each in batches)
        return batches

    monkeypatch.setattr(simulation, "client_batches", seen)
    assert outcome().model_dump(exclude=TIMES) == plain.model_dump(exclude=TIMES)
    assert sizes == [2, 2, 1]


@pytest.mark.parametrize("where", [evaluate, simulation])
def test_features_summed_once_train_and_score_as_models_one_by_one(where, plain, monkeypatch) -> None:
    monkeypatch.setattr(where, "LARGE", 100)
    calls: list[object] = []
    summed = Batch.summed.func
    monkeypatch.setattr(Batch.summed, "func", lambda batch: calls.append(batch.sums_first) or summed(batch))
    large = outcome()
    assert True in calls
    for name in ("global_on_global", "personal_on_global", "global_on_local", "personal_on_local"):
        assert getattr(large, name) == pytest.approx(getattr(plain, name), abs=1 / 400)


def test_models_trained_on_minibatches_score_together_as_one_by_one(monkeypatch) -> None:
    monkeypatch.setattr(sampled_batch, "ROWS", 50)
    config = CONFIG.model_copy(update={"batch_size": 10})
    parts = outcome(config)
    monkeypatch.setattr(evaluate, "LARGE", 100)
    calls: list[int] = []
    each = evaluate.logits_of_each
    monkeypatch.setattr(evaluate, "logits_of_each", lambda *arguments: calls.append(1) or each(*arguments))
    large = outcome(config)
    assert calls
    for name in ("global_on_global", "personal_on_global"):
        assert getattr(large, name) == pytest.approx(getattr(parts, name), abs=1 / 400)


@pytest.mark.parametrize("layers", [2, 3])
def test_several_models_together_have_the_same_logits(layers: int, monkeypatch) -> None:
    monkeypatch.setattr(evaluate, "ROWS", 7)
    monkeypatch.setattr(evaluate, "COLUMNS", 10)  # two models of five columns in one sum
    backbone = GCN(layers=layers, hidden=5)
    batch = _batch(dgl.add_reverse_edges(dgl.rand_graph(60, 150)), torch.randn(60, 7))
    first = Batch(**{**vars(batch), "sums_first": True})
    models = [backbone.init(np.random.default_rng(k), 7, 4) for k in range(5)]
    stacked = {name: torch.stack([params[name] for params in models]) + 0.1 for name in models[0]}
    assert evaluate.is_apt(backbone, first) and not evaluate.is_apt(backbone, batch)
    with torch.no_grad():
        together = [logits.clone() for logits in evaluate.logits_of_each(layers, stacked, first)]
        alone = [backbone.forward({n: v[k : k + 1] for n, v in stacked.items()}, batch).logits for k in range(5)]
    for one, other in zip(together, alone, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_the_gcn_matrix_equals_a_dense_one(seed: int, loops: bool) -> None:
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, 30, (90, 2))
    ends = ends if loops else ends[ends[:, 0] != ends[:, 1]]
    graph = dgl.graph((torch.from_numpy(ends[:, 0].copy()), torch.from_numpy(ends[:, 1].copy())), num_nodes=30)
    other = ends[ends[:, 0] != ends[:, 1]]
    dense = torch.eye(30).index_put((torch.from_numpy(other[:, 1]), torch.from_numpy(other[:, 0])), torch.ones(1), True)
    scale = dense.sum(1) ** -0.5
    wanted = scale[:, None] * dense * scale[None, :]
    matrix = torch.from_numpy(_batch(graph, torch.zeros(30, 1)).gcn.scipy().toarray())
    torch.testing.assert_close(matrix, wanted, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("nodes", [1, 2, 50])
def test_both_directions_are_sorted_by_source_and_target(nodes: int) -> None:
    rng = np.random.default_rng(nodes)
    pairs = {tuple(sorted(pair)) for pair in rng.integers(0, nodes, (80, 2)).tolist() if pair[0] != pair[1]}
    edges = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2)
    graph = bidirected(edges, nodes)
    wanted = sorted([*pairs, *((v, u) for u, v in pairs)])
    assert list(zip(*(ends.tolist() for ends in graph.edges(order="eid")), strict=True)) == wanted
    assert graph.num_nodes() == nodes and graph.idtype == torch.int64


def _batch(graph: dgl.DGLGraph, x: torch.Tensor) -> Batch:
    rows = graph.num_nodes()
    masks = {name: torch.ones(rows, dtype=torch.bool) for name in ("train", "val", "test")}
    return Batch(graph, Features(x, (rows,)), (rows,), torch.zeros(rows).long(), masks, torch.arange(rows))


def test_dense_features_of_neighbours_in_memory_are_joined_without_a_copy() -> None:
    feat = torch.rand(9, 4)
    ids = [np.array([8, 1, 3]), np.array([0, 2]), np.array([4, 5, 7])]
    parts = Rows(feat).each(ids)
    whole, last, turned = joined(parts), joined(parts[1:]), joined([parts[1], parts[0]])
    assert whole.data_ptr() == parts[0].data_ptr() and last.data_ptr() == parts[1].data_ptr()
    assert torch.equal(whole, feat[np.concatenate(ids)]) and torch.equal(last, feat[np.concatenate(ids[1:])])
    assert torch.equal(turned, feat[np.concatenate([ids[1], ids[0]])])
    apart = [part.clone() for part in parts]
    assert torch.equal(joined(apart), whole) and joined(apart[:1]) is apart[0]
    assert torch.equal(joined([feat[:2], feat[3:]]), torch.cat([feat[:2], feat[3:]]))
