"""Golden runs: the numbers of every method on small federations, the keys of all rows, and partition hashes, pinned.

A number of a method changes only together with its `revision`. Keys and partition hashes never change.
`pytest tests/test_golden.py -n 0 --update-golden` rewrites golden.csv. It refuses a run whose numbers changed while its
revision did not; to accept those too (for example after a change of a case of this file) delete their lines first.

Another processor sums in another order, so messages are not hashed: of those of each step the file has the 2-norm and
the product with a fixed vector. Numbers are equal if they differ by at most their line's tolerance, relative to their
size (of a product: the norm) if that exceeds 1. It is TOLERANCE, except for runs that amplify rounding more: when the
file is written, each run is repeated with features that are off by their rounding, and the tolerance is a power of ten
well above the differences.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch

from fglbench.benchmark.engine import Each, Method, Skip, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES, Backbone
from fglbench.benchmark.engine.train import train
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.cell import Cell
from fglbench.datasets import DATASETS, PARTITIONS, SPLITS, build_federation
from fglbench.datasets.federation import Federation, GraphSetData
from fglbench.methods import METHODS

from .test_defaults import built_in

GOLDEN = Path(__file__).with_name("golden.csv")
RESULTS = Path(__file__).resolve().parents[1] / "results"
TOLERANCE = 1e-6
MARGIN, PERTURBED, ROUNDING = 5, 3, 2.0**-23  # factor of the tolerance, number of perturbed runs
EXACT = ("revision", "upload_bytes", "download_bytes", "optimiser_steps", "model_steps", "budget_steps", "best_round")
NUMBERS = ("score", "val", "curve", "uploads", "downloads")
COLUMNS = ("method", "case", *EXACT, "tolerance", *NUMBERS, "hash")
ROWS_UNTIL = "2026-11-26T16:00:00Z"  # the hash covers rows that started before; later ones may be added

SMALL: dict[str, dict[str, Any]] = {  # parameters with which a few rounds use all code and all terms of a method
    **{name: {"mu": 1.0} for name in ("fedprox", "fedprox-mlp", "infograph-fedprox", "mvgrl-fedprox")},
    "fed-pub": {"l1": 0.1, "prune": 0.9, "proximal": 0.1},
    "fedsage+": {"generator_epochs": 3, "exchange_epochs": 2, "latent": 4, "generator_hidden": 8},
    "feddep": {
        "generator_epochs": 3,
        "exchange_epochs": 2,
        "latent": 4,
        "generator_hidden": 8,
        "embedding": 6,
        "prototypes": 3,
        "encoder_epochs": 3,
    },
    "fedlog": {"condensed": 4, "generator_epochs": 3, "lam_norm": 0.1},
    "gcfl": {"warm_up": 0, "eps1": 10, "eps2": 0},
    "gcfl+": {"warm_up": 0, "eps1": 10, "eps2": 0, "length": 2},
    "adafgl": {"extractor_rounds": 1, "beta": 0.5},
    "fedlit": {"types": 3},
    "scaffold": {"lr": 0.01},
    "fedtgp": {"server_epochs": 5},
    "feroma": {"warm_up": 1},
    "ghost": {"lam_retention": 1.0},
    "o-pfgl": {"condense_steps": 20, "lam": 5.0, "nodes": 2},
}
CALM: dict[str, dict[str, Any]] = {  # training that does not amplify rounding
    **{name: {"lr": 0.01} for name in ("fedomd", "fedomd-cmd", "fedomd-ortho")},
    **{name: {"rounds": 2} for name in ("intra-fedavg", "intra-mse", "intra-kl")},
}
SGD: dict[str, Any] = {"rounds": 3, "local_epochs": 2, "optimiser": "sgd", "lr": 0.05, "momentum": 0.9}
NODES = {**SGD, "select_by": "val_loss"}
GRAPHS = {**SGD, "lr": 1e-3, "batch_size": 4}
PARTIAL = {**NODES, "rounds": 4, "participation": 0.67, "failure": 0.2, "straggle": 0.5}
STRESS = {"feature_noise": 0.3, "missing_features": 0.2, "edge_noise": 0.3, "dropped_edges": 0.2, "label_noise": 0.3}
FEDAVG: dict[str, dict[str, Any]] = {  # options of the engine, with FedAvg only
    "adam": {"optimiser": "adam", "lr": 0.01, "weight_decay": 0.0},
    "new optimiser": {"keep_optimiser": False, "grad_clip": 0.5, "weighting": "train_nodes"},
    "private": {"dp_clip": 0.5, "dp_noise": 0.5, "dp_delta": 0.01},
    "union": {"score_on": "union", "weighting": "uniform"},
    "whole": {"score_on": "global", "select_by": "last"},
    "personal": {"score_model": "personal", "select_by": "val_accuracy", "patience": 1},
    "stress": STRESS,
    "missing labels": {"missing_labels": 0.5},
}


@dataclass(frozen=True)
class Case:
    """A federation, and how a method trains on it. params: of the method. clients_per_batch: as of `train`."""

    name: str
    federation: str
    backbones: tuple[str, ...]
    config: dict[str, Any]
    params: tuple[tuple[str, Any], ...] = ()
    clients_per_batch: int | None = None


CASES = (
    Case("nodes", "nodes", ("gcn",), NODES),
    Case("partial", "nodes", ("gcn",), PARTIAL, clients_per_batch=2),
    Case("architectures", "nodes", ("gcn", "gat", "sage"), NODES),
    Case("graphs", "graphs", ("gcn",), GRAPHS),
    Case("labelled graphs", "labelled", ("gin",), {**GRAPHS, "select_by": "val_loss"}),
    Case("domains", "domains", ("gin",), {**GRAPHS, "select_by": "val_loss"}),
)


def cases(name: str) -> Iterator[Case]:
    """All cases of a method: every federation, on the first one also each option of the method."""
    cls = METHODS.cls(name)
    small = tuple(SMALL.get(name, {}).items())
    applied = [replace(case, params=small, config=case.config | CALM.get(name, {})) for case in CASES]
    yield from applied
    first = next(
        case
        for case in applied
        if case.name == {"node": "nodes", "graph": "graphs"}.get(cls.tasks[0], "labelled graphs")
    )
    for field, value in options(cls):
        yield replace(first, name=f"{first.name}, {field}={value}", params=(*small, (field, value)))
    if name == "fedavg":
        for what, changes in FEDAVG.items():
            yield replace(first, name=f"nodes, {what}", config=NODES | changes)
        for backbone in sorted(set(built_in(BACKBONES)) - {"gine"}):  # only molecules have edge features
            yield replace(first, name=f"nodes, {backbone}", backbones=(backbone,))
            yield replace(applied[4], name=f"labelled graphs, {backbone}", backbones=(backbone,))


def options(cls: type[Method]) -> Iterator[tuple[str, Any]]:
    """The values other than the default of a method's own parameters that have a few."""
    for name, info in cls.model_fields.items():
        if name in cls.__annotations__:
            kind = info.annotation
            values = get_args(kind) if get_origin(kind) is Literal else (True, False) if kind is bool else ()
            yield from ((name, value) for value in values if value != info.default)


# -- runs --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def federations(
    federation: Callable[..., Federation],
    graph_sets: Callable[..., Federation],
    labelled_sets: Callable[..., Federation],
) -> dict[str, Federation]:
    """The last client of "nodes" has no training node."""
    return {
        "nodes": federation((24, 14, 20, 9), without_train=(3,)),
        "graphs": graph_sets((8, 6, 7)),
        "labelled": labelled_sets((12, 8, 10)),
        "domains": domains(graph_sets),
    }


def domains(graph_sets: Callable[..., Federation]) -> Federation:
    """Three clients; the second has fewer features than the others, the third fewer classes."""
    whole = graph_sets((14, 12, 10), features=4).whole
    assert isinstance(whole, GraphSetData)
    owner = torch.tensor([0] * 14 + [1] * 12 + [2] * 10)
    for graph in (whole.graphs[i] for i in range(14, 26)):
        graph.ndata["feat"][:, 3:] = 0
    label = torch.where(owner == 2, whole.label.clamp(max=1), whole.label)
    data = replace(whole, label=label, owner=owner, spaces=((4, 3), (3, 3), (4, 2)))
    split = SPLITS.build("ratio", {"train": 0.4, "val": 0.3, "test": 0.3})
    return build_federation(data, PARTITIONS.build("own"), split, 3, 0)


def backbones(names: Sequence[str]) -> list[Backbone]:
    """Few rounds of GIN with sums over nodes (its default) diverge."""
    extra = {"gin": {"readout": "mean"}}
    return [BACKBONES.build(name, {"hidden": 8, **extra.get(name, {})}) for name in names]


def run(name: str, case: Case, federation: Federation, patch: pytest.MonkeyPatch) -> dict[str, str] | None:
    """The golden line of one run; None if the method does not apply. Every message is seen on its way by the server."""
    cls, messages = METHODS.cls(name), {"uploads": list[float](), "downloads": list[float]()}
    phases = cls.phases

    def watched(self: Method, config: TrainConfig) -> list[Any]:
        return [
            replace(p, steps=tuple(replace(s, server=watch(s.server)) for s in p.steps)) for p in phases(self, config)
        ]

    def watch(server: Callable[..., Any]) -> Callable[..., Any]:
        def half(state: Any, uploads: Any) -> Any:
            messages["uploads"] += digest(uploads)
            download = server(state, uploads)
            messages["downloads"] += digest(download.tree if isinstance(download, Each) else download)
            return download

        return half

    patch.setattr(cls, "phases", watched)
    method, config = METHODS.build(name, dict(case.params)), TrainConfig(**case.config)
    try:
        outcome = train(
            federation, method, backbones(case.backbones), config, 0, clients_per_batch=case.clients_per_batch
        )
    except Skip:
        return None
    finally:
        patch.undo()
    curve = [v for column in ("val", "score", "val_loss") for v in outcome.history.get(column, ())]
    exact = {column: str(getattr(outcome, column)) for column in EXACT[1:]}
    return {
        "method": name, "case": case.name, "revision": str(cls.revision), **exact,
        "tolerance": f"{TOLERANCE:.0e}",
        "score": numbers([outcome.score]), "val": numbers([outcome.val]), "curve": numbers(curve),
        **{column: numbers(values) for column, values in messages.items()}, "hash": "",
    }  # fmt: skip


def digest(tree: Any) -> list[float]:
    """The 2-norm of a message and its product with a fixed vector of entries in [-1, 1], leaf by leaf in key order."""
    flat = [leaf.detach().reshape(-1).double().numpy() for leaf in tensors(tree)]
    norm = np.sqrt(sum((leaf**2).sum() for leaf in flat))
    product = sum((leaf * np.cos(1 + i + np.arange(len(leaf)))).sum() for i, leaf in enumerate(flat))
    return [float(norm), float(product)]


def tensors(tree: Any) -> Iterator[torch.Tensor]:
    if isinstance(tree, torch.Tensor):
        yield tree.to_dense() if tree.layout != torch.strided else tree
    else:
        for each in (tree[key] for key in sorted(tree, key=str)) if isinstance(tree, dict) else tree:
            yield from tensors(each)


def numbers(values: Sequence[float | None]) -> str:
    return " ".join("" if value is None else f"{value:.9g}" for value in values)


# -- the file ----------------------------------------------------------------------------------------------------------


@cache
def golden() -> dict[tuple[str, str], dict[str, str]]:
    if not GOLDEN.exists():
        return {}
    with GOLDEN.open(newline="", encoding="utf-8") as file:
        return {(line["method"], line["case"]): line for line in csv.DictReader(file)}


def write(method: str, lines: list[dict[str, str]]) -> None:
    """Replace the lines of a method (or of OTHERS). An old line may change only with its revision."""
    old = golden()
    kept = {key: line for key, line in old.items() if key[0] != method and key[0] in (*built_in(METHODS), *OTHERS)}
    for line in lines:
        key = method, line["case"]
        if key in old and old[key]["revision"] == line["revision"]:
            assert not differences(old[key], line), difference_message(old[key], line)
        kept[key] = old[key] if key in old and not differences(old[key], line) else line
    with GOLDEN.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, lineterminator="\n", restval="")
        table.writeheader()
        table.writerows(kept[key] for key in sorted(kept))
    golden.cache_clear()


OTHERS = ("keys", "partition")


def differences(wanted: dict[str, str], actual: dict[str, str]) -> list[str]:
    """The columns in which two lines differ, numbers by more than the tolerance of the first."""
    exact = [column for column in (*EXACT, "hash") if wanted.get(column, "") != actual.get(column, "")]
    most = float(wanted.get("tolerance") or 0)
    return exact + [column for column in NUMBERS if not distance(column, wanted, actual) <= most]


def distance(column: str, wanted: dict[str, str], actual: dict[str, str]) -> float:
    """The largest difference of two lists of numbers, relative to their size where that exceeds 1; inf: of other length
    or not nan at the same places.
    """
    one, two = (np.array([float(v or "nan") for v in line.get(column, "").split(" ")]) for line in (wanted, actual))
    if one.shape != two.shape or (np.isnan(one) != np.isnan(two)).any():
        return float("inf")
    size = np.maximum(1, np.abs(one))
    if column in ("uploads", "downloads"):
        size = np.maximum(size, np.repeat(np.abs(one[::2]), 2)[: len(one)])
    return float(np.nan_to_num(np.abs(one - two) / size).max(initial=0))


def with_tolerance(line: dict[str, str], name: str, case: Case, federation: Federation, patch: Any) -> dict[str, str]:
    """The line with the tolerance that its run needs on another processor."""
    worst = 0.0
    for seed in range(PERTURBED):
        other = run(name, case, perturbed(federation, seed), patch)
        assert other is not None and [line[c] for c in EXACT] == [other[c] for c in EXACT], "depends on rounding"
        worst = max(worst, *(distance(column, line, other) for column in NUMBERS))
    tolerance = max(TOLERANCE, 10.0 ** np.ceil(np.log10(MARGIN * worst))) if worst else TOLERANCE
    assert tolerance < 0.1, f"{name} on {case.name}: depends on rounding"
    return line | {"tolerance": f"{tolerance:.0e}"}


def perturbed(federation: Federation, seed: int) -> Federation:
    """The same with features of clients and graphs off by a rounding of float32."""
    noise = torch.Generator().manual_seed(seed)

    def off(x: torch.Tensor) -> torch.Tensor:
        if x.layout == torch.sparse_csr:
            return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), off(x.values()), x.shape)
        return x * (1 + ROUNDING * (torch.rand(x.shape, generator=noise) - 0.5) * 2)

    def graph(one: Any) -> Any:
        other = one.clone()
        other.ndata["feat"] = off(one.ndata["feat"])
        return other

    if federation.task == "node":
        return replace(federation, clients=[replace(c, feat=off(c.feat)) for c in federation.clients])
    return replace(federation, clients=[replace(c, graphs=[graph(g) for g in c.graphs]) for c in federation.clients])


def difference_message(wanted: dict[str, str], actual: dict[str, str]) -> str:
    changed = "; ".join(
        f"{name}: {actual.get(name, '')} instead of {wanted[name]}" for name in differences(wanted, actual)
    )
    return f"{wanted['method']} on {wanted['case']}: {changed}. Raise the method's `revision` if this is intended."


def compare(method: str, lines: list[dict[str, str]], update: bool) -> None:
    if update:
        write(method, lines)
    wanted = {case: line for (name, case), line in golden().items() if name == method}
    anew = "`pytest tests/test_golden.py -n 0 --update-golden` writes golden.csv anew"
    assert [line["case"] for line in sorted(lines, key=lambda line: line["case"])] == sorted(wanted), anew
    wrong = [
        difference_message(wanted[line["case"]], line) for line in lines if differences(wanted[line["case"]], line)
    ]
    assert not wrong, "\n".join([*wrong, anew])


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


# -- tests -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS.names())
def test_a_method_has_the_numbers_of_its_revision(
    name: str, federations: dict[str, Federation], update: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = []
    for case in cases(name):
        line = run(name, case, federations[case.federation], monkeypatch)
        if line is not None:
            new = update and (golden().get((name, case.name)) or {}).get("revision") != line["revision"]
            lines.append(with_tolerance(line, name, case, federations[case.federation], monkeypatch) if new else line)
    compare(name, lines, update)


def test_the_keys_of_all_rows_are_the_hashes_of_their_columns(update: bool) -> None:
    """Rows of the boards and of the trials; a key is a hash of the columns of the experiment."""
    lines = []
    for folder in ("", "tuning"):
        rows = Store(RESULTS / folder).rows()
        assert rows
        known: dict[Any, Any] = {}
        keys = [Cell.of(row, known).key for row in rows]
        assert keys == [row.key for row in rows], "keys changed: mark the new option later=True (registry.option)"
        old = sorted(key for key, row in zip(keys, rows, strict=True) if row.started < ROWS_UNTIL)
        text = f"{len(old)} {hashlib.sha256(' '.join(old).encode()).hexdigest()[:16]}"
        lines.append({"method": "keys", "case": folder or "boards", "revision": "", "hash": text})
    compare("keys", lines, update)


def test_partitions_and_splits_give_the_same_clients(update: bool) -> None:
    nodes = DATASETS.build("csbm", {"nodes": 400, "classes": 4, "degree": 5, "features": 8}).load()
    splits = {
        "ratio": {}, "per-class": {"k": 10, "val": 60, "test": 80}, "fs-per-class": {},
    }  # fmt: skip
    lines = []
    for partition in ("louvain", "metis", "label-dirichlet", "uniform", "random-overlap"):
        for split, params in splits.items():
            for clients, seed in ((4, 0), (10, 1)):
                extra = {"proportions": (0.3,) * clients} if partition == "random-overlap" else {}
                cut = build_federation(
                    nodes, PARTITIONS.build(partition, extra), SPLITS.build(split, params), clients, seed
                )
                case = f"{partition}, {split}, {clients} clients, seed {seed}"
                lines.append({"method": "partition", "case": case, "revision": "", "hash": cut.partition_hash[:16]})
    compare("partition", lines, update)


def test_every_golden_line_has_a_method_of_the_package() -> None:
    assert {method for method, _ in golden()} == {*built_in(METHODS), *OTHERS}
