"""What a run spends: optimiser steps of its clients, counted where they are taken, and the seconds of named sections.

A section costs nothing unless someone is measuring.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from .device import settle

_Entry = tuple[tuple[int, ...], tuple[str, ...]]  # clients, and the parameters that a step moved
EVERYONE = -1  # in the place of a client: steps of an optimiser that does not say whose it is
_open: StepCounter | None = None


class StepCounter:
    """Steps of a run, by clients and parameters."""

    def __init__(self) -> None:
        self._entries: Counter[_Entry] = Counter()
        self.of_torch = 0  # steps of optimisers of torch.optim among them

    def add(self, clients: tuple[int, ...], names: tuple[str, ...]) -> None:
        """A step of these clients on these parameters. No client named: all of them."""
        self._entries[clients, names] += 1

    @property
    def total(self) -> int:
        """Steps of all clients: those of clients that step together count once."""
        return self._entries.total()

    def most(self, *, of_a_parameter: bool = False) -> int:
        """Steps of the client that took most; or the most that a client took on one parameter.

        Clients that train two models side by side, each for an epoch, take twice the steps that a parameter gets.
        """
        steps: Counter[tuple[int, str]] = Counter()
        for (clients, names), count in self._entries.items():
            for client in clients or (EVERYONE,):
                for name in names if of_a_parameter else ("",):
                    steps[client, name] += count
        return max((n + steps[EVERYONE, p] * (client != EVERYONE) for (client, p), n in [*steps.items()]), default=0)


@contextlib.contextmanager
def counting() -> Iterator[StepCounter]:
    """Yield a new step counter that counts every optimiser step inside the block."""
    global _open
    before, _open = _open, StepCounter()
    try:
        yield _open
    finally:
        _open = before


def enter(clients: Sequence[int], names: Sequence[str], active: Sequence[int] | None) -> None:
    """Count a step of a client batch's optimiser; active: positions of the clients that take it (None: all)."""
    if _open is not None:
        moved = tuple(clients) if active is None else tuple(clients[p] for p in active if clients)
        _open.add(moved, tuple(names))


def enter_torch(client: int, names: Sequence[str]) -> None:
    """A step of an optimiser of torch.optim at one client (`TorchMethod`)."""
    if _open is not None:
        _open.of_torch += 1
        _open.add((client,), tuple(names))


_active: dict[str, float] | None = None
_stack: list[list[float]] = []  # of each open section its start, and the seconds of those nested in it


class section(contextlib.ContextDecorator):
    """`with section("dense"):` adds the block's own wall seconds, nested sections excluded, to the measurement.

    `@section("dense")` does so for every call of a function.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        if _active is not None:
            settle()
            _stack.append([time.perf_counter(), 0.0])

    def __exit__(self, *exc: object) -> None:
        if _active is not None and _stack:
            settle()
            start, inner = _stack.pop()
            elapsed = time.perf_counter() - start
            _active[self.name] += elapsed - inner
            if _stack:
                _stack[-1][1] += elapsed


@contextlib.contextmanager
def measure() -> Iterator[dict[str, float]]:
    """Collect the seconds of every section that runs inside the block; yields the growing table."""
    global _active
    table: dict[str, float] = defaultdict(float)
    _active, before = table, _active
    try:
        yield table
    finally:
        _active = before
        _stack.clear()
