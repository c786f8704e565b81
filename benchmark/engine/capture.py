"""Local training as a CUDA graph: what `Cohort.fit` launches is captured once, and replayed in later rounds.

Methods and cohorts say nothing of it. The epochs of a `fit` are *observed*, as they run, until two rounds of the same
form (survey.py) have read the same constants and asked the host for the same things; then they are captured, and from
there on replayed: what the round's tensors hold is copied to where the graph reads it, and what it wrote is copied
back. The host gives what it would have given: dropout masks, drawn as ever, and the numbers of the optimiser's steps,
all of them in one transfer.

It runs as it does without graphs, and to the same bits, where

- something is read back or made of numbers of the host within the step, has a shape that hangs on values, or is drawn
  by the device;
- it asks for the round's number, a client's generator itself (minibatches, draws of edges) or a mask for NumPy;
- it binds something anew that the next round would see, or each round has objects of its own (views of the graph);
- clients are a part of their cohort (partial participation, failures) or straggle;
- the method is none of the package, whose Python may remember what a graph would not know;
- the capture fails, for whatever reason CUDA has.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, NamedTuple, Protocol
from weakref import WeakKeyDictionary

import torch

from . import ledger
from .device import HOST
from .lazy import in_parts
from .observing import Asked, Given, Pinning, Seen, Watched
from .optim import StackedOptimiser
from .rowsparse import rows_of
from .survey import Found, Survey, Unfit, storage_of

MOST = 4  # forms that a fit is observed in, and rounds in which each is
Epochs = Callable[[StackedOptimiser], torch.Tensor]  # a fit with a given optimiser; its losses (K,)


class Capturer(Pinning, Protocol):
    """What captures: CUDA, or what stands for it in tests."""

    def warmed(self, work: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What `work` gives, run as it must be before it is captured."""

    def capture(self, work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        """How to do again what `work` launches, and what it gives; nothing is computed yet. Raises where it cannot."""


class Cuda:
    """CUDA graphs, one after the other in the same memory: what they leave is copied before the next is replayed."""

    def __init__(self) -> None:
        self._pool = torch.cuda.graph_pool_handle()
        self._aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]

    def warmed(self, work: Callable[[], torch.Tensor]) -> torch.Tensor:
        now = torch.cuda.current_stream()
        self._aside.wait_stream(now)
        with torch.cuda.stream(self._aside):
            made = work()
        now.wait_stream(self._aside)
        return made

    def capture(self, work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        graph = torch.cuda.CUDAGraph()
        # The outer stream context puts the stream back that a failing capture leaves behind. What other threads of the
        # process do with the device does not concern the capture.
        with (
            torch.cuda.stream(torch.cuda.current_stream()),
            torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
        ):
            made = work()
        return graph.replay, made

    def pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device=HOST, pin_memory=True)


_graphs: Graphs | None = None  # of the run that goes on
_seen: Seen | None = None  # of the fit that is observed
_allowed = True


def allow(graphs: bool) -> None:
    """Whether runs of this process may use graphs."""
    global _allowed
    _allowed = graphs


def graphs() -> Graphs | None:
    """Those of the run that goes on, if it has any."""
    return _graphs


@contextmanager
def capturing(device: torch.device, own: bool) -> Iterator[None]:
    """A run whose fits are captured, where that is possible. own: its method is the package's."""
    with using(Cuda()) if device.type == "cuda" and own and _allowed else nullcontext():
        yield


@contextmanager
def using(backend: Capturer | None) -> Iterator[Graphs | None]:
    """Capture fits by this backend within the block. What is captured lives as long."""
    global _graphs
    before, _graphs = _graphs, None if backend is None else Graphs(backend)
    try:
        yield _graphs
    finally:
        _graphs = before


def told(what: str) -> None:
    """Somebody was told something that may be another thing in the next round."""
    if _seen is not None:
        _seen.refuse(f"asks for {what}")


class Graphs:
    """All that is captured of a run. replays, failures: how many fits were replayed, and could not be captured."""

    def __init__(self, backend: Capturer) -> None:
        self.backend, self.replays, self.failures = backend, 0, 0
        self._known: WeakKeyDictionary[Any, dict[str, dict[Any, Fits]]] = WeakKeyDictionary()

    def fit(self, cohort: Any, name: str, optimiser: StackedOptimiser, epochs: Epochs, functions: Any) -> torch.Tensor:
        """`epochs(optimiser)`, or what comes to the same. functions: what it calls and was given."""
        forms = self._known.setdefault(cohort, {}).setdefault(name, {})
        start = start_of(optimiser)
        try:
            survey = Survey(*_roots(cohort, functions), optimiser.state, relative(optimiser, start))
        except Unfit:
            return epochs(optimiser)
        known = forms.get(survey.form)
        if known is None:
            if len(forms) == MOST:
                return epochs(optimiser)
            known = forms[survey.form] = Fits(survey.held)
        if known.graph is None and known.ready:
            known.graph = self._captured(cohort, known, survey, optimiser, epochs, start)
        if known.graph is not None:
            self.replays += 1
            return known.graph.replay(survey.leaves, optimiser, start)
        if known.observed == MOST:
            return epochs(optimiser)
        return self._observed(cohort, known, survey, optimiser, epochs, functions)

    def _observed(
        self, cohort: Any, known: Fits, survey: Survey, optimiser: StackedOptimiser, epochs: Epochs, functions: Any
    ) -> torch.Tensor:
        """The epochs, as they run without graphs, and what they ask for."""
        global _seen
        seen, streams, number = Seen(), cohort.streams, optimiser.number
        cohort.streams, optimiser.number, _seen = Watched(streams, seen), seen.number, seen
        before = Survey(*_roots(cohort, functions))
        try:
            with seen:
                made = self.backend.warmed(lambda: epochs(optimiser))
        finally:
            cohort.streams, optimiser.number, _seen = streams, number, None
        try:
            after = Survey(*_roots(cohort, functions))
            same = [own.value is other.value for own, other in zip(before.leaves, after.leaves, strict=False)]
            if before.form != after.form or not all(same):
                seen.refuse("binds something anew")
        except Unfit as reason:
            seen.refuse(str(reason))
        known.add(seen, survey.leaves)
        return made

    def _captured(
        self, cohort: Any, known: Fits, survey: Survey, optimiser: StackedOptimiser, epochs: Epochs, start: float
    ) -> Graph | None:
        """A graph of the epochs; None, and the run as it was, where they cannot be captured."""
        streams, read = cohort.streams, [survey.leaves[place] for place in known.read]
        memory, undo = [storage_of(leaf.value) for leaf in read], list[Callable[[], None]]()
        try:
            assert known.asked is not None
            given = Given(known.asked, self.backend, start)
            own = StackedOptimiser(
                optimiser.config, {name: dict(slots) for name, slots in optimiser.state.items()},
                {name: steps.clone() for name, steps in optimiser.steps.items()}, optimiser.clients, given.number,
            )  # fmt: skip
            cohort.streams = Watched(streams, given)
            places = [_alike(leaf.value) for leaf in read]
            _copy(places, [leaf.value for leaf in read])
            for leaf, place in zip(read, places, strict=True):
                undo.append(leaf.move(place))
            with ledger.counting() as steps:
                again, losses = self.backend.capture(lambda: epochs(own))
            given.check()
            written = [at for at, place in enumerate(known.read) if place in known.written]
            if any(memory.count(memory[at]) > 1 for at in written):
                raise Unfit("writes into memory that two tensors share")
        except Exception as reason:  # what is wrong with the epochs themselves they say when they run
            logging.getLogger(__name__).info("not captured: %s", reason)
            self.failures += 1
            known.give_up()
            return None
        finally:
            cohort.streams = streams
            for back in reversed(undo):
                back()
        return Graph(again, known.read, places, written, given, own, losses, steps, known.constants)


def _roots(cohort: Any, functions: Any) -> tuple[Any, ...]:
    return functions, cohort.params, cohort.received, cohort.state, cohort.shared


def start_of(optimiser: StackedOptimiser) -> float:
    """How many steps the first client has taken on the first parameter."""
    return float(next(iter(optimiser.steps.values()))[0]) if optimiser.steps else 0.0


def relative(optimiser: StackedOptimiser, start: float) -> dict[str, list[float]]:
    """How many steps more the others have, and have on the others."""
    return {name: (steps - start).tolist() for name, steps in optimiser.steps.items()}


class Fits:
    """Fits of one form: what was seen of them, and their graph. held: keeps alive what the form knows by identity.

    read: the leaves that they read, by their places in a survey; written: those that they write into; constants: the
    rest of what they read, by its memory.
    """

    def __init__(self, held: Sequence[Any]) -> None:
        self.observed, self.ready = 0, False
        self.asked: Asked | None = None
        self.read: list[int] = []
        self.written: set[int] = set()
        self.constants: dict[int, torch.Tensor] = {}
        self.graph: Graph | None = None
        self._held = held

    def give_up(self) -> None:
        self.observed, self.ready, self.asked, self.constants = MOST, False, None, {}

    def add(self, seen: Seen, leaves: Sequence[Found]) -> None:
        """One more observation; `ready` once two in a row agree."""
        self.observed += 1
        before, constants = (self.asked, self.constants), dict(seen.outside)
        found = [storage_of(leaf.value) for leaf in leaves]
        self.read = [place for place, storage in enumerate(found) if storage in constants]
        self.written = {place for place, storage in enumerate(found) if storage in seen.written}
        for storage in found:
            constants.pop(storage, None)
        if seen.reason is not None:
            logging.getLogger(__name__).debug("cannot be replayed: it %s", seen.reason)
            self.asked, self.constants = None, {}
            return
        self.asked, self.constants = seen.asked, constants
        self.ready = (
            before[0] is not None and before[0].form == seen.asked.form and before[1].keys() == constants.keys()
        )


class Graph(NamedTuple):
    """A captured fit. places: where it reads the leaves `read` of a survey; written: which of those it writes into.

    own: the optimiser as it left it. constants: what else it reads, which must not go away.
    """

    again: Callable[[], None]
    read: list[int]
    places: list[torch.Tensor]
    written: list[int]
    given: Given
    own: StackedOptimiser
    losses: torch.Tensor
    steps: ledger.Ledger
    constants: dict[int, torch.Tensor]

    @torch.no_grad()
    def replay(self, leaves: Sequence[Found], optimiser: StackedOptimiser, start: float) -> torch.Tensor:
        """A round's fit; its losses (K,)."""
        values = [leaves[place].value for place in self.read]
        self.given.send(start)
        _copy(self.places, values)
        self.again()
        _copy([values[at] for at in self.written], [self.places[at] for at in self.written])
        for name, slots in self.own.state.items():
            optimiser.state.setdefault(name, {slot: _copied(value) for slot, value in slots.items()})
        optimiser.steps = {name: steps + (start - self.given.start) for name, steps in self.own.steps.items()}
        ledger.again(self.steps)
        return self.losses.clone()


def _copied(value: torch.Tensor) -> torch.Tensor:
    rows = rows_of(value)
    return value.clone() if rows is None else in_parts(rows.copy())


def _core(value: torch.Tensor) -> torch.Tensor:
    """Without the repetitions of what is expanded."""
    for axis, stride in enumerate(value.stride()):
        if stride == 0 and value.shape[axis] > 1:
            value = value.narrow(axis, 0, 1)
    return value


def _alike(value: torch.Tensor) -> torch.Tensor:
    """Memory for the same, with its strides."""
    own = _core(value)
    return torch.empty_strided(own.shape, own.stride(), dtype=own.dtype, device=own.device).expand(value.shape)


def _copy(to: Sequence[torch.Tensor], values: Sequence[torch.Tensor]) -> None:
    if to:
        torch._foreach_copy_([_core(own) for own in to], [_core(value) for value in values])
