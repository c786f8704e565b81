"""Where the time of a round goes: named sections that cost nothing unless someone is measuring."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Iterator

from .device import settle

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
