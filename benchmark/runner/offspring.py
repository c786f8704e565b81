"""Processes that a cell starts: they end with it, and their time is the cell's."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil

MARK = "FGLBENCH_WORKER"  # in the environment of a worker and of all that it starts
_SET_CHILD_SUBREAPER = 36  # option of prctl(2)
_GRACE = 5.0  # seconds until a killed process is given up


def cpu_seconds() -> float:
    """Of this process, all threads, and of its children that have been waited for."""
    times = os.times()  # in ticks of 10 ms, of which the smallest cells take none: hence the finer clock for our own
    return time.process_time() + times.children_user + times.children_system


def adopt() -> None:
    """Become the parent of descendants whose own has ended, where the system can do that (Linux)."""
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def ended_with() -> Iterator[None]:
    """What the block starts ends with it: descendants of this process that were not there before."""
    before = {child.pid for child in _descendants()}
    try:
        yield
    finally:
        end([child for child in _descendants() if child.pid not in before])


def end_descendants(pid: int | None = None) -> None:
    """End all that a process (None: this one) has started."""
    end(_descendants(pid))


def end_marked(mark: str) -> None:
    """End all processes with a mark in their environment, whoever is their parent by now."""
    end([process for process in psutil.process_iter() if _mark_of(process) == mark])


def end(processes: list[psutil.Process]) -> None:
    """Kill processes and wait until they are gone."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, _GRACE)


def _descendants(pid: int | None = None) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def _mark_of(process: psutil.Process) -> str | None:
    with suppress(psutil.Error, OSError):
        return process.environ().get(MARK)
    return None
