"""The process that runs cells. It imports torch once, runs cell after cell, and dies with its parent."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import warnings
from dataclasses import dataclass
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

READY, ROUND, DONE, BROKEN = "ready", "round", "done", "broken"


@dataclass(frozen=True)
class Options:
    """How to run. jobs: worker processes (None: one a core). timeout: seconds a cell (0 or None: any). memory_limit:
    GiB a worker. embeddings: keep those of each cell's best round in a side file. A worker is handed them before it
    has imported anything, so they are defined here."""

    jobs: int | None = None
    threads: int = 1
    timeout: float | None = 3600.0
    memory_limit: float | None = None
    submitter: str = ""
    plugins: tuple[str, ...] = ()
    embeddings: bool = False

    def workers(self, cells: int) -> int:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(self.jobs or cores // self.threads, cells))


def main(pipe: Connection, results: str, log: str, options: Options, stamp: dict[str, Any]) -> None:
    """Answer each (suite, cell) that comes through `pipe` with a row; ("round", n, figures) tells of the progress.

    A results folder that fails (full, gone) is ("broken", one line): the row cannot be kept, so the run must stop.
    What the cell prints goes to the file `log`, as does the stack of a crash.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent decides
    threading.Thread(target=_die_with_parent, daemon=True).start()
    _redirect_output(log)
    warnings.filterwarnings("ignore")

    import torch

    from ...registry import UserError
    from ..store import Store
    from ..suites.plugins import load_plugins
    from .execute import FederationCache, execute

    torch.set_num_threads(options.threads)
    load_plugins(options.plugins)
    store, federations = Store(results), FederationCache()

    pipe.send((READY,))
    while True:
        try:
            suite, cell = pipe.recv()
        except EOFError:
            return
        try:
            row = execute(cell, suite, store, federations, stamp, lambda *r: pipe.send((ROUND, *r)), options.embeddings)
            pipe.send((DONE, row))
        except UserError as error:
            pipe.send((BROKEN, str(error)))


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _redirect_output(log: str) -> None:
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    faulthandler.enable()
