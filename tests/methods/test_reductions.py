"""Methods equal other methods at the ends of their parameter ranges, round by round."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

from fglbench.benchmark.engine import BACKBONES, METHODS, TrainConfig
from fglbench.benchmark.engine.train import train
from fglbench.datasets.federation import Federation

from .rounds import PLAIN, close, start

GCN: dict[str, Any] = {"kinds": ["gcn"]}
HEAD: dict[str, Any] = {"backbone": {"linear_head": True}}
NINE: dict[str, Any] = {"backbone": {"hidden": 9}}  # a multiple of the number of classes
DEEP: dict[str, Any] = {"backbone": {"layers": 4}}
NO_DROPOUT: dict[str, Any] = {"backbone": {"dropout": 0}}
THREE, FIVE = (13, 7, 10), (13, 7, 10, 9, 8)


class Case(NamedTuple):
    """A method and another one, each with parameters and training options.

    what: compare uploads ("model"), parameters of clients that the other method has ("clients"), or the server's model
    ("server"). exact: bitwise. rounds: number of compared rounds.
    """

    method: str
    params: dict[str, Any]
    training: dict[str, Any]
    other: str
    other_params: dict[str, Any]
    other_training: dict[str, Any]
    what: str = "model"
    exact: bool = True
    sizes: tuple[int, ...] = THREE
    rounds: int = 3


MUTUAL = {"alpha": 0.6, "beta": 0.6, "uniform": False}
SGD = {"optimiser": "sgd", "lr": 0.2, "weighting": "uniform", "local_epochs": 2, **GCN}
ONE_STEP = {**SGD, "local_epochs": 1}
OFF: dict[str, dict[str, Any]] = {
    "feddc": {"alpha": 0.0, "correction": "none", "lr": 0.2, "clip": None},
    "fggp": {"view_weight": 0, "align_weight": 0, "inference": "classifier"},
    "fedgkc": {"smkd": False, "kama": False},
    "fedomd": {"alpha": 0, "beta": 0},
}
CASES = [
    Case("apple", {"rate": 0.0}, GCN, "local", {}, GCN, "clients", False, (20,)),
    Case("fedala", {"layers": 0}, {}, "fedavg", {}, {}),
    Case("fedala", {"eta": 0.0}, PLAIN, "fedavg", {}, PLAIN, exact=False),
    Case("feddc", OFF["feddc"], {"local_epochs": 2, **GCN}, "fedavg", {}, SGD, "server", False),
    Case("fedavg", {}, GCN, "local", {}, GCN, "clients", False, (20,)),
    Case("fedprox", {"mu": 0}, GCN, "fedavg", {}, GCN, "server", False),
    Case("fedprox", {"mu": 5}, ONE_STEP, "fedavg", {}, ONE_STEP, "server", False),
    Case("scaffold", {"lr": 0.2}, ONE_STEP, "fedavg", {}, ONE_STEP, "server", False),
    Case("fedopt", {"server_optimiser": "sgd", "server_lr": 1}, GCN, "fedavg", {}, GCN, "server", False),
    Case("fedexp", {"epsilon": 1e9, "average_last": False}, GCN, "fedavg", {}, GCN, "server", False),
    Case("fedluar", {"recycled": 0}, {}, "fedavg", {}, {}),
    Case("fedgcn-hops", {"hops": 0}, GCN, "fedavg", {}, GCN),
    Case("fedgkc-kama", {}, {}, "fedgkc", {"smkd": False}, {}, "clients"),
    Case("fedgkc-smkd", {}, {}, "fedgkc", {"kama": False}, {}, "clients"),
    *(Case("fedgkc", OFF["fedgkc"] | {"nodes": n}, {}, "fml", MUTUAL | {"nodes": n}, HEAD, "clients", False, FIVE)
      for n in ("all", "train")),
    Case("fedper", {"own_layers": 0}, {}, "fedavg", {}, {}),
    Case("fedper", {"own_layers": 9}, GCN, "local", {}, GCN, "clients", False),
    Case("fedomd", OFF["fedomd"], {}, "fedavg", {}, {"kinds": ["ortho-gcn"], **DEEP}, "server"),
    Case("fedomd-cmd", OFF["fedomd"], {}, "fedavg", {}, {**GCN, **DEEP}, "server"),
    Case("fedppn", {}, GCN, "local", {}, GCN | HEAD, "clients", False, rounds=1),
    Case("fedproto", {"lam": 0}, {}, "local", {}, HEAD, "clients", False, FIVE),
    Case("fedsage", {}, {}, "fedavg", {}, {"kinds": ["sage"], "weighting": "uniform"}, "server"),
    Case("fedsage+", {"neighbours": 0}, {}, "fedsage", {}, {}, "server", False),
    Case("fedspray", {"lambda_1": 0}, {}, "local", {}, {}, "clients"),
    Case("fedtad", {"server_epochs": 0}, {}, "fedavg", {}, {}),
    Case("fedtgp", {"lam": 0}, {}, "local", {}, HEAD, "clients", False, FIVE),
    Case("feroma", {}, GCN, "fedavg", {}, GCN, exact=False, rounds=7),  # before profiles count
    Case("fggp", OFF["fggp"], {}, "fedavg", {}, GCN),
    Case("fgssl", {"contrast_weight": 0, "distil_weight": 0}, GCN, "fedavg", {}, GCN),
    Case("fgssl-fgsd", {}, GCN, "fgssl", {"contrast_weight": 0}, GCN),
    Case("fgssl-fnsc", {"local_view": "weak"}, GCN, "fgssl", {"distil_weight": 0, "local_view": "weak"}, GCN),
    Case("fml", {"beta": 1.0, "uniform": False}, NO_DROPOUT, "fedavg", {}, GCN | NO_DROPOUT, "server", False, FIVE),
    Case("fml", {"alpha": 1.0}, NO_DROPOUT, "local", {}, NO_DROPOUT, "clients", False, FIVE),
    Case("lg-fedavg", {}, GCN, "local", {}, GCN | HEAD, "clients", False, (20,)),
    Case("moon", {"mu": 0.0}, GCN, "fedavg", {}, GCN),
    Case("moon", {"mu": 5.0}, GCN, "fedavg", {}, GCN, rounds=1),
    Case("o-pfgl", {"epochs": 2, "surrogate_share": 0, "lam": 0, "condense_steps": 0}, PLAIN, "local", {}, PLAIN,
         "clients", False, rounds=1),
    Case("pfed1bs", {"lam": 0, "mu": 0}, GCN, "local", {}, GCN, "clients"),
    Case("pfedme", {"lam": 0.5, "eta": 2.0, "inner": 3}, {"local_epochs": 3}, "fedprox", {"mu": 0.5},
         {"local_epochs": 3}, exact=False),
    Case("tinyproto", {"lam": 0}, {}, "local", {}, HEAD, "clients", False, FIVE),
    Case("tinyproto", {"lam": 1, "density": 1, "scaling": "none"}, NINE, "fedproto", {}, NINE, "clients", False, FIVE),
    Case("s2fgl", {"nlir": 0, "fgma": 0}, {}, "fedavg", {}, {}, sizes=(30, 20, 26)),
]  # fmt: skip
# Methods whose term makes them differ from the other method.
TERMS = [
    *((name, {}, {}, "fedgkc", {}) for name in ("fedgkc-kama", "fedgkc-smkd")),
    *((name, {}, GCN, "fedavg", GCN) for name in ("fgssl", "fgssl-fgsd", "fgssl-fnsc")),
    ("fedproto", {"lam": 5}, {}, "local", HEAD),
    ("fedtgp", {"lam": 5}, {}, "local", HEAD),
    ("moon", {"mu": 5.0}, GCN, "fedavg", GCN),
]


def of(run: Any, uploads: dict[str, Any], what: str) -> dict[str, torch.Tensor]:
    if what == "clients":
        return run.simulation.client_batches[0].params
    params: dict[str, torch.Tensor] = run.simulation.server.state["model"] if what == "server" else uploads["model"]
    return params


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.method}-{'-'.join(map(str, case.params))}")
def test_method_reduces_to_another(case: Case, federation: Callable[..., Federation]) -> None:
    world = federation(case.sizes)
    mine = start(world, case.method, case.params, **case.training)
    other = start(world, case.other, case.other_params, **case.other_training)
    for number in range(1, case.rounds + 1):
        actual, expected = (of(run, run.round(number), case.what) for run in (mine, other))
        assert expected
        rtol, atol = (0, 0) if case.exact else (1e-5, 1e-6)
        close({n: actual[n] for n in expected}, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize(("method", "params", "training", "other", "other_training"), TERMS)
def test_terms_change_the_model(
    method: str, params: dict[str, Any], training: dict[str, Any], other: str, other_training: dict[str, Any],
    federation: Callable[..., Federation], ) -> None:  # fmt: skip
    world = federation(FIVE)
    runs = start(world, method, params, **training), start(world, other, **other_training)
    for number in (1, 2, 3):
        for run in runs:
            run.round(number)
    mine, theirs = (run.client_vectors()[0] for run in runs)
    assert not torch.allclose(mine, theirs)


@pytest.mark.parametrize("name", ["fed-pub", "fedaux", "fediih"])
def test_personal_aggregates_at_the_ends_of_their_scale(name: str, federation: Callable[..., Federation]) -> None:
    """Without scale all clients get the plain mean; a single client gets its model back."""
    for sizes, params in ((THREE, {"scale": 0}), ((20,), {})):
        run = start(federation(sizes), name, params, **GCN)
        for number in (1, 2):
            upload = run.round(number)
            for key, value in run.simulation.server.state["personal"].items():
                mean = upload["model"][key].mean(0).expand_as(value)
                torch.testing.assert_close(value, mean, rtol=1e-5, atol=1e-6)
                assert len(sizes) > 1 or torch.equal(value, mean)


@pytest.mark.parametrize(
    ("name", "private"),
    [("fedper", "head"), ("fedssp", "head"), ("fedstar", "input"), ("fedvn", "generator.head")],
)
def test_absent_clients_are_scored_with_the_new_shared_part(
    name: str, private: str, labelled_sets: Callable[..., Federation]
) -> None:
    run = start(labelled_sets((9, 6, 8, 7)), name, kinds=["gin"], batch_size=3, participation=0.5)
    for number in (1, 2, 3):
        shared = run.round(number)["model"]
    (personal,) = run.simulation.personal_models()
    equal = {name for name, value in personal.items() if all(torch.equal(value[0], other) for other in value[1:])}
    assert set(shared) <= equal and f"{private}.weight" not in equal


def test_presets_are_their_method_on_their_architecture(federation: Callable[..., Federation]) -> None:
    world, config = federation(), TrainConfig(rounds=3)

    def scores(name: str, backbone: str) -> tuple[list[float], int]:
        out = train(world, METHODS.build(name), [BACKBONES.build(backbone, {"hidden": 8})], config, 1)
        return out.history["val"], out.upload_bytes

    for preset, method, backbone in (
        ("fedmlp", "fedavg", "mlp"), ("fedprox-mlp", "fedprox", "mlp"), ("scaffold-mlp", "scaffold", "mlp"),
        ("locgcn", "local", "gcn"), ("fedgcn", "fedavg", "gcn"),
    ):  # fmt: skip
        assert scores(preset, "sage") == scores(method, backbone)
