"""Where the time of a round goes: named sections that cost nothing unless someone is measuring."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_active: dict[str, float] | None = None
_stack: list[list[float]] = []


class section:
    """`with section("dense"):` adds the block's own wall seconds, nested sections excluded, to the measurement.

    `@section("dense")` does so for every call of a function.
    """

    __slots__ = ("name", "start")

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        if _active is not None:
            _stack.append([0.0])
            self.start = time.perf_counter()

    def __exit__(self, *exc: object) -> None:
        if _active is not None and _stack:
            elapsed = time.perf_counter() - self.start
            inner = _stack.pop()[0]
            _active[self.name] += elapsed - inner
            if _stack:
                _stack[-1][0] += elapsed

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def timed(*args: P.args, **kwargs: P.kwargs) -> R:
            with section(self.name):
                return function(*args, **kwargs)

        return timed


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
