"""The process that runs cells. It imports torch once, runs cell after cell, and dies with its parent."""

from __future__ import annotations

import faulthandler
import os
import pickle
import threading
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .interrupts import ignore
from .offspring import adopt, end_descendants

READY, ROUND, DONE = "ready", "round", "done"  # what a worker says
RUN, KEEP = "run", "keep"  # what it is told


@dataclass(frozen=True)
class Options:
    """How to run. jobs: workers (None: one a core). timeout: seconds a cell (0 or None: any). memory_limit: GiB a
    worker. embeddings: keep those of each cell's best round in a side file. backend: processes or ray. address: of a
    running Ray cluster (None: that of RAY_ADDRESS, or of this machine, or a new one). device: as `gpus.resolved` says;
    of a worker, its own. fleet: run cells that differ in their seed as one program (None: on GPUs). graphs: replay
    local training as CUDA graphs on GPUs. A worker is handed them before it has imported anything, so they are defined
    here."""

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
    fleet: bool | None = None
    graphs: bool = True

    def workers(self, cells: int) -> int:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(self.jobs or cores // self.threads, cells))

    def told(self, cells: int) -> str:
        """What will run so many cells: "2 workers, 1 thread each"."""
        number, threads = self.workers(cells), f"{self.threads} thread{'s' * (self.threads > 1)} each"
        threads += f", on {self.device}" * (self.device != "cpu")
        if self.backend == "ray":
            return f"workers on {self.address or 'Ray'}, {threads}"
        if self.device == "cuda" and not self.jobs:
            return f"a worker for each GPU, {threads}"
        return f"{number} worker{'s' * (number > 1)}, {threads}"


def main(pipe: Connection, log: str, options: Options) -> None:
    """Do what comes through `pipe`, and answer each cell with its row and the side files that belong beside it.

    It is told (RUN, suite, cells), one or those of a fleet, and (KEEP, ...) with what `shipping.keep` takes. It says
    (READY, columns, description, cached), of `stamped` and `held`; then (ROUND, which cell, n, figures), and at last
    (DONE, pickled rows, side files by place of each, spent). Rows are pickled apart, so that who passes them on need
    not import what they are made of; of a fleet that failed it is the reason, and its cells are to be run one by one.
    spent: a thread of theirs lives on. What is printed goes to the file `log`, as does the stack of a crash.
    """
    ignore()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    adopt()
    _redirect_output(log)
    warnings.filterwarnings("ignore")

    import torch

    from ..store.parcel import Parcel
    from ..suites.plugins import load_plugins
    from .execute import FederationCache, execute_all
    from .gpus import opened
    from .shipping import held, keep
    from .stamp import stamped

    torch.set_num_threads(options.threads)
    load_plugins(options.plugins)
    federations, device = FederationCache(), opened(options.device, options.graphs)
    columns, about = stamped(options.threads, options.submitter, str(device))
    pipe.send((READY, columns, about, held()))
    ours, tell = set(threading.enumerate()), partial(_tell, pipe)
    with suppress(EOFError):
        while True:
            word, *values = pipe.recv()
            if word == KEEP:
                keep(*values)
                continue
            suite, cells = values
            parcels = [Parcel() for _ in cells]
            made = execute_all(cells, suite, parcels, federations, columns, tell, options.embeddings, device)
            _answer(pipe, made, [parcel.contents for parcel in parcels], ours)


def _answer(pipe: Connection, made: Any, side_files: list[dict[str, bytes]], ours: set[threading.Thread]) -> None:
    pipe.send((DONE, pickle.dumps(made), side_files, bool(set(threading.enumerate()) - ours)))


def _tell(pipe: Connection, *of_round: Any) -> None:
    pipe.send((ROUND, *of_round))


def _die_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        wait([parent.sentinel])
        end_descendants()
        os._exit(1)


def _redirect_output(log: str) -> None:
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
    faulthandler.enable()
