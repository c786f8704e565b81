"""The contract over all registered methods, and its checks on methods that break it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch

from fglbench.benchmark.contract import recording
from fglbench.benchmark.contract.method_checks import CHECKS, ContractError, Inapplicable
from fglbench.benchmark.contract.recording import fitting, plain_run, record
from fglbench.benchmark.contract.trial import (
    Trial,
    graph_federation,
    labelled_graphs,
    node_federation,
    overlapping_federation,
    scored_labels,
)
from fglbench.benchmark.engine import Method, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.client_batch import ClientBatch
from fglbench.benchmark.engine.gpu_kernels import GPU
from fglbench.benchmark.engine.kernels import using
from fglbench.benchmark.engine.payload import Tree
from fglbench.benchmark.engine.train import set_up, train
from fglbench.datasets import DATASETS, PARTITIONS, SPLITS, build_federation
from fglbench.datasets.federation import Federation, Goal, GraphClient, RowsClient
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

from ..sampled import SHORT, sampled_pairs, sampled_trials, with_code

D, H, C = 20, 8, 3  # features, width and classes of the node trials
FLOAT, INT = 4, 8  # bytes of a float32 scalar and of an int64 number


# SCAFFOLD's published rate, 0.5 of plain SGD, is for nodes. With many steps of minibatches of graphs it diverges.
LEARNING = {"scaffold": {"lr": 0.1}, "scaffold-mlp": {"lr": 0.1}}


@pytest.mark.parametrize(("name", "check"), sampled_pairs(METHODS.names(), CHECKS, 3))
def test_contract(name: str, check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The method's name draws the checks and the federation."""
    method = METHODS.build(name, SHORT.get(name))
    first, *rest = sampled_trials(method)
    drawn = random.Random(name).choice([first] * (1 + len(rest) // 2) + rest)
    monkeypatch.setattr(recording, "trials", lambda: [drawn])
    try:
        CHECKS[check](method)
    except Inapplicable as reason:
        pytest.skip(str(reason))


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS.names())
def test_contract_on_all_federations(name: str) -> None:
    for check in CHECKS:
        with suppress(Inapplicable):
            CHECKS[check](METHODS.build(name, SHORT.get(name)))


OPTIONS: list[tuple[str, dict[str, Any]]] = [  # options that change messages or computations
    ("apple", {"rate": 0.1}),
    ("feddc", {"optimiser": "adam", "client_size": True, "correction": "state"}),
    ("fedgcn-hops", {"hops": 1}),
    ("fedgkc", {"order": "copilot first", "nodes": "train", "view_dropout": False}),
    ("fedkd", {"start": 1.0, "end": 1.0, "nodes": "all"}),
    ("fedproto", {"server_weights": "samples"}),
    ("fedomd", {"same_pass": True}),
    ("fedppn", {"propagation": "sum"}),
    ("fedstruct", {"hops": 2, "powers": "mean", "keep": 0, "width": 4}),
    ("fedtad", {"on": "hidden"}),
    ("fgssl", {"target": "local"}),
    ("fgssl", {"target": "initial"}),
    ("fml", {"nodes": "all"}),
]


@pytest.mark.parametrize(("name", "params"), OPTIONS)
def test_options_pass_the_contract(name: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    method = METHODS.build(name, params)
    drawn = sampled_trials(method)[:1]
    monkeypatch.setattr(recording, "trials", lambda: drawn)
    for check in ("ignores_other_clients", "stays_local"):
        CHECKS[check](method)


TRAINING = {
    "node": TrainConfig(rounds=20, local_epochs=3),
    "graph": TrainConfig(rounds=6, local_epochs=2, batch_size=16),
    "graph-classification": TrainConfig(rounds=20, local_epochs=3, batch_size=16),
    "rows": TrainConfig(rounds=20, local_epochs=3),
}


def easy_links() -> Federation:
    """Two clients of a graph in which most edges join nodes of the same class."""
    values = {"nodes": 240, "classes": 6, "features": D, "signal": 3, "homophily": 0.95, "degree": 12}
    data = DATASETS.build("csbm", values).load()
    return build_federation(data, PARTITIONS.build("uniform"), SPLITS.build("links"), 2, 2)


EASY = {"node": node_federation, "graph": graph_federation, "graph-classification": labelled_graphs, "rows": easy_links}


def shortfall(method: Method, task: str, trial: Trial) -> str:
    """Describe the score if a method does not clearly beat guessing, or the untrained embedding, on an easy federation.

    Empty if the method learns.
    """
    federation = EASY[task]()
    score = train(federation, method, trial.backbones, TRAINING[task], 0).score or 0.0
    if task == "graph":
        simulation, evaluator = set_up(trial.federation, method, trial.backbones, trial.config, 0)
        scored = evaluator.score(simulation.models(), method.delivers, "global")
        needed = float(scored.test.mean()) + 0.05
    else:
        labels = [scored_labels(client) for client in federation.clients]
        guessing = sum(float(label.bincount().max() / len(label)) for label in labels) / len(labels)
        needed = guessing + (1 - guessing) / 3
    return "" if score > needed else f"{score:.3f} on {task}, needed {needed:.3f}"


@pytest.mark.parametrize("name", with_code(METHODS.names()))
def test_a_method_learns(name: str) -> None:
    """On one task, drawn by the method's name."""
    method, first = METHODS.build(name, SHORT.get(name, {}) | LEARNING.get(name, {})), dict[str, Trial]()
    for trial in fitting(method):
        task = trial.federation.task
        first.setdefault(task if task in EASY else "rows", trial)
    task = random.Random(name).choice(sorted(first))
    if method.trains:
        assert not shortfall(method, task, first[task])


def test_learning_check_accepts_scaffold_and_rejects_an_untrained_method() -> None:
    """SCAFFOLD at its published rate learns nodes; a method that never trains learns nothing."""
    trial = fitting(FedAvg())[0]
    assert not shortfall(METHODS.build("scaffold"), "node", trial)
    assert shortfall(Asleep(), "node", trial)


@pytest.fixture
def device_kernels() -> Iterator[None]:
    """Use the kernels of devices on this CPU."""
    plain_run.cache_clear()
    with using(GPU):
        yield
    plain_run.cache_clear()


@pytest.mark.slow  # `engine/test_device.py` runs each method with them
@pytest.mark.usefixtures("device_kernels")
@pytest.mark.parametrize("name", METHODS.names())
def test_contract_by_the_kernels_of_devices(name: str) -> None:
    for check in CHECKS:
        with suppress(Inapplicable):
            CHECKS[check](METHODS.build(name, SHORT.get(name)))


# -- bytes per round, by hand ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class World:
    """The input of the formulas: nodes of each client, and classes of its training nodes."""

    trial: Trial
    nodes: list[int]
    classes: list[int]
    params: dict[str, Any]

    @property
    def clients(self) -> int:
        return len(self.trial.federation.clients)


Bounds = tuple[float, float]  # fewest and most bytes
Formula = Callable[[World, int], tuple[float | Bounds, float | Bounds]]  # client k's upload and download


def gcn(layers: int = 2, last: int = C) -> int:
    """A GCN of widths D, H, ..., `last`."""
    widths = [D, *[H] * (layers - 1), last]
    return sum(a * b + b for a, b in pairwise(widths))


MLP = gcn()
SAGE = 2 * D * H + H + 2 * H * C + C
HEAD = H * C + C
HEADED = gcn(last=H) + HEAD  # two layers to width H and a linear classifier
ORTHO = (D * H + H) + 2 * H * H + HEAD  # FedOMD: two orthogonal layers without bias
MOMENTS = 5 * 3 * H  # a mean and four moments of three hidden layers


def scalars(up: int, down: int | None = None) -> Formula:
    return lambda world, k: (FLOAT * up, FLOAT * (up if down is None else down))


def gin(d: int, h: int, layers: int) -> int:
    """Layers of a two-layer MLP and BatchNorm with weight, bias and two running statistics."""
    return sum(((d if i == 0 else h) * h + h) + (h * h + h) + 4 * h for i in range(layers))


def head(n_in: int, n_out: int, slopes: int = 0) -> int:
    """Three layers and a linear shortcut."""
    return (n_in * n_out + n_out) + 2 * (n_out * n_out + n_out) + (n_in * n_out + n_out) + slopes


GRAPH_D = 6  # degrees, one-hot
GIN = gin(GRAPH_D, H, 2)
INFOGRAPH = GIN + 2 * head(2 * H, 2 * H)
MVGRL = 2 * ((GRAPH_D * H + H + 1) + (H * H + H + 1)) + head(H, H, 3) + head(2 * H, H, 3)


def fedgl(predictions: bool, output: bool) -> Formula:
    def formula(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
        n, s = world.nodes[k], world.params["neighbours"]
        up = FLOAT * (gcn() + n * C * (predictions + output))
        down = FLOAT * gcn() + (INT * n if predictions else 0)
        return up, (down, down + (n * min(s, n) * (FLOAT + INT) if output else 0))

    return formula


def fedkd(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """Factors of rank 1 to full rank: min(r (m + n + 1), m n)."""
    vectors = 2 * H + C
    least = vectors + sum(m + n + 1 for m, n in ((D, H), (H, H), (H, C)))
    return (FLOAT * least, FLOAT * HEADED), (FLOAT * least, FLOAT * HEADED)


def fedgta(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    orders = world.params["orders"] * (2 if world.params["moments"] == "hybrid" else 1)
    return FLOAT * (gcn() + orders * C + 1), FLOAT * gcn()


def fedlit(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    types = world.params["types"]
    model = (D * H + H) + types * 3 * (H * H + H) + HEAD
    return FLOAT * (model + 2 * H * types) + FLOAT * types, FLOAT * (model + 2 * H * types)


def prototypes(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """One vector and count per class present."""
    return world.classes[k] * (FLOAT * H + INT), FLOAT * C * H


def sparse_prototypes(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """One block of H // C entries per class present, and the number of training nodes."""
    return world.classes[k] * (FLOAT * (H // C) + INT) + INT, FLOAT * C * (H // C)


def fedstruct(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """GNN and perceptron. Down one vector per node, up one per node that the client's rows reach."""
    c, nodes = world.params["width"], sum(world.nodes)
    model = gcn() + (c * H + H) + (H * C + C)
    return (FLOAT * (model + c), FLOAT * (model + nodes * c)), FLOAT * (model + nodes * c)


def feddep(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """GraphSAGE and one map per layer for the embeddings of missing neighbours."""
    model = SAGE + (world.params["embedding"] * H + H) + (H * C + C)
    return FLOAT * model, FLOAT * model


def fedlog(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """GraphSAGE of widths 2 H and H with two layer norms, and condensed nodes per class."""
    model = (2 * D * 2 * H + 2 * H) + (2 * 2 * H * H + H) + 4 * H
    both = FLOAT * (model + C * world.params["condensed"] * D)
    return both, both


def fedspray(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """Encoder and two classifiers; one proxy, count and share per class present."""
    p = world.params["width"]
    common = FLOAT * ((D * p + p) + 2 * (p * C + C))
    return common + world.classes[k] * (FLOAT * p + INT + FLOAT), common + FLOAT * C * p


def fggp(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """Up one prototype per class of client k. Down the memory: per class one prototype per round to one per client."""
    model, entry = FLOAT * (gcn() + D * H + H * H), FLOAT * H + INT
    held = world.classes[k]
    return (model + held * entry, model + C * entry), (model + held * entry, model + 3 * C * world.clients * entry)


def s2fgl(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """Up one mean and count per important class, down four vectors per class."""
    entry = FLOAT * H + 2 * INT
    return (FLOAT * gcn() + entry, FLOAT * gcn() + C * entry), FLOAT * (gcn() + 4 * C * H)


def ghost(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """Up a generator of noise of width 64 and class vectors, in the only round."""
    return FLOAT * (C * C + sum(a * b + b for a, b in pairwise((64 + C, 64, 128, 256, D)))), 0


def opfgl(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """Up count, mean and deviation of features and neighbour sums per class, down one node per class."""
    return FLOAT * C * (1 + 2 * 2 * D), FLOAT * (C * D + C * C)


def recycled(matrices: list[int], model: int) -> Formula:
    """Up the model without one of its weight matrices, down the model and the number of the matrix."""
    up = (FLOAT * (model - max(matrices)), FLOAT * (model - min(matrices)))
    return lambda world, k: (up, FLOAT * model + INT)


def sketch(model: int) -> Formula:
    """A tenth of the model's entries, in bits."""
    return lambda world, k: (-(-int(0.1 * model) // 8), -(-int(0.1 * model) // 8))


def cores(model: int) -> Formula:
    """Up the client's core model, down the core models and shares of all clients."""
    return lambda world, k: (FLOAT * model, FLOAT * world.clients * (model + 1))


TABLE: dict[str, Formula] = {
    **dict.fromkeys(("global", "local", "locgcn", "majority", "one-cluster", "label-counts"), scalars(0)),
    **dict.fromkeys(("fedavg", "fedprox", "fedopt", "fedadam", "fedyogi", "fedgcn", "moon", "adafgl"), scalars(gcn())),
    **dict.fromkeys(("ditto", "fedala", "fedexp", "fedgcn-hops", "pfedme"), scalars(gcn())),
    "fedluar": recycled([D * H, H * C], gcn()),
    "feroma": scalars(gcn() + 2 * (C + 1) * H, gcn()),
    "pfed1bs": sketch(gcn()),
    "fedper": scalars(D * H + H),
    **dict.fromkeys(("fgssl", "fgssl-fnsc", "fgssl-fgsd", "fedtad"), scalars(gcn())),
    **dict.fromkeys(("fedmlp", "fedprox-mlp"), scalars(MLP)),
    "scaffold": scalars(2 * gcn()),
    "scaffold-mlp": scalars(2 * MLP),
    "feddc": scalars(2 * gcn()),
    **dict.fromkeys(("fedsage", "fedsage+"), scalars(SAGE)),
    "feddep": feddep,
    "fedlog": fedlog,
    "fedgl": fedgl(True, True),
    "fedgl-no-gpg": fedgl(True, False),
    "fedgl-no-gpl": fedgl(False, True),
    **dict.fromkeys(("infograph-fedavg", "infograph-fedprox"), scalars(INFOGRAPH)),
    **dict.fromkeys(("mvgrl-fedavg", "mvgrl-fedprox"), scalars(MVGRL)),
    **dict.fromkeys(("fclg", "fclg-h", "intra-fedavg", "intra-kl", "intra-mse"), scalars(GIN)),
    "fedlit": fedlit,
    "fedomd": scalars(ORTHO + MOMENTS + 1, ORTHO + MOMENTS),
    "fedomd-cmd": scalars(gcn(4) + MOMENTS + 1, gcn(4) + MOMENTS),
    "fedomd-ortho": scalars(ORTHO),
    "lg-fedavg": scalars(HEAD),
    **dict.fromkeys(("fedproto", "fedtgp", "fedppn"), prototypes),
    "tinyproto": sparse_prototypes,
    "fml": scalars(gcn()),
    "fedkd": fedkd,
    **dict.fromkeys(("fedgkc", "fedgkc-kama"), scalars(HEADED + 2, HEADED)),
    "fedgkc-smkd": scalars(HEADED),
    "fed-pub": scalars(HEADED + H, HEADED),
    "fedaux": scalars(gcn(last=H) + H + 2 * H * C + C),
    "fediih": scalars(2 * (D * H + H + H * C) + C + 2 * H, 2 * (D * H + H + H * C) + C),
    "fedgta": fedgta,
    "fggp": fggp,
    "fedspray": fedspray,
    "fedstruct": fedstruct,
    "s2fgl": s2fgl,
    "ghost": ghost,
    "o-pfgl": opfgl,
    "apple": cores(gcn()),
}
PHASE = {"adafgl": "extractor"}  # name of the phase that the table counts, if not "training"


GIN_MODEL = (GRAPH_D * H + H) + 2 * 2 * (H * H + H) + (H * H + H)  # input, two layers of two maps, after the readout
GRAPH_HEAD = H * 2 + 2
CLASSIFIER = GIN_MODEL + GRAPH_HEAD
CODE = 16 + 16  # FedStar's: walks and degrees
HEADS = 4  # FedSSP's filters


def fedvn(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    """Two layers of maps h -> 2 h -> h, and between them the map of virtual nodes, normalised entry by entry."""
    m = world.params["virtual"]
    maps = (GRAPH_D * H + H) + 3 * ((2 * H * H + 2 * H) + (2 * H * H + H)) + (H * H + H) + GRAPH_HEAD
    norms = 2 * 4 * (2 * H + H) + 4 * m * (2 * H + H)
    return FLOAT * (maps + norms + m * H), FLOAT * (maps + norms + m * H)


def graph_prototypes(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    return world.classes[k] * (FLOAT * H + INT), FLOAT * 2 * H


def sparse_graph_prototypes(world: World, k: int) -> tuple[float | Bounds, float | Bounds]:
    return world.classes[k] * (FLOAT * (H // 2) + INT) + INT, FLOAT * 2 * (H // 2)


GRAPHS: dict[str, Formula] = {
    **dict.fromkeys(("local", "majority", "count-classifier"), scalars(0)),
    **dict.fromkeys(
        ("fedavg", "fedprox", "fedopt", "fedadam", "fedyogi", "moon", "ditto", "pfedme", "gcfl", "fedexp"),
        scalars(CLASSIFIER),
    ),
    "fedluar": recycled([GRAPH_D * H, H * H, H * 2], CLASSIFIER),
    "feroma": scalars(CLASSIFIER + 2 * 3 * H, CLASSIFIER),
    "pfed1bs": sketch(CLASSIFIER),
    "fedper": scalars(GIN_MODEL),
    "gcfl+": scalars(CLASSIFIER + 1, CLASSIFIER),
    **dict.fromkeys(("scaffold", "feddc"), scalars(2 * CLASSIFIER)),
    "lg-fedavg": scalars(GRAPH_HEAD),
    **dict.fromkeys(("fedproto", "fedtgp"), graph_prototypes),
    "tinyproto": sparse_graph_prototypes,
    "apple": cores(CLASSIFIER),
    "fedstar": scalars(CODE * H + H + 2 * (H * H + H)),
    "fedvn": fedvn,
    "fedssp": scalars((H + 1) * H + H + (HEADS + 1) * H + (H + 1) * H + 4 * H + H),
}
ENCODER = gcn(last=H)
LINKS: dict[str, Formula] = {  # the inner product has no parameters
    "local": scalars(0),
    **dict.fromkeys(
        ("fedavg", "fedprox", "fedopt", "fedadam", "fedyogi", "moon", "ditto", "pfedme", "fedexp"), scalars(ENCODER)
    ),
    "fedluar": recycled([D * H, H * H], ENCODER),
    "pfed1bs": sketch(ENCODER),
    "fedper": scalars(D * H + H),
    **dict.fromkeys(("scaffold", "feddc"), scalars(2 * ENCODER)),
}
TABLES = {"node": TABLE, "graph": TABLE, "graph-classification": GRAPHS, "rows": LINKS}


def world_of(method: Method, task: Goal) -> World:
    federation = EASY[task]()
    if method.name.startswith("fedgl"):
        federation = overlapping_federation()
    config = TrainConfig(rounds=3, local_epochs=1)
    kind = "gin" if task == "graph-classification" else "gcn"
    trial = Trial("bytes", federation, (BACKBONES.build(kind, {"hidden": H}),), config)
    nodes, classes = [], []
    for client in federation.clients if task != "graph" else ():
        if isinstance(client, GraphClient | RowsClient):
            label, mask = client.label, client.masks["train"]
        else:
            label, mask = client.graph.ndata["label"], client.graph.ndata["train_mask"].bool()
        nodes.append(len(label))
        classes.append(len(set(label[mask].tolist())))
    return World(trial, nodes, classes, method.params())


@pytest.mark.parametrize(("name", "task"), [(n, task) for n in METHODS.names() for task in METHODS.cls(n).tasks])
def test_bytes_of_a_round(name: str, task: Goal) -> None:
    table = TABLES[task]
    assert name in table, f"write {name}'s bytes a round into the table of this test"
    method = METHODS.build(name, SHORT.get(name))
    world = world_of(method, task)
    counted = PHASE.get(name, "training")
    rounds = [(up, down) for phase, up, down in record(method, world.trial).traffic if phase == counted]
    sent, got = rounds[-1]  # the third round, without first messages (references without training have one round)
    clients = len(sent)  # `global` has one
    for k in range(clients):
        for size, expected in zip((sent[k], got[k]), table[name](world, k), strict=True):
            low, high = expected if isinstance(expected, tuple) else (expected, expected)
            assert low <= size <= high


# -- the checks reject broken methods ---------------------------------------------------------------------------------


class Peeking(FedAvg):
    """Every client adds the mean of all clients' features to its bias."""

    def client(self, clients: ClientBatch) -> Tree:
        upload = super().client(clients)
        return upload | {"peek": clients.batch.x.dense().mean().expand(len(clients), 1).clone()}


class Asleep(FedAvg):
    """Never trains."""

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        return {"model": clients.params}


class Moody(FedAvg):
    """Draws from torch's global generator."""

    def client(self, clients: ClientBatch) -> Tree:
        upload = super().client(clients)
        upload["model"] = {name: value + 1e-3 * torch.randn_like(value) for name, value in upload["model"].items()}
        return upload


@pytest.mark.parametrize(
    ("broken", "check", "words"),
    [
        (Peeking, "stays_local", "private data of client"),
        (Peeking, "ignores_other_clients", "client batches of 3 and 1"),
        (Moody, "repeats_itself", "same seed"),
    ],
)
def test_checks_reject_broken_methods(broken: type[Method], check: str, words: str) -> None:
    with pytest.raises(ContractError, match=words) as caught:
        CHECKS[check](broken())
    assert "\n" not in str(caught.value)
