"""Clients held out of training: they do not change it, and their scores equal a slow loop."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import accuracy_score

from fglbench.benchmark.cli import main
from fglbench.benchmark.contract.trial import Trial, node_federation, trials
from fglbench.benchmark.engine import METHODS, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.client_batch import Skip
from fglbench.benchmark.engine.outcome import Outcome
from fglbench.benchmark.engine.train import UnseenClients, train
from fglbench.datasets.federation import Federation
from fglbench.registry import UserError

from ...methods.formulas import gcn, looped
from ...methods.rounds import close

GCN = (BACKBONES.build("gcn", {"hidden": 8, "dropout": 0.0}),)
CONFIG = TrainConfig(rounds=4, local_epochs=2)


def run(federation: Federation, method: str, config: TrainConfig, backbones: Sequence = GCN):
    """A run's outcome, and the models of its best round."""
    kept = []
    outcome = train(
        federation, METHODS.build(method), backbones, config, 0, on_best=lambda evaluator, best: kept.append(best)
    )
    return outcome, kept[0]


def held_out(outcome: Outcome) -> list[int]:
    """The clients that have a figure as unseen ones; all others must have one as seen ones."""
    numbers = [k for k, value in enumerate(outcome.per_client["unseen"]) if value == value]
    assert outcome.notes[-1] == f"held out of training: client {', '.join(map(str, numbers))}"
    seen = [k for k, value in enumerate(outcome.per_client["score"]) if value == value]
    assert sorted(numbers + seen) == list(range(len(outcome.per_client["score"])))
    return numbers


def without(federation: Federation, numbers: list[int]) -> Federation:
    return replace(federation, clients=[client for k, client in enumerate(federation.clients) if k not in numbers])


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "ditto", "fedadam", "moon", "fedtad"])
def test_training_is_bitwise_identical_to_the_federation_without_them(method: str) -> None:
    for trial in trials():
        try:
            config = trial.config.model_copy(update={"unseen": 0.5, "unseen_epochs": 1})
            outcome, models = run(trial.federation, method, config, trial.backbones)
        except Skip:
            continue
        plain, same = run(without(trial.federation, held_out(outcome)), method, trial.config, trial.backbones)
        assert all(torch.equal(value, same.server[name]) for name, value in models.server.items()), trial.name
        kept = [value for value in outcome.per_client["score"] if value == value]
        assert kept == plain.per_client["score"] and outcome.score == plain.score
        for name in ("best_round", "upload_bytes", "download_bytes", "optimiser_steps", "model_steps", "budget_steps"):
            assert getattr(outcome, name) == getattr(plain, name)


@pytest.mark.parametrize("method", ["fedavg", "ditto"])
def test_scores_and_models_equal_a_slow_loop(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, adapt = list[Any](), UnseenClients._adapted
    monkeypatch.setattr(UnseenClients, "_adapted", lambda *given: made.append(adapt(*given)) or made[0])
    config = CONFIG.model_copy(update={"unseen": 0.5, "unseen_epochs": 7})
    outcome, models = run(node_federation(), method, config)
    numbers = held_out(outcome)
    assert len(numbers) == 2
    for place, number in enumerate(numbers):
        client = node_federation().clients[number]
        label, masks = client.graph.ndata["label"], client.graph.ndata
        hop, x, test, trained = looped(client.graph), client.feat, masks["test_mask"].bool(), masks["train_mask"].bool()
        model = {name: value.clone().requires_grad_() for name, value in models.server.items()}

        def score(params=model, hop=hop, x=x, test=test, label=label) -> float:
            return accuracy_score(label[test], gcn(params, x, hop)[1].argmax(1)[test])

        assert outcome.per_client["unseen"][number] == pytest.approx(score(), abs=1e-6)
        adam = torch.optim.Adam(model.values(), lr=config.lr, weight_decay=config.weight_decay)
        for _ in range(7):
            adam.zero_grad()
            F.cross_entropy(gcn(model, x, hop)[1][trained], label[trained]).backward()
            adam.step()
        close(made[0], model, place, rtol=1e-4)
        assert outcome.per_client["unseen_adapted"][number] == pytest.approx(score(), abs=1e-6)
    adapted, plain = (outcome.per_client[name] for name in ("unseen_adapted", "unseen"))
    assert np.nansum(adapted) != np.nansum(plain)


def test_links_graphs_and_several_client_batches() -> None:
    of = {trial.name: trial for trial in trials()}
    for trial in (of["one architecture"], of["overlapping clients"], of["graphs to classify"], of["links to predict"]):
        config = trial.config.model_copy(update={"unseen": 0.6, "unseen_epochs": 2})
        method = METHODS.build("fedavg")
        outcomes = [
            train(trial.federation, method, trial.backbones, config, 3, clients_per_batch=size) for size in (None, 1)
        ]
        for name in ("unseen", "unseen_adapted"):
            one, other = (np.array(outcome.per_client[name]) for outcome in outcomes)
            assert np.isfinite(one).any(), trial.name
            assert np.allclose(one, other, atol=1e-5, equal_nan=True)


def test_held_out_clients_depend_on_the_seed_only() -> None:
    def numbers(method: str, share: float, seed: int) -> list[int]:
        config = CONFIG.model_copy(update={"unseen": share})
        return UnseenClients(node_federation(), METHODS.build(method), config, seed).numbers

    assert numbers("fedavg", 0.5, 1) == numbers("moon", 0.5, 1)
    assert len(numbers("fedavg", 0.01, 1)) == 1 and len(numbers("fedavg", 0.99, 1)) == 3  # one is left
    assert {*numbers("fedavg", 0.01, 1)} <= {*numbers("fedavg", 0.5, 1)}
    assert len({tuple(numbers("fedavg", 0.5, seed)) for seed in range(20)}) > 3


@pytest.mark.parametrize(
    ("method", "reason"),
    [
        ("local", "has no global model"),
        ("fedper", "has no global model"),
        ("global", "pools the data of all clients"),
        ("fedsage+", "predicts with what training leaves at a client"),
    ],
)
def test_methods_without_a_global_model_are_skipped(method: str, reason: str) -> None:
    with pytest.raises(Skip, match=reason):
        run(node_federation(), method, CONFIG.model_copy(update={"unseen": 0.3}))


def test_domains_and_clustered_sets_are_skipped() -> None:
    of: dict[str, Trial] = {trial.name: trial for trial in trials()}
    for name, method in (("clients of their own domains", "fedavg"), ("sets of graphs", "label-counts")):
        with pytest.raises(Skip):
            run(of[name].federation, method, CONFIG.model_copy(update={"unseen": 0.3}), of[name].backbones)


def test_mistakes_are_one_line() -> None:
    for wrong in ({"unseen_epochs": 2}, {"unseen": 0.2, "data": "global"}, {"unseen": 0.2, "edge_noise": 0.1}):
        with pytest.raises(ValueError, match="unseen"):
            TrainConfig.model_validate(wrong)
    alone = without(node_federation(), [1, 2, 3])
    with pytest.raises(UserError, match="there is one client"):
        run(alone, "fedavg", CONFIG.model_copy(update={"unseen": 0.2}))


SUITE = """
description: "unseen"
training: {rounds: 6, local_epochs: 1, unseen: 0.3, unseen_epochs: 3}
cross:
  datasets: {name: csbm, params: {nodes: 120, classes: 3, features: 8, homophily: 0.9}}
  partitions: uniform
  clients: 5
  splits: ratio
  backbones: {name: gcn, params: {hidden: 8}}
  methods: [local, fedavg, moon]
  seeds: 2
"""


@pytest.mark.usefixtures("in_process")
def test_commands_run_validate_and_report_unseen_clients(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "held.yaml").write_text(SUITE)
    assert main(["run", "-s", "held.yaml", "-y", "-j", "1"]) == 0
    rows = [row for path in (tmp_path / "runs").glob("*/*.csv") for row in csv.DictReader(path.open())]
    done = [row for row in rows if row["status"] == "ok"]
    assert {row["method"] for row in done} == {"fedavg", "moon"} and len(done) == 4
    files = {row["key"]: next((tmp_path / "runs").glob(f"**/{row['key']}.json.gz")) for row in done}
    stored = {key: json.loads(gzip.decompress(path.read_bytes())) for key, path in files.items()}
    capsys.readouterr()
    assert not problems(capsys)
    assert main(["report", "--results", "runs"]) == 0
    (page,) = (path.read_text() for path in (tmp_path / "runs").glob("*/LEADERBOARD.md"))
    assert "Unseen clients, accuracy, %" in page and "Unseen clients, adapted, accuracy, %" in page
    for method in ("fedavg", "moon"):
        scores = [stored[row["key"]]["per_client"]["unseen"] for row in done if row["method"] == method]
        mean = np.mean([np.mean([value for value in each if value is not None]) for each in scores])
        assert f"{100 * mean:.2f}" in page
    key, path = next(iter(files.items()))
    stored[key]["per_client"]["unseen"] = [2.0] * 5
    path.write_bytes(gzip.compress(json.dumps(stored[key]).encode()))
    assert any("unseen of a client is outside [0, 1]" in line for line in problems(capsys))


def problems(capsys) -> list[str]:
    """The output of `validate`, except lines about this checkout."""
    main(["validate", "runs"])
    output = capsys.readouterr()
    lines = [line for line in (output.out + output.err).splitlines() if line.startswith("runs/")]
    return [line for line in lines if "git_dirty" not in line]
