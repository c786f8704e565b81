"""The device of a run, what stays on the host, seconds of sections, the heap of glibc. `placing.on` starts a run."""

from __future__ import annotations

import ctypes
import platform
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ContextDecorator, contextmanager
from functools import cache
from typing import Any

import torch

HOST = torch.device("cpu")
_here = HOST


def here() -> torch.device:
    """The device of the run; the host outside of a run and within `on_host`."""
    return _here


def compute_on(device: torch.device) -> None:
    """Set the device of the run (see `placing.on`)."""
    global _here
    _here = device


def placed(value: torch.Tensor) -> torch.Tensor:
    """The tensor on the device of the run."""
    return value.to(_here)


class on_host(ContextDecorator):
    """Compute on the host within the block or the decorated function: to build graphs, to draw initial weights."""

    def __enter__(self) -> None:
        self._before = _here
        compute_on(HOST)

    def __exit__(self, *exc: object) -> None:
        compute_on(self._before)

    def _recreate_cm(self) -> on_host:
        return on_host()


def settle() -> None:
    """Wait until the device has finished its work, so that measured seconds are right."""
    if _here.type == "cuda":
        torch.cuda.synchronize(_here)


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of mallopt(3)


@cache
def _glibc() -> Any:
    """The C library if it is glibc; None for others (musl, macOS, Windows)."""
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


@cache
def keep_freed() -> bool:
    """Let glibc allocate every block from its heap and keep 1 GiB of free heap; return whether it accepted this.

    By default it returns large blocks to the system when they are freed and maps them again: one page fault per 4 KiB
    of new gradients, which made the input product of a Cora round three times as slow. A higher threshold does not
    help: its maximum, 32 MiB, is 131,072 rows of 64 floats.
    """
    libc = _glibc()
    return libc is not None and bool(libc.mallopt(_MMAP_MAX, 0)) and bool(libc.mallopt(_TRIM_THRESHOLD, 2**30))


def give_back() -> None:
    """Return all free pages of the heap to the system: between large computations whose blocks differ in size."""
    if _glibc() is not None:
        _glibc().malloc_trim(0)


_active: dict[str, float] | None = None
_stack: list[list[float]] = []  # for each open section its start and the seconds of the sections inside it


class section(ContextDecorator):
    """`with section("dense"):` adds the wall seconds of the block, without nested sections, to the measurement.

    `@section("dense")` measures every call of a function.
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


@contextmanager
def measure() -> Iterator[dict[str, float]]:
    """Collect the seconds of every section that runs inside the block; yields the table that is filled."""
    global _active
    table: dict[str, float] = defaultdict(float)
    _active, before = table, _active
    try:
        yield table
    finally:
        _active = before
        _stack.clear()
