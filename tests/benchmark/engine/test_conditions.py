"""Stress conditions: the labels that a method sees and those that score it, and the keys of the runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch

from fglbench.benchmark.contract.recording import record
from fglbench.benchmark.engine import METHODS, ClientBatch, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.config import ATTACKS
from fglbench.benchmark.engine.train import train
from fglbench.benchmark.suites.cell import Cell
from fglbench.benchmark.suites.select import CUSTOM, Request, select
from fglbench.datasets import DATASETS, PARTITIONS, SPLITS, build_federation
from fglbench.datasets.federation import Stress
from fglbench.methods.fedavg import FedAvg
from fglbench.registry import UserError

from .recorded import same, trial

NAMES = list(Stress.model_fields)
EXACT = [name for name in NAMES if name != "feature_noise"]
MODELS_ONLY = ("fedavg", "fedprox", "fedopt", "moon", "feddc", "fgssl")  # all that they upload
OTHERS = ("scaffold", "fedproto", "fedgta", "fml", "local")
OVERLAP = 2  # clients that share nodes, sparse features


@pytest.mark.parametrize(
    ("name", "place"), [("fedavg", OVERLAP), ("scaffold", OVERLAP), *((name, 0) for name in (*MODELS_ONLY, *OTHERS))]
)
def test_a_condition_that_changes_nobody_is_bitwise_identical(name: str, place: int) -> None:
    plain = record(METHODS.build(name), trial(place))
    neutral: list[dict[str, float]] = [{"straggle": 0.0}, {"straggle": 1e-12}, {"failure": 0.0}, {"failure": 1e-12}]
    neutral += [dict.fromkeys(NAMES, 0.0), dict.fromkeys(EXACT, 1e-12)]  # the second: all data are rebuilt
    if name in MODELS_ONLY:
        neutral += [{"dp_clip": 1e30}, *({attack: 1e-9} for attack in ATTACKS)]
    for training in neutral:
        assert same(plain, record(METHODS.build(name), trial(place, **training))), training


@pytest.mark.parametrize("name", [*NAMES, *ATTACKS, "straggle"])
def test_every_condition_changes_training(name: str) -> None:
    plain = record(METHODS.build("fedavg"), trial())
    assert not same(plain, record(METHODS.build("fedavg"), trial(**{name: 0.5})))


@pytest.mark.parametrize("method", ["fedmlp", "fedprox-mlp", "scaffold-mlp"])
def test_methods_without_edges_ignore_changes_of_edges(method: str) -> None:
    plain = record(METHODS.build(method), trial())
    assert same(plain, record(METHODS.build(method), trial(edge_noise=1.0, dropped_edges=0.5)))


@pytest.mark.parametrize("method", ["fedmlp", "fedprox-mlp", "scaffold-mlp"])
def test_methods_without_edges_do_not_depend_on_homophily(method: str) -> None:
    outcomes = []
    for homophily in (0.1, 0.9):
        data = DATASETS.build("csbm", {"nodes": 90, "homophily": homophily}).load()
        federation = build_federation(data, PARTITIONS.build("uniform"), SPLITS.build("ratio"), 3, 0)
        outcomes.append(train(federation, METHODS.build(method), (BACKBONES.build("gcn"),), TrainConfig(rounds=3), 0))
    assert outcomes[0].history["score"] == outcomes[1].history["score"]


def test_fedgta_with_one_participant_is_local_training() -> None:
    federation, backbones = two_classes()
    config = TrainConfig(rounds=6, participation=0.5, local_epochs=2)
    alone, gta = (train(federation, METHODS.build(name), backbones, config, 0) for name in ("local", "fedgta"))
    assert alone.history["score"] == gta.history["score"]
    both = config.model_copy(update={"participation": 1.0})
    assert train(federation, METHODS.build("fedgta"), backbones, both, 0).history["score"] != gta.history["score"]


def two_classes() -> tuple[Any, ...]:
    data = DATASETS.build("csbm", {"nodes": 400, "classes": 2, "homophily": 0.95, "signal": 3}).load()
    federation = build_federation(data, PARTITIONS.build("uniform"), SPLITS.build("ratio"), 2, 0)
    return federation, (BACKBONES.build("gcn", {"hidden": 8}),)


def test_wrong_training_labels_of_two_classes_swap_the_predictions() -> None:
    """Labels for training are changed, labels for scoring are not."""
    federation, backbones = two_classes()
    config = TrainConfig(rounds=15, select_by="last")
    plain = train(federation, FedAvg(), backbones, config, 0)
    wrong = train(federation, FedAvg(), backbones, config.model_copy(update={"label_noise": 1.0}), 0)
    assert plain.score > 0.95
    assert wrong.score < 0.05
    assert wrong.per_client["val"] == pytest.approx([1 - value for value in plain.per_client["val"]], abs=0.1)


def test_a_method_sees_changed_and_missing_labels_only() -> None:
    seen: list[torch.Tensor] = []

    class Curious(FedAvg):
        def prepare(self, clients: ClientBatch) -> None:
            seen.extend([clients.batch.label.clone(), clients.batch.masks["train"].clone()])
            super().prepare(clients)

    federation, backbones = two_classes()
    config = TrainConfig(rounds=1, label_noise=0.5, missing_labels=0.5)
    train(federation, Curious(), backbones, config, 0)
    truth = torch.cat([client.graph.ndata["label"] for client in federation.clients])
    trains = torch.cat([client.graph.ndata["train_mask"] for client in federation.clients])
    label, mask = seen
    assert (label[~mask] == -1).all()
    assert (mask <= trains).all()
    for nodes in torch.arange(len(mask)).split([client.graph.num_nodes() for client in federation.clients]):
        before, left = int(trains[nodes].sum()), int(mask[nodes].sum())
        assert left == before - round(0.5 * before)
        assert int((label[nodes] != truth[nodes])[mask[nodes]].sum()) == round(0.5 * left)


def test_sets_of_graphs_are_refused_with_the_reason() -> None:
    graphs = trial(4, edge_noise=1.0)
    with pytest.raises(UserError, match="edge_noise: these conditions are for node classification"):
        train(graphs.federation, FedAvg(), graphs.backbones, graphs.config, 0)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request(suites=("links",), methods=("fedavg",), datasets=("csbm",)), "csbm with split links is for link pred"),
        (Request(methods=("fedavg",), datasets=("mutag",)), "mutag with split ratio is for graph classification"),
    ],
)
def test_conditions_that_the_task_lacks_are_refused_in_the_plan(request_: Request, reason: str) -> None:
    settings = ("training.dropped_edges=0.5", "training.label_noise=0.1")
    with pytest.raises(UserError, match=f"dropped_edges, label_noise: these conditions are for .*{reason}"):
        select(replace(request_, settings=settings))
    assert select(replace(request_, settings=("training.failure=0.5",)))


@pytest.mark.parametrize(
    ("partition", "clients", "reason"),
    [("metis-overlap", 3, "3 is no multiple of"), ("random-overlap", 3, "6 proportions for 3 clients; give one each")],
)
def test_numbers_of_clients_that_a_partition_lacks_are_refused_in_the_plan(
    partition: str, clients: int, reason: str
) -> None:
    asked = Request(methods=("fedavg",), datasets=("csbm",), partitions=(partition,), clients=(clients,))
    with pytest.raises(UserError, match=reason):
        select(asked)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (("sign_flip=0.25",), "sign_flip is 0.25, so none of 2 clients is hostile; give more than 0.25"),
        (("dp_noise=1", "dp_clip=1", "dp_delta=0.2"), "dp_delta is 0.2, must be below 1 / clients, 0.2"),
    ],
)
def test_settings_without_effect_or_sense_are_refused_in_the_plan(settings: tuple[str, ...], reason: str) -> None:
    """Only of the number of clients that they do not fit."""
    training = tuple(f"training.{setting}" for setting in settings)
    asked = Request(methods=("fedavg",), datasets=("csbm",), clients=(2, 4, 5), seeds=(0,), settings=training)
    with pytest.warns(UserWarning, match=reason):
        clients = [cell.clients for _, cell in select(asked)]
    assert clients == ([4, 5] if "sign_flip" in settings[0] else [2, 4])


def cell(*settings: str) -> tuple[str, Cell]:
    (selected,) = select(Request(quick=True, methods=("fedavg",), datasets=("cora",), seeds=(0,), settings=settings))
    return selected


def test_conditions_are_part_of_key_and_row_only_if_set() -> None:
    suite, plain = cell()
    assert cell(*(f"training.{name}=0" for name in NAMES))[1].key == plain.key
    assert not {*NAMES} & set(json.loads(plain.training_json))
    keys = {plain.key}
    for name in NAMES:
        filed, hard = cell(f"training.{name}=0.5")
        row = hard.row(suite, status="failed", error="none", started="", environment="")
        assert {key: json.loads(row.training).get(key) for key in NAMES} == {**dict.fromkeys(NAMES), name: 0.5}
        assert Cell.of(row).key == row.key == hard.key
        assert hard.federation_key == plain.federation_key  # the same clients and split
        assert filed == CUSTOM
        keys.add(hard.key)
    assert len(keys) == 1 + len(NAMES)


@pytest.mark.parametrize(("setting", "message"), [
    ("training.label_noise=1.5", "label_noise: input should be less than or equal to 1"),
    ("training.missing_labels=1", "missing_labels: input should be less than 1"),
    ("training.feature_noise=-1", "feature_noise: input should be greater than or equal to 0"),
    ("training.feature_noize=1", "did you mean 'feature_noise'"),
])  # fmt: skip
def test_a_wrong_strength_is_one_line(setting: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        cell(setting)
