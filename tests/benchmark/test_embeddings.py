"""Embeddings that a run keeps: which nodes, from which model, on which graph."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fglbench
from fglbench.benchmark.contract.trial import trials
from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.evaluate import Models
from fglbench.benchmark.engine.train import train
from fglbench.benchmark.runner import best_round
from fglbench.benchmark.runner.best_round import collect
from fglbench.benchmark.runner.execute import FederationCache, execute
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.select import Request, select
from fglbench.methods import METHODS

from ..methods.formulas import looped

TRIALS = {trial.name: trial for trial in trials()}
SUITE = """
description: a tiny synthetic suite
training: {rounds: 2, local_epochs: 1, data: global}
cross:
  datasets: {name: csbm, params: {nodes: 60, classes: 2, features: 8}}
  partitions: {name: random-overlap, params: {proportions: [0.3, 0.5, 0.6]}}
  clients: 3
  splits: {name: per-class, params: {k: 5, val: 10, test: 20}}
  backbones: {name: gcn, params: {hidden: 4}}
  methods: fedavg
"""


def embeddings_of(method: str, trial: str = "one architecture", seed: int = 0, **params: object):
    """(arrays, the best models) of a short run."""
    setting, models = TRIALS[trial], []
    arrays: dict[str, np.ndarray] = {}

    def keep(evaluator, best):
        models.append(best)
        arrays.update(collect(evaluator, best, seed))

    train(setting.federation, METHODS.build(method, params), setting.backbones, setting.config, seed, on_best=keep)
    return arrays, models[0], setting.federation


def gcn_hidden(federation, weight, bias):
    """relu(D^-1/2 (A + I) D^-1/2 X W + b) on the whole graph, dense and by the formula."""
    x = federation.whole.feat.to_dense().double()
    return torch.relu(looped(federation.whole.graph, torch.float64) @ x @ weight.double() + bias.double()).numpy()


def same_up_to_scale(actual, expected):
    np.testing.assert_allclose(np.abs(actual).max(), 1)
    np.testing.assert_allclose(actual, expected / np.abs(expected).max(), atol=1e-3)  # half precision has 2^-11


def test_the_global_and_the_clients_models_on_the_whole_graph():
    arrays, models, federation = embeddings_of("fedavg")
    test = federation.masks["test"].nonzero().squeeze(1).numpy()
    node = arrays["node"]
    assert sorted(node) == sorted(test)  # fewer than the bound: all, in another order
    assert list(node) != sorted(node)
    assert np.array_equal(arrays["label"], federation.whole.label.numpy()[node])
    hidden = gcn_hidden(federation, models.server["0.weight"], models.server["0.bias"])
    same_up_to_scale(arrays["global"], hidden[node])
    (stacked,) = models.personal
    for client in range(4):
        hidden = gcn_hidden(federation, stacked["0.weight"][client], stacked["0.bias"][client])
        same_up_to_scale(arrays[f"client_{client:03d}"], hidden[node])
    assert sorted(arrays) == ["client_000", "client_001", "client_002", "client_003", "global", "label", "node", "note"]
    assert arrays["note"] == ""
    assert {value.dtype.kind for value in arrays.values()} == {"i", "f", "U"}  # nothing to unpickle


def test_bounds_and_the_seed_decide_the_nodes(monkeypatch):
    monkeypatch.setattr(best_round, "NODES", 20)
    monkeypatch.setattr(best_round, "SHARED", 12)
    monkeypatch.setattr(best_round, "CLIENTS", 3)
    arrays, _, _ = embeddings_of("fedavg")
    assert len(arrays["node"]) == len(arrays["global"]) == len(set(arrays["node"])) == 20
    assert [name for name in arrays if name.startswith("client")] == ["client_000", "client_001", "client_002"]
    assert len(arrays["client_000"]) == 12
    again, _, _ = embeddings_of("fedavg")
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)
    assert not np.array_equal(arrays["node"], embeddings_of("fedavg", seed=1)[0]["node"])


def test_mixed_architectures_keep_the_order_of_clients():
    arrays, models, federation = embeddings_of("local", "several architectures")
    assert arrays["note"] == "there is no global model"
    gcn = {name: value for name, value in models.personal[0].items() if name.startswith("0:")}  # GCN: clients 0 and 3
    for position, client in enumerate((0, 3)):
        hidden = gcn_hidden(federation, gcn["0:0.weight"][position], gcn["0:0.bias"][position])
        same_up_to_scale(arrays[f"client_{client:03d}"], hidden[arrays["node"]])


@pytest.mark.parametrize(
    ("method", "trial", "names", "note"),
    [
        ("global", "one architecture", {"global"}, ""),
        ("fedproto", "one architecture", {"client"}, "there is no global model"),
        ("adafgl", "one architecture", {"global"}, "clients' models are bound to their own graphs"),
        ("fedlit", "one architecture", set(), "the method's prediction does not pass through a backbone"),
        ("fedgl", "overlapping clients", {"global", "client"}, ""),
        ("infograph-fedavg", "sets of graphs", {"global", "client"}, ""),
    ],
)
def test_missing_embeddings_have_a_note(method, trial, names, note):
    arrays, _, federation = embeddings_of(method, trial)
    assert {name.split("_")[0] for name in arrays} - {"node", "label", "note"} == names
    assert note in str(arrays["note"])
    assert bool(note) == bool(str(arrays["note"]))
    for name in set(arrays) - {"node", "label", "note"}:
        assert arrays[name].shape[0] == len(arrays["node"])
        assert np.isfinite(arrays[name]).all()
    if trial == "sets of graphs":
        assert sorted(arrays["node"]) == list(range(len(federation.whole.label)))


def test_embeddings_of_zeros_stay_zeros(federation):
    toy = federation()
    calls = []
    config = TrainConfig(rounds=1, local_epochs=1)
    gcn = [BACKBONES.build("gcn", {"hidden": 4})]
    train(toy, METHODS.build("fedavg"), gcn, config, 0, on_best=lambda *arguments: calls.append(arguments))
    ((evaluator, models),) = calls
    zero = Models({name: torch.zeros_like(value) for name, value in models.server.items()}, None)
    arrays = collect(evaluator, zero, 0)
    assert not arrays["global"].any()
    assert arrays["note"] == "clients have no models of their own"


def test_a_run_keeps_embeddings_on_request_and_label_counts_always(tmp_path):
    suite = tmp_path / "tiny.yaml"
    suite.write_text(SUITE)
    row = fglbench.run(suites=[str(suite)], results=tmp_path / "asked", in_process=True, embeddings=True).iloc[0]
    store = Store(tmp_path / "asked")
    assert store.embeddings("tiny", row.key)["global"].shape == (20, 4)
    stored = store.history("tiny", row.key)
    counts = np.array(stored["label_counts"])
    assert counts.shape == (3, 2)
    assert counts.sum(1).tolist() == [18, 30, 36]  # the proportions of 60 nodes
    assert len(stored["per_client"]["score"]) == 1  # the whole graph is scored
    for kind in ("global", "personal"):
        scores = stored["per_client"][f"{kind}_on_local"]
        assert len(scores) == 3
        assert np.nanmean(np.array(scores, dtype=float)) == pytest.approx(row[f"{kind}_on_local"])

    ((name, cell),) = select(Request(suites=(str(suite),)))
    plain = Store(tmp_path / "not asked")
    again = execute(cell, name, plain, FederationCache(), {"environment": "e"})
    assert (again.key, again.score) == (row.key, row.score)
    assert plain.embeddings(name, again.key) is None
    assert plain.history(name, again.key)["label_counts"] == stored["label_counts"]
