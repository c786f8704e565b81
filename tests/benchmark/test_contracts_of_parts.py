"""The contracts of partitions, splits and backbones, and the trials of regression: each breach is detected."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fglbench.benchmark.cli import new_and_check
from fglbench.benchmark.contract import method_checks, part_checks, recording
from fglbench.benchmark.contract.method_checks import CHECKS, ContractError, Inapplicable, check
from fglbench.benchmark.contract.trial import Trial, drawn, perturbed, relabelled, trials
from fglbench.benchmark.engine import GCN, MLP
from fglbench.benchmark.suites.plugins import REGISTRIES, load_plugins
from fglbench.datasets.federation import Federation, GraphClient
from fglbench.datasets.partitioning import Uniform
from fglbench.datasets.splits import Ratio
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

CONTRACTS = ("partition", "split", "backbone")
BUILT_IN = [
    (kind, name)
    for kind in CONTRACTS
    for name in REGISTRIES[kind].names()
    if name != "gine"  # needs edge features: engine/test_gine.py
]
SMALL = {"per-class": {"k": 5, "val": 20, "test": 40}, "metis-overlap": {"sharing": 3}}


def broken(kind: str, spec: Any) -> set[str]:
    return {check for check, verdict, _ in part_checks.results(kind, spec) if verdict != "ok"}


@pytest.mark.parametrize(("kind", "name"), BUILT_IN)
def test_built_in_parts_pass_the_contract(kind: str, name: str) -> None:
    assert broken(kind, REGISTRIES[kind].build(name, SMALL.get(name))) == set()


@pytest.mark.usefixtures("registries", "in_process")
@pytest.mark.parametrize("kind", CONTRACTS)
def test_templates_pass_as_they_are(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli) -> None:
    monkeypatch.chdir(tmp_path)
    steps = [
        line.split("fglbench ")[1] for line in cli(["new", kind, f"fresh-{kind}"]).splitlines() if "fglbench " in line
    ]
    assert f"fresh-{kind} passes the contract" in cli(steps[0])
    assert "custom: " in cli([*steps[1].split(), "--dry-run"])
    with pytest.raises(Exception, match=rf"fresh.{kind}'? already"):
        new_and_check.create(kind, f"fresh-{kind}", tmp_path)
    assert load_plugins([f"fresh_{kind}.py"])  # a second time has the same result


class Lossy(Uniform):
    """Loses a node."""

    def deal(self, data: Any, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        return np.array_split(rng.permutation(len(data.label))[1:], clients)


class Doubled(Uniform):
    """A node in two parts."""

    def deal(self, data: Any, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        first, *parts = super().deal(data, clients, rng)
        return [np.concatenate([first, parts[0][:1]]), *parts]


class Apart(Uniform):
    """Is declared overlapping, and is not."""

    overlapping: ClassVar[bool] = True


class Wild(Uniform):
    """Draws from the global state."""

    def deal(self, data: Any, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        return np.array_split(np.random.permutation(len(data.label)), clients)


class Scribbler(Uniform):
    """Writes into the labels."""

    def deal(self, data: Any, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        data.label[0] = 1 - data.label[0]
        return super().deal(data, clients, rng)


@pytest.mark.parametrize(
    ("spec", "check"),
    [
        (Lossy(), "deals_every_node_once"),
        (Doubled(), "deals_every_node_once"),
        (Apart(), "deals_every_node_once"),
        (Wild(), "gives_the_same_again"),
        (Scribbler(), "deals_every_node_once"),
    ],
)
def test_each_breach_of_a_partition_is_found(spec: Uniform, check: str) -> None:
    labels = [data.label.clone() for data in part_checks.samples()]
    failed = broken("partition", spec)
    for data, label in zip(part_checks.samples(), labels, strict=True):
        data.label.copy_(label)
    assert check in failed


class Nothing(Uniform):
    """Has no parts."""

    def deal(self, data: Any, clients: int, rng: np.random.Generator) -> Any:
        return None


class Greedy(Uniform):
    """Leaves clients empty."""

    def deal(self, data: Any, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        return [np.arange(len(data.label)), *[np.arange(0)] * (clients - 1)]


class Untrained(Ratio):
    """No node trains."""

    def roles(self, data: Any, parts: Any, rng: np.random.Generator) -> np.ndarray:
        return np.full(len(data.label), 2, np.int8)


class Roleless(Ratio):
    """Has no roles."""

    def roles(self, data: Any, parts: Any, rng: np.random.Generator) -> Any:
        return None


@pytest.mark.parametrize(
    ("kind", "spec"),
    [("partition", Nothing()), ("partition", Greedy()), ("split", Untrained()), ("split", Roleless())],
)
def test_a_result_that_the_benchmark_refuses_is_a_failure_not_a_refusal(kind: str, spec: Any) -> None:
    assert {verdict for _, verdict, _ in part_checks.results(kind, spec)} == {"failed"}


class Unlabelled(Ratio):
    """Nodes without a label train."""

    def roles(self, data: Any, parts: Any, rng: np.random.Generator) -> np.ndarray:
        return np.where(data.label.numpy() < 0, 0, super().roles(data, parts, rng)).astype(np.int8)


class Forked(Ratio):
    """Gives clients other roles than the server."""

    def __call__(self, data: Any, parts: Any, seed: int) -> Any:
        assignment = super().__call__(data, parts, seed)
        assignment.clients[0]["train"] = ~assignment.clients[0]["train"]
        return assignment


class WildSplit(Ratio):
    """Draws from the global state."""

    def roles(self, data: Any, parts: Any, rng: np.random.Generator) -> np.ndarray:
        return super().roles(data, parts, np.random.default_rng(np.random.randint(2**31)))


@pytest.mark.parametrize(
    ("spec", "check"),
    [
        (Unlabelled(), "gives_roles_to_labelled_nodes"),
        (Forked(), "gives_roles_to_labelled_nodes"),
        (WildSplit(), "gives_the_same_again"),
    ],
)
def test_each_breach_of_a_split_is_found(spec: Ratio, check: str) -> None:
    assert check in broken("split", spec)


class Unseeded(GCN):
    """Parameters from the global state."""

    def init_layer(self, n_in: int, n_out: int, source: torch.Generator, *, hidden: bool) -> Any:
        return {"weight": torch.randn(n_in, n_out), "bias": torch.zeros(n_out)}


class Idle(GCN):
    """A parameter that nothing uses."""

    def init_layer(self, n_in: int, n_out: int, source: torch.Generator, *, hidden: bool) -> Any:
        return {**super().init_layer(n_in, n_out, source, hidden=hidden), "idle": torch.ones(1)}


class Mixed(MLP):
    """Rows centred over the whole client batch."""

    def layer(self, params: Any, i: int, h: Any, batch: Any) -> torch.Tensor:
        z = super().layer(params, i, h, batch)
        return z - z.mean(0)


class Noisy(GCN):
    """Noise from the global state."""

    def layer(self, params: Any, i: int, h: Any, batch: Any) -> torch.Tensor:
        z = super().layer(params, i, h, batch)
        return z + torch.randn_like(z)


class Peeking(GCN):
    """Labels in the numbers."""

    def layer(self, params: Any, i: int, h: Any, batch: Any) -> torch.Tensor:
        return super().layer(params, i, h, batch) + batch.label[:, None]


class Narrow(GCN):
    """A class too few."""

    def widths(self, features: int, classes: int) -> list[tuple[int, int]]:
        return super().widths(features, classes - 1)


class DenseOnly(MLP):
    """Sparse features taken for others."""

    def layer(self, params: Any, i: int, h: Any, batch: Any) -> torch.Tensor:
        z = super().layer(params, i, h, batch)
        return z * 2 if getattr(h, "sparse", False) else z


@pytest.mark.parametrize(
    ("spec", "check"),
    [
        (Unseeded(), "starts_the_same"),
        (Idle(), "uses_every_parameter"),
        (Mixed(), "ignores_other_clients"),
        (Mixed(), "uses_every_parameter"),
        (Noisy(), "sees_no_label"),
        (Peeking(), "sees_no_label"),
        (Narrow(), "yields_its_shapes"),
        (DenseOnly(), "ignores_other_clients"),
    ],
)
def test_each_breach_of_a_backbone_is_found(spec: GCN, check: str) -> None:
    assert check in broken("backbone", spec)


NUMBERS = [trial for trial in trials() if trial.federation.task.endswith("regression")]


def held(client) -> tuple[torch.Tensor, torch.Tensor]:
    """The targets of a client's rows (n, 1), and which rows train."""
    if isinstance(client, GraphClient):
        return client.label, client.masks["train"]
    return client.graph.ndata["label"], client.graph.ndata["train_mask"].bool()


@pytest.mark.parametrize("trial", NUMBERS, ids=lambda trial: trial.name)
@pytest.mark.parametrize("change", [relabelled, drawn])
def test_every_number_but_those_that_train_changes(trial: Trial, change) -> None:
    changed = change(trial.federation)
    for before, after in zip(trial.federation.clients, changed.clients, strict=True):
        (old, trained), (new, still) = held(before), held(after)
        assert torch.equal(trained, still) and torch.equal(old[trained], new[trained])
        known = ~trained & ~old.isnan().squeeze(1)
        assert known.any() and (old[known] != new[known]).all()
        if change is drawn:
            assert set(new[~trained].flatten().tolist()) == {-1.0, 1.0}


@pytest.mark.parametrize("trial", NUMBERS, ids=lambda trial: trial.name)
def test_one_client_gets_other_numbers(trial: Trial) -> None:
    changed = perturbed(trial.federation, 1)
    for k, (before, after) in enumerate(zip(trial.federation.clients, changed.clients, strict=True)):
        same = torch.equal(held(before)[0].nan_to_num(), held(after)[0].nan_to_num())
        assert same == (k != 1)


KNOWN: list[Federation] = []


class FromMemory(FedAvg):
    """Predicts the targets of a federation that it knows."""

    def predict_own(self, params, clients):
        return torch.cat([held(client)[0] for client in KNOWN[-1].clients])


def test_a_method_that_knows_the_numbers_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method_checks, "drawn", lambda federation: KNOWN.append(drawn(federation)) or KNOWN[-1])
    for trial in NUMBERS:
        monkeypatch.setattr(recording, "trials", lambda one=trial: [one])
        with pytest.raises(ContractError, match="in random numbers"):
            CHECKS["knows_no_random_label"](FromMemory())
        CHECKS["knows_no_random_label"](FedAvg())


def test_methods_for_other_tasks_refuse_regression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "trials", lambda: NUMBERS)
    for method in map(METHODS.build, METHODS.names()):
        reasons = [recording.refusal(method, trial) for trial in NUMBERS]
        if "rows" in method.tasks:
            assert reasons == [None] * len(NUMBERS)
            continue
        assert all(reason and "not for" in reason for reason in reasons)
        with pytest.raises(Inapplicable):
            recording.fitting(method)


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "ditto"])  # others: `test_contract.py`
def test_the_contract_holds_on_regression(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "trials", lambda: NUMBERS)
    assert not check(METHODS.build(name))
