"""Local training as graphs: replayed rounds are the rounds that they replace, to the last bit.

The graphs are those of the device that is pretended (`pretend.Recorder`), which freeze what CUDA's freeze.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
import torch

from fglbench.benchmark.contract.trial import Trial, trials
from fglbench.benchmark.engine import BACKBONES, Cohort, Method, Outcome, Skip, Tensors, Tree, capture, evaluate, train
from fglbench.benchmark.engine.backbones import Backbone
from fglbench.benchmark.engine.capture import Graphs, graphs, using
from fglbench.benchmark.engine.device import on
from fglbench.benchmark.engine.fleet import train_together
from fglbench.benchmark.engine.survey import Survey, Unfit
from fglbench.datasets import DATASETS, PARTITIONS, SPLITS, build_federation
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

pytestmark = pytest.mark.usefixtures("wrapped_predictions")
ROUNDS = 5
REPLAYED = ROUNDS - 3  # the first round makes what is kept, two more are observed
SHORT = {"fedsage+": {"generator_epochs": 3, "exchange_epochs": 2}}
FIXED = ["fedavg", "fedprox", "scaffold", "feddc", "moon", "fedproto", "local", "fedadam", "fedgta", "lg-fedavg"]
AGAIN = {"ditto": 2 * REPLAYED}  # two fits a round


def trial(which: str = "one architecture", **settings: object) -> Trial:
    """With the loss on validation in every round's figures, where there is one: it shows the last digit of a model."""
    found = next(one for one in trials() if one.name == which)
    told = {"select_by": "val_loss"} if found.federation.task == "node" else {}
    return replace(found, config=found.config.model_copy(update={"rounds": ROUNDS} | told | settings))


def run(method: Method, on_what: Trial, device: torch.device, backend: Any = None) -> tuple[Outcome, list[Any], Any]:
    """Its outcome, the models of the best round, and what was captured."""
    best: list[torch.Tensor] = []

    def keep(_: object, models: evaluate.Models) -> None:
        best.extend(value for tree in (models.server or {}, *(models.personal or ())) for value in tree.values())

    with using(backend) as found:
        outcome = train(
            on_what.federation, method, on_what.backbones, on_what.config, 0, device=device, on_best=keep
        )  # fmt: skip
    return outcome, [value.cpu().clone() for value in best], found


def check_equal(mine: Outcome, other: Outcome) -> None:
    """To the last digit, times left out."""
    assert mine.history.keys() == other.history.keys()
    for name in mine.history.keys() - {"seconds"}:
        np.testing.assert_array_equal(mine.history[name], other.history[name], name)
    np.testing.assert_equal(mine.matrix, other.matrix)
    np.testing.assert_equal(mine.per_client, other.per_client)
    for name in ("optimiser_steps", "model_steps", "best_round", "upload_bytes", "download_bytes"):
        assert getattr(mine, name) == getattr(other, name), name


def both(method: Method, on_what: Trial, device: torch.device, pretend: Any) -> Graphs:
    """Run with graphs and without; both must be the same."""
    wanted, models, _ = run(method, on_what, device)
    found, others, made = run(method, on_what, device, pretend.Recorder())
    check_equal(found, wanted)
    for own, other in zip(others, models, strict=True):
        torch.testing.assert_close(own, other, rtol=0, atol=0, equal_nan=True)
    assert isinstance(made, Graphs)
    return made


# -- rounds that are replayed ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", ["one architecture", "overlapping clients"])
@pytest.mark.parametrize("name", [*FIXED, "ditto"])
def test_rounds_of_fixed_shape_are_replayed_to_the_same_bits(
    name: str, which: str, far: torch.device, pretend: Any
) -> None:
    made = both(METHODS.build(name), trial(which), far, pretend)
    assert (made.replays, made.failures) == (AGAIN.get(name, REPLAYED), 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"keep_optimiser": True}, {"keep_optimiser": True, "optimiser": "sgd", "momentum": 0.9, "grad_clip": 0.5},
        {"optimiser": "sgd", "weight_decay": 0.01, "local_epochs": 1}, {"dp_clip": 0.5, "dp_noise": 0.2},
        {"grad_clip": 0.1},
    ],
)  # fmt: skip
def test_options_of_training(settings: dict[str, object], far: torch.device, pretend: Any) -> None:
    """Adam's step numbers go on from round to round where the optimiser is kept; its first round has no state."""
    assert both(METHODS.build("fedprox"), trial(**settings), far, pretend).replays == REPLAYED


def test_backbones(backbone: Backbone, far: torch.device, pretend: Any) -> None:
    own = replace(trial(), backbones=(backbone,))
    assert both(METHODS.build("fedavg"), own, far, pretend).replays == REPLAYED


def test_what_needs_nothing_of_the_host(far: torch.device, pretend: Any) -> None:
    own = replace(trial(optimiser="sgd"), backbones=(BACKBONES.build("gcn", {"hidden": 8, "dropout": 0, "layers": 3}),))
    assert both(METHODS.build("fedavg"), own, far, pretend).replays == REPLAYED


def test_several_architectures_and_cohorts(far: torch.device, pretend: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each cohort has graphs of its own."""
    assert both(METHODS.build("local"), trial("several architectures"), far, pretend).replays == REPLAYED
    monkeypatch.setattr("fglbench.benchmark.engine.exchange._fitting_cohort", lambda *_: 2)
    assert both(METHODS.build("fedavg"), trial(), far, pretend).replays == 2 * REPLAYED


def bags_of_words() -> Trial:
    """Features so sparse that each client touches few of them, and input weights are stored by rows."""
    own = DATASETS.build("csbm", {"nodes": 120, "classes": 3, "features": 200, "homophily": 0.9}).load()
    rare = torch.rand(own.feat.shape, generator=torch.Generator().manual_seed(0)) < 0.01  # type: ignore[union-attr]
    data = replace(own, feat=rare.float().to_sparse_csr())  # type: ignore[type-var]
    split = SPLITS.build("ratio", {"train": 0.3, "val": 0.3, "test": 0.4})
    return replace(trial(), federation=build_federation(data, PARTITIONS.build("uniform"), split, 3, 0))


@pytest.mark.parametrize("settings", [{}, {"keep_optimiser": True}])
def test_weights_that_are_stored_by_rows(
    settings: dict[str, object], far: torch.device, pretend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[bool]()
    plain = capture.Graph.replay

    def replay(self: capture.Graph, leaves: Any, *more: Any) -> torch.Tensor:
        seen.append(any(leaves[place].content is not None for place in self.read))
        return plain(self, leaves, *more)

    monkeypatch.setattr(capture.Graph, "replay", replay)
    own = bags_of_words()
    own = replace(own, config=own.config.model_copy(update=settings))
    both(METHODS.build("fedavg"), own, far, pretend)
    assert seen
    assert all(seen)


@pytest.mark.slow
@pytest.mark.parametrize("which", [one.name for one in trials()])
@pytest.mark.parametrize("name", METHODS.names())
def test_every_method_on_everything(name: str, which: str, far: torch.device, pretend: Any) -> None:
    """Replayed or not, the bits are the same."""
    try:
        both(METHODS.build(name, SHORT.get(name)), trial(which), far, pretend)
    except Skip:
        pytest.skip("does not apply")


# -- rounds that are not ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "which", "settings"),
    [
        ("fedavg", "one architecture", {"participation": 0.5}), ("fedavg", "one architecture", {"failure": 0.3}),
        ("fedavg", "one architecture", {"straggle": 0.5}),
        ("fedavg", "graphs to classify", {"rounds": 4}),  # minibatches
        ("fed-pub", "one architecture", {}),  # what is added to its gradients hangs on the round's number
        ("fclg", "sets of graphs", {"rounds": 4}),  # a model that an epoch leaves for the next
    ],
)  # fmt: skip
def test_what_cannot_be_replayed_runs_as_ever(
    name: str, which: str, settings: dict[str, object], far: torch.device, pretend: Any
) -> None:
    made = both(METHODS.build(name), trial(which, **settings), far, pretend)
    assert (made.replays, made.failures) == (0, 0)


PLAIN = {"optimiser": "sgd", "lr": 0.1}  # whose steps grow with the loss


class Toy(FedAvg):
    """FedAvg whose loss is multiplied by a number."""

    def local_loss(self, cohort: Cohort) -> torch.Tensor:
        return super().local_loss(cohort) * self.factor(cohort)

    def factor(self, cohort: Cohort) -> Any:
        raise NotImplementedError


class ByRound(Toy):
    def factor(self, cohort: Cohort) -> float:
        return 1 / cohort.round


class ReadBack(Toy):
    def factor(self, cohort: Cohort) -> float:
        return next(iter(cohort.params.values())).detach().norm().item()


class OfTheHost(Toy):
    def factor(self, cohort: Cohort) -> torch.Tensor:
        return torch.tensor(0.5)


class Masked(Toy):
    def factor(self, cohort: Cohort) -> torch.Tensor:
        label = cohort.batch.label
        return label[label > 0].sum()


class Drawing(Toy):
    def factor(self, cohort: Cohort) -> float:
        return float(cohort.streams("toy")[0].random())


class Counting(FedAvg):
    """A loss that counts its calls where the next round sees it."""

    def client(self, cohort: Cohort) -> Tree:
        calls = [cohort.state.get("calls", torch.zeros(len(cohort)))]

        def loss(cohort: Cohort) -> torch.Tensor:
            calls[0] = calls[0] + 1
            return self.local_loss(cohort) / calls[0]

        cohort.load(cohort.received["model"])
        cohort.fit(loss)
        cohort.state["calls"] = calls[0]
        return {"model": cohort.params}


@pytest.mark.parametrize("toy", [ByRound, ReadBack, OfTheHost, Masked, Drawing, Counting])
def test_what_a_graph_would_freeze_is_noticed(toy: type[Method], far: torch.device, pretend: Any) -> None:
    made = both(toy(), trial(**PLAIN), far, pretend)
    assert (made.replays, made.failures) == (0, 0)


class Hidden(Toy):
    """A number that nobody can see coming: what only methods from outside the package may do, and graphs are not for
    them."""

    def factor(self, cohort: Cohort) -> float:
        return 1 / next(CALLS)


CALLS = count(1)


def test_the_reference_shows_a_number_that_was_frozen(far: torch.device, pretend: Any) -> None:
    """Without this the tests above could not fail."""
    global CALLS
    CALLS = count(1)
    wanted, _, _ = run(Hidden(), trial(**PLAIN), far)
    CALLS = count(1)
    found, _, made = run(Hidden(), trial(**PLAIN), far, pretend.Recorder())
    assert made.replays == REPLAYED
    with pytest.raises(AssertionError, match="val_loss"):
        check_equal(found, wanted)


class Adding(FedAvg):
    """Control variates that change in place, and a sum of gradients in a closure."""

    def client(self, cohort: Cohort) -> Tree:
        total = {name: torch.zeros_like(value) for name, value in cohort.params.items()}

        def adjust(_: Cohort, grads: Tensors) -> Tensors:
            for name, grad in grads.items():
                total[name].add_(grad)
            return {name: grad + 0.1 * total[name] for name, grad in grads.items()}

        cohort.load(cohort.received["model"])
        cohort.fit(self.local_loss, adjust=adjust)
        return {"model": {name: value + total[name] for name, value in cohort.params.items()}}


def test_what_is_written_in_place_comes_back(far: torch.device, pretend: Any) -> None:
    assert both(Adding(), trial(), far, pretend).replays == REPLAYED


def test_a_capture_that_fails_costs_a_run_nothing(far: torch.device, pretend: Any) -> None:
    """Whenever it fails: draws, parameters and counts of steps are as they were."""

    class Failing(pretend.Recorder):  # type: ignore[name-defined,misc]
        def capture(self, work: Callable[[], torch.Tensor]) -> Any:
            super().capture(work)
            raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

    own = trial(keep_optimiser=True)
    wanted, _, _ = run(METHODS.build("fedprox"), own, far)
    found, _, made = run(METHODS.build("fedprox"), own, far, Failing())
    check_equal(found, wanted)
    assert (made.replays, made.failures) == (0, 1)


# -- fleets ----------------------------------------------------------------------------------------------------------


def worlds() -> list[tuple[Federation, int]]:
    data = DATASETS.build("csbm", {"nodes": 120, "classes": 3, "features": 20, "signal": 2}).load()
    split = SPLITS.build("ratio", {"train": 0.3, "val": 0.3, "test": 0.4})
    return [(build_federation(data, PARTITIONS.build("uniform"), split, 3, seed), seed) for seed in range(2)]


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "moon"])
def test_fleets_are_replayed_too(name: str, far: torch.device, pretend: Any) -> None:
    how = METHODS.build(name), trial().backbones, trial().config
    wanted = train_together(worlds(), *how, device=far)
    with using(pretend.Recorder()) as made:
        found = train_together(worlds(), *how, device=far)
    for mine, other in zip(found, wanted, strict=True):
        check_equal(mine, other)
    assert made is not None
    assert made.replays == REPLAYED


# -- who may, and what captures --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "own", "allowed", "answer"),
    [
        ("cuda", True, True, True),
        ("cuda", False, True, False),
        ("cuda", True, False, False),
        ("cpu", True, True, False),
    ],
)
def test_graphs_are_for_gpus_and_the_packages_own_methods(
    device: str, own: bool, allowed: bool, answer: bool, pretend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capture, "Cuda", pretend.Recorder)
    monkeypatch.setattr(capture, "_allowed", True)
    capture.allow(allowed)
    with capture.capturing(torch.device(device), own):
        assert (graphs() is not None) == answer
    assert graphs() is None


def test_what_cuda_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of torch.cuda, in order. A capture that fails leaves the stream as it was."""
    told = list[Any]()

    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def wait_stream(self, other: Named) -> None:
            told.append((self.name, "waits for", other.name))

        def replay(self) -> None:
            told.append("replay")

    @contextmanager
    def stream(own: Named) -> Iterator[None]:
        told.append(own.name)
        try:
            yield
        finally:
            told.append(f"no longer {own.name}")

    @contextmanager
    def graph(own: Named, pool: str, capture_error_mode: str) -> Iterator[None]:
        told.append((own.name, pool, capture_error_mode))
        yield
        told.append("captured")

    for name, stand_in in {
        "current_stream": lambda: Named("now"), "Stream": lambda: Named("aside"), "stream": stream, "graph": graph,
        "CUDAGraph": lambda: Named("graph"), "graph_pool_handle": lambda: "pool",
    }.items():  # fmt: skip
        monkeypatch.setattr(torch.cuda, name, stand_in)
    cuda = capture.Cuda()
    assert cuda.warmed(lambda: torch.ones(1)).item() == 1
    assert told == [("aside", "waits for", "now"), "aside", "no longer aside", ("now", "waits for", "aside")]
    told.clear()
    again, made = cuda.capture(lambda: torch.ones(2))
    again()
    assert len(made) == 2
    assert told == ["now", ("graph", "pool", "thread_local"), "captured", "no longer now", "replay"]
    told.clear()
    with pytest.raises(ZeroDivisionError):
        cuda.capture(lambda: torch.ones(1 // 0))
    assert told[-1] == "no longer now"


@pytest.mark.parametrize(
    "waits",
    [
        lambda own: own.sum().item(), lambda own: own.tolist(), lambda own: own.numpy(), lambda own: bool(own[0] > 0),
        lambda own: own[own > 0], lambda own: own.nonzero(), lambda own: own.unique(), lambda own: torch.tensor([1.0]),
        lambda own: torch.from_numpy(np.ones(2)), lambda own: own.cpu(), lambda own: own.long().bincount(),
        lambda own: torch.equal(own, own), lambda own: own[torch.zeros(1, dtype=torch.long, device="cpu")],
    ],
)  # fmt: skip
def test_the_reference_refuses_what_cuda_refuses(
    waits: Callable[[torch.Tensor], Any], far: torch.device, pretend: Any
) -> None:
    with on(far):
        own = torch.ones(3)
        with pytest.raises(RuntimeError, match="capturing"):
            pretend.Recorder().capture(lambda: waits(own))
        assert own.tolist() == [1, 1, 1]  # and nothing is left of it


def test_the_reference_freezes_what_cuda_freezes(far: torch.device, pretend: Any) -> None:
    """A graph reads the memory of its tensors anew, and keeps the numbers that the host gave."""
    with on(far):
        own, number, factor = torch.ones(3), torch.tensor(2.0, device="cpu"), 3.0
        again, made = pretend.Recorder().capture(lambda: (own.add_(1) * number + factor).relu())
        assert made.isnan().all().item()
        own.fill_(4)
        number.fill_(100)
        factor = 100.0
        again()
        assert (own.tolist(), made.tolist()) == ([5.0] * 3, [13.0] * 3)
        again()
        assert (own.tolist(), made.tolist()) == ([6.0] * 3, [15.0] * 3)


# -- what a fit leads to ---------------------------------------------------------------------------------------------


def test_surveys_differ_in_all_but_values() -> None:
    def step(number: float, value: torch.Tensor) -> Callable[[], torch.Tensor]:
        return lambda: value * number

    one, two, world = torch.zeros(3), torch.ones(3), object()
    form = Survey(step(1, one), {"a": [world]}).form
    assert Survey(step(1, two), {"a": [world]}).form == form
    others = [
        (step(2, one), {"a": [world]}), (step(1, torch.zeros(4)), {"a": [world]}), (step(1, one), {"b": [world]}),
        (step(1, one), {"a": [object()]}), (step(1, one), {"a": [world, None]}), (lambda: one * 1, {"a": [world]}),
        (step(1, torch.zeros(6)[::2]), {"a": [world]}), (step(1, one.double()), {"a": [world]}),
    ]  # fmt: skip
    assert form not in {Survey(*roots).form for roots in others}
    # Which tensors are the same, or lie in the same memory, is part of it; each is found once.
    forms = [Survey(one, other).form for other in (two, one, one.view(3))]
    assert len(set(forms)) == 3
    assert [leaf.value is one for leaf in Survey([one, one], step(1, one)).leaves] == [True]
    with pytest.raises(Unfit):
        Survey(torch.ones(1, requires_grad=True))


# -- what it saves ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("runs", [1, 5])
@pytest.mark.parametrize("name", ["fedavg", "fedprox", "scaffold", "feddc", "moon", "fedproto"])
def test_launches_of_a_round(name: str, runs: int, far: torch.device, pretend: Any) -> None:
    """On Cora, 10 clients, three local epochs, evaluation included: `pytest -m slow -s -k launches` prints them."""
    data, split = DATASETS.build("cora").load(), SPLITS.build("ratio")
    cut = [(build_federation(data, PARTITIONS.build("louvain"), split, 10, seed), seed) for seed in range(runs)]
    config = trial().config.model_copy(update={"rounds": ROUNDS, "local_epochs": 3})

    def launches(backend: Any) -> int:
        """Of the last round."""
        seen = list[int]()
        with using(backend):
            train_together(
                cut, METHODS.build(name), (BACKBONES.build("gcn"),), config, device=far,
                on_round=lambda *_: seen.append(pretend.stream.launches),
            )  # fmt: skip
        return seen[-1] - seen[-1 - runs]

    eager, replayed = launches(None), launches(pretend.Recorder())
    print(f"\n| {name} | {runs} | {eager} | {replayed} |")
    assert replayed < eager * (1 / 2 if runs == 1 else 2 / 3)
