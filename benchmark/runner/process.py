"""Workers as processes of this machine: start, give a cell, read messages, find out how it ended.

`main` is the function of such a process: it runs cell after cell, and ends if its parent ends.
`Host`, the actor on a node of a Ray cluster, has one such process. It does not import torch: it passes on pickled
messages and watches its process. Errors, timeouts and memory limits of cells therefore have the same effects as on a
single machine.
"""

from __future__ import annotations

import base64
import faulthandler
import importlib.util
import json
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from ...processes import GUARD, UNGUARDED, start
from .system import (
    ENDING,
    Ending,
    adopt,
    devices,
    emptiest,
    end_descendants,
    end_marked,
    oom_kills,
)

if TYPE_CHECKING:
    from ..store import Store
    from ..suites.cell import Cell


# Exit codes of processes that were killed from outside, not by an error of a method.
FROM_OUTSIDE = (-getattr(signal, "SIGKILL", 9), *(-number for number in ENDING))
SERVER_ENDED = 255  # what multiprocessing gives as exit code if the fork server has ended: the worker may be running


class Processes:
    """The backend of one machine."""

    def __init__(self, options: Options, store: Store) -> None:
        self.options, self.store, self.started = options, store, 0
        self.devices = devices(options.device)
        self.workers = list[WorkerProcess]()

    def size(self, cells: int) -> int:
        """On GPUs one worker per GPU, unless `jobs` gives another number: workers share the GPU's memory."""
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


LATE = 0.1  # seconds after which a started process has its environment


class WorkerProcess:
    """A process with a pipe to it. log: a file for its output, deleted by `kill`."""

    def __init__(self, log: Path, options: Options) -> None:
        self.pipe, child_end = multiprocessing.Pipe()
        self.log, self.device = log, options.device
        self.mark = uuid.uuid4().hex
        self.oom_kills: int | None = None
        self.process = start(main, child_end, str(log), options, threads=options.threads, mark=self.mark)
        child_end.close()

    def give(self, suite: str, cell: Cell) -> None:
        self.hand(pickle.dumps((RUN, suite, cell)))

    def hand(self, message: bytes) -> None:
        """Send a pickled message."""
        self.oom_kills = oom_kills()
        with suppress(OSError):  # the worker has just died, see `ended`
            self.pipe.send_bytes(message)

    def poll(self) -> Iterator[tuple[Any, ...]]:
        with suppress(EOFError, OSError):  # the worker is dying, see `ended`
            while self.pipe.poll():
                yield tuple(json.loads(self.pipe.recv_bytes()))

    def ended(self) -> Ending | None:
        if self.process.is_alive():
            return None
        self.process.join()
        code = self.process.exitcode or 0
        before, after = self.oom_kills, oom_kills()
        if self.process.exitcode == -signal.SIGKILL and None not in (before, after) and after != before:
            return Ending("oom", "the worker was killed by the system for lack of memory; try fewer --jobs")
        if code == SERVER_ENDED and psutil.pid_exists(self.process.pid or 0):
            return Ending("failed", "the process that started the worker was killed, twice", outside=True)
        if code < 0:
            outside = code in FROM_OUTSIDE
            with suppress(ValueError):
                reason = f"the worker was killed by {signal.Signals(-code).name}" + ", twice" * outside
                unknown = code == -signal.SIGKILL and oom_kills() is None
                reason += " (perhaps for lack of memory)" * unknown
                return Ending("failed", reason + self._last_error(), outside)
        if code == UNGUARDED:
            return Ending("failed", GUARD)
        return Ending("failed", f"the worker ended with exit code {code}{self._last_error()}")

    def memory(self) -> int:
        with suppress(psutil.Error):
            return int(psutil.Process(self.process.pid).memory_info().rss)
        return 0

    def kill(self) -> None:
        """End the process, if it has not ended, and all that it has started, and delete its log."""
        died = not self.process.is_alive()
        if not died:
            end_descendants(self.process.pid)
        self.process.kill()
        self.process.join()
        end_marked(self.mark)
        if died:  # a process that it started last may not have had its environment yet
            time.sleep(LATE)
            end_marked(self.mark)
        self.pipe.close()
        self.log.unlink(missing_ok=True)

    def _last_error(self) -> str:
        """The last line of the log with an error, after a colon; else ""."""
        with suppress(OSError):
            lines = self.log.read_text(errors="replace").split("\n")
            errors = [line.strip() for line in lines if "Error" in line or "error" in line]
            return f": {errors[-1][:300]}" if errors else ""
        return ""


MOST_THREADS = 1024  # per worker; the system refuses to start many more
LEAST = {"jobs": 1, "threads": 1, "timeout": 0, "memory_limit": 0.1}  # smallest values of options
READY, ROUND, DONE = "ready", "round", "done"  # messages from a worker
RUN, KEEP = "run", "keep"  # messages to a worker


@dataclass(frozen=True)
class Options:
    """How to run. jobs: number of workers (None: one per core). timeout: seconds per cell (0 or None: no limit).
    memory_limit: GiB per worker. embeddings, models: store those of each cell's best round in a side file. backend:
    processes or ray. address: of a running Ray cluster (None: RAY_ADDRESS, else that of this machine, else a new one).
    device: see `system.resolved`; for a worker, its device. folders: of the user's own data on this machine, see
    `known_folders`. Defined here because a worker unpickles its options before it imports anything else."""

    jobs: int | None = None
    threads: int = 1
    timeout: float | None = 3600.0
    memory_limit: float | None = None
    submitter: str = ""
    plugins: tuple[str, ...] = ()
    embeddings: bool = False
    backend: str = "processes"
    address: str | None = None
    device: str = "cpu"
    folders: tuple[tuple[str, str, tuple[tuple[str, int, int], ...]], ...] = ()
    models: bool = False

    def check(self) -> None:
        """Raise UserError for a wrong number, backend, address or submitter."""
        from ...registry import UserError, did_you_mean  # a host on a node of a Ray cluster needs neither
        from ..store.schema import FORMULA, RULES

        for name, least in LEAST.items():
            value, whole = getattr(self, name), name in ("jobs", "threads")
            sound = isinstance(value, int if whole else int | float) and not isinstance(value, bool) and value >= least
            if not sound and not (value is None and name != "threads"):
                raise UserError(f"{name} is a {'whole ' * whole}number of at least {least}, got {value!r:.60}")
        if self.threads > MOST_THREADS:
            raise UserError(f"threads is at most {MOST_THREADS}, got {self.threads}; one is best for small graphs")
        if self.backend not in ("processes", "ray"):
            raise did_you_mean(f"{self.backend!s:.60}", ("processes", "ray"), "backend")
        if self.address and self.backend != "ray":
            raise UserError(f"the address {self.address!r:.100} is that of a Ray cluster: add --backend ray")
        name = self.submitter
        short = isinstance(name, str) and name.isprintable() and len(name) <= RULES["submitter"].longest
        if not short or name.startswith(FORMULA):
            raise UserError(f"the submitter {name!r:.100} is no name: one short line of printable characters")

    def workers(self, cells: int) -> int:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(self.jobs or cores // self.threads, cells))

    def told(self, cells: int) -> str:
        """The workers for this number of cells in words: "2 workers, 1 thread each"."""
        number, threads = self.workers(cells), f"{self.threads} thread{'s' * (self.threads > 1)} each"
        threads += f", on {self.device}" * (self.device != "cpu")
        if self.backend == "ray":
            return f"workers on {self.address or 'Ray'}, {threads}"
        if self.device == "cuda" and not self.jobs:
            return f"a worker for each GPU, {threads}"
        return f"{number} worker{'s' * (number > 1)}, {threads}"


def main(pipe: Connection, log: str, options: Options) -> None:
    """The main function of a worker: run the cells from `pipe`, answer each with its row and side files.

    Messages to it: (RUN, suite, cell), and (KEEP, ...) with the arguments of `own_data.keep`. Messages from it:
    (READY, columns, description, cached), of `stamped` and `held`; per cell (ROUND, n, figures) several times, then
    (DONE, values of the row by column, side files by path, spent). They are sent as JSON, which is safe to read from a
    worker that runs code from outside. spent: a thread of the cell is still running. Output and the stack of a crash go
    to the file `log`.
    """
    threading.Thread(target=_die_with_parent, daemon=True).start()
    adopt()
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    faulthandler.enable()
    warnings.filterwarnings("ignore")

    import torch

    from ...datasets.own_data import add_folders, held, keep
    from ..store.provenance import stamped
    from ..store.side_files import Parcel
    from ..suites.plugins import load_plugins
    from .execute import FederationCache, execute
    from .system import opened

    torch.set_num_threads(options.threads)
    load_plugins(options.plugins)
    add_folders(options.folders)
    federations, device = FederationCache(), opened(options.device)
    columns, about = stamped(options.threads, options.submitter, str(device))
    _send(pipe, READY, columns, about, held())
    own_threads, on_round = set(threading.enumerate()), partial(_send_round, pipe)
    with suppress(EOFError):
        while True:
            word, *values = pipe.recv()
            if word == KEEP:
                keep(*values)
                continue
            suite, cell = values
            parcel, kept = Parcel(), (options.embeddings, device, options.models)
            row = execute(cell, suite, parcel, federations, columns, on_round, *kept)
            files = {place: base64.b64encode(data).decode() for place, data in parcel.contents.items()}
            _send(pipe, DONE, row.model_dump(mode="json"), files, bool(set(threading.enumerate()) - own_threads))


def _send_round(pipe: Connection, number: int, figures: dict[str, float]) -> None:
    _send(pipe, ROUND, number, figures)


def _send(pipe: Connection, *message: Any) -> None:
    pipe.send_bytes(json.dumps(message, default=float).encode())


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        end_descendants()
        os._exit(1)


LOOK = 0.2  # seconds between measurements of the process's memory


class News(NamedTuple):
    """A report of a host. said: messages of its worker. memory: resident bytes. ending: how it ended, or None."""

    said: list[tuple[Any, ...]]
    memory: int
    ending: Ending | None


class Host:
    """The actor. Two threads may use it at the same time: one in `listen`, one in `give` or `end`."""

    def __init__(self, options: Options) -> None:
        vars(sys.modules["__main__"]).pop("__file__", None)  # a script of Ray, which a spawned process would import
        handle, log = tempfile.mkstemp(prefix="fglbench-worker-", suffix=".txt")
        os.close(handle)
        plugins = tuple(shipped_plugin(name) for name in options.plugins)
        self.limit = options.memory_limit * 2**30 if options.memory_limit else float("inf")
        self.process = WorkerProcess(Path(log), replace(options, plugins=plugins))

    def give(self, message: bytes, dataset: str = "", sha256: str = "", data: bytes | None = None) -> None:
        """Pass a cell to the worker, after its data if this node does not have them."""
        if data is not None:
            self.process.hand(pickle.dumps((KEEP, dataset, sha256, data)))
        self.process.hand(message)

    def listen(self, seconds: float) -> News:
        """The next report: at once if there is more than progress, else after this time."""
        begun, looked, memory, said = time.monotonic(), 0.0, 0, list[tuple[Any, ...]]()
        while True:
            ending = self.process.ended()
            said += self.process.poll()  # after `ended`, so that no last message is lost
            now = time.monotonic()
            if now > looked + LOOK:
                looked, memory = now, self.process.memory()
            more = any(word != ROUND for word, *_ in said)
            if ending or more or memory > self.limit or now > begun + seconds:
                return News(said, memory, ending)
            wait([self.process.pipe, self.process.process.sentinel], LOOK)

    def end(self) -> None:
        self.process.kill()


def shipped_plugin(name: str) -> str:
    """The argument of `load_plugins` for a plug-in on this node; a file is in a folder of the runtime environment."""
    if not name.endswith(".py"):
        return name
    spec = importlib.util.find_spec(Path(name).stem)
    if spec is None or spec.origin is None:
        raise ImportError(f"plug-in {name!r} did not reach the node; put it on the node's PYTHONPATH")
    return spec.origin
