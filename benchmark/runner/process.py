"""One worker process as its parent sees it: start, give it a cell, hear from it, and find out how it ended."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import psutil
from filelock import FileLock

from ..store import Store
from ..store.provenance import now
from . import worker
from .memory import oom_kills
from .plan import Item

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


@dataclass
class Assignment:
    """A cell that a worker has in hand."""

    item: Item
    claim: FileLock
    started: str  # UTC
    since: float  # monotonic seconds
    oom_kills: int | None
    round: int = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since


class WorkerProcess:
    """A spawned process with a pipe to it. `task` is what it works on; `ready` once it has imported everything."""

    def __init__(self, store: Store, number: int, options: worker.Options, stamp: dict[str, Any]) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.log = store.log_file(f"worker-{os.getpid()}-{number}")
        arguments = theirs, str(store.root), str(self.log), options, stamp
        self.process = context.Process(target=worker.main, args=arguments, daemon=True)
        with _thread_limit(options.threads):
            self.process.start()
        theirs.close()
        self.ready = False
        self.task: Assignment | None = None
        self.last_federation = ""

    def give(self, item: Item, claim: FileLock) -> None:
        self.task = Assignment(item, claim, now(), time.monotonic(), oom_kills())
        self.last_federation = item.cell.federation_key
        self.pipe.send((item.suite, item.cell))

    def memory(self) -> int:
        """Resident bytes."""
        with suppress(psutil.Error):
            return int(psutil.Process(self.process.pid).memory_info().rss)
        return 0

    def kill(self) -> None:
        """End it, if it has not ended, and discard its log."""
        self.process.kill()
        self.process.join()
        self.pipe.close()
        self.log.unlink(missing_ok=True)

    def ending(self) -> tuple[str, str]:
        """(status, reason) of a process that ended by itself while it had a task or was starting."""
        self.process.join()
        code = self.process.exitcode or 0
        before, after = (self.task.oom_kills if self.task else None), oom_kills()
        if code == -signal.SIGKILL and before is not None and after is not None and after > before:
            return "oom", "the worker was killed by the system for lack of memory; try fewer --jobs"
        if code < 0:
            with suppress(ValueError):
                return "failed", f"the worker was killed by {signal.Signals(-code).name}{self._last_words()}"
        return "failed", f"the worker ended with exit code {code}{self._last_words()}"

    def _last_words(self) -> str:
        with suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            said = [line.strip() for line in lines if "Error" in line or "error" in line]
            return f": {said[-1][:300]}" if said else ""
        return ""


@contextmanager
def _thread_limit(threads: int) -> Iterator[None]:
    """The environment that a child inherits: its OpenMP and MKL read these when they are loaded, never later."""
    before = {name: os.environ[name] for name in THREAD_VARIABLES if name in os.environ}
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(threads)))
    try:
        yield
    finally:
        for name in THREAD_VARIABLES:
            os.environ.pop(name, None)
        os.environ.update(before)
