"""Workers as processes of this machine: start one, give it a cell, hear from it, and find out how it ended."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from ..suites.main_script import GUARD, UNGUARDED, importable_main
from . import worker
from .gpus import devices, emptiest
from .system import ENDING, MARK, Ending, deaf_children, end_descendants, end_marked, oom_kills

if TYPE_CHECKING:  # a node of a cluster starts processes too, and need not import what a cell is
    from ..store import Store
    from ..suites.cell import Cell

# Exit codes of processes ended from outside: no method's error ends a process so.
FROM_OUTSIDE = (-getattr(signal, "SIGKILL", 9), *(-number for number in ENDING))
THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class Processes:
    """The backend of one machine."""

    def __init__(self, options: worker.Options, store: Store) -> None:
        self.options, self.store, self.started = options, store, 0
        self.devices = devices(options.device)
        self.workers = list[WorkerProcess]()

    def size(self, cells: int) -> int:
        """One worker per GPU, unless more are asked for: they share its memory."""
        if self.options.device == "cpu":
            return self.options.workers(cells)
        return max(1, min(self.options.jobs or len(self.devices), cells))

    def start(self, plugins: bool) -> WorkerProcess:
        self.started += 1
        self.workers = [worker for worker in self.workers if worker.process.is_alive()]
        device = emptiest(self.devices, (worker.device for worker in self.workers))
        options = replace(self.options, device=device, plugins=self.options.plugins if plugins else ())
        self.workers.append(WorkerProcess(self.store.log_file(f"worker-{os.getpid()}-{self.started}"), options))
        return self.workers[-1]

    def wait(self, workers: Sequence[WorkerProcess], seconds: float) -> None:
        wait([end for one in workers for end in (one.pipe, one.process.sentinel)], seconds)

    def close(self) -> None:
        pass


class WorkerProcess:
    """A spawned process with a pipe to it. log: a file for what it prints, while it lives."""

    def __init__(self, log: Path, options: worker.Options) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, theirs = context.Pipe()
        self.log, self.device = log, options.device
        self.process = context.Process(target=worker.main, args=(theirs, str(log), options), daemon=True)
        self.mark = f"{os.getpid()}-{uuid.uuid4().hex}"
        self.oom_kills: int | None = None
        importable_main()
        resource_tracker.ensure_running()  # outlives the worker, and is not to carry its mark
        given = {**dict.fromkeys(THREAD_VARIABLES, str(options.threads)), MARK: self.mark}
        with _environment(given), deaf_children():
            self.process.start()
        theirs.close()

    def give(self, suite: str, cell: Cell) -> None:
        self.hand(pickle.dumps((worker.RUN, suite, cell)))

    def hand(self, told: bytes) -> None:
        """Give what is pickled already."""
        self.oom_kills = oom_kills()
        with suppress(OSError):  # it has just died: `ended` says how
            self.pipe.send_bytes(told)

    def poll(self) -> Iterator[tuple[Any, ...]]:
        with suppress(EOFError, OSError):  # a dying worker: `ended` says how
            while self.pipe.poll():
                yield tuple(json.loads(self.pipe.recv_bytes()))

    def ended(self) -> Ending | None:
        if self.process.is_alive():
            return None
        self.process.join()
        code = self.process.exitcode or 0
        if self._out_of_memory():
            return Ending("oom", "the worker was killed by the system for lack of memory; try fewer --jobs")
        if code < 0:
            outside = code in FROM_OUTSIDE
            with suppress(ValueError):
                told = f"the worker was killed by {signal.Signals(-code).name}" + ", twice" * outside
                unknown = code == -signal.SIGKILL and oom_kills() is None
                told += " (perhaps for lack of memory)" * unknown
                return Ending("failed", told + self._last_words(), outside)
        if code == UNGUARDED:
            return Ending("failed", GUARD)
        return Ending("failed", f"the worker ended with exit code {code}{self._last_words()}")

    def memory(self) -> int:
        with suppress(psutil.Error):
            return int(psutil.Process(self.process.pid).memory_info().rss)
        return 0

    def kill(self) -> None:
        """End it, if it has not ended, with all that it has started, and discard its log."""
        if self.process.is_alive():
            end_descendants(self.process.pid)
        self.process.kill()
        self.process.join()
        end_marked(self.mark)
        self.pipe.close()
        self.log.unlink(missing_ok=True)

    def _out_of_memory(self) -> bool:
        """Whether the system has counted such a kill since the process got its task; where it counts none, False."""
        before, after = self.oom_kills, oom_kills()
        return self.process.exitcode == -signal.SIGKILL and None not in (before, after) and after != before

    def _last_words(self) -> str:
        with suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            said = [line.strip() for line in lines if "Error" in line or "error" in line]
            return f": {said[-1][:300]}" if said else ""
        return ""


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """The environment that a child inherits: its OpenMP and MKL read theirs when they are loaded, never later."""
    before = {name: os.environ[name] for name in values if name in os.environ}
    os.environ.update(values)
    try:
        yield
    finally:
        for name in values:
            os.environ.pop(name, None)
        os.environ.update(before)
