"""The process that runs cells. It imports torch once, runs cell after cell, and dies with its parent."""

from __future__ import annotations

import base64
import faulthandler
import json
import os
import threading
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from .system import adopt, end_descendants, ignore

READY, ROUND, DONE = "ready", "round", "done"  # what a worker says
RUN, KEEP = "run", "keep"  # what it gets as a command


@dataclass(frozen=True)
class Options:
    """How to run. jobs: workers (None: one a core). timeout: seconds a cell (0 or None: any). memory_limit: GiB
    a worker. embeddings, models: keep those of each cell's best round in a side file. backend: processes or ray.
    address: of a running Ray cluster (None: that of RAY_ADDRESS, or of this machine, or a new one). device: as
    `gpus.resolved` says; of a worker, its own. folders: of the user's own data, on this machine, as
    `known_folders` has them. A worker gets them before it has imported anything, so they are defined here."""

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

    def workers(self, cells: int) -> int:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(self.jobs or cores // self.threads, cells))

    def told(self, cells: int) -> str:
        """What will run this number of cells: "2 workers, 1 thread each"."""
        number, threads = self.workers(cells), f"{self.threads} thread{'s' * (self.threads > 1)} each"
        threads += f", on {self.device}" * (self.device != "cpu")
        if self.backend == "ray":
            return f"workers on {self.address or 'Ray'}, {threads}"
        if self.device == "cuda" and not self.jobs:
            return f"a worker for each GPU, {threads}"
        return f"{number} worker{'s' * (number > 1)}, {threads}"


def main(pipe: Connection, log: str, options: Options) -> None:
    """Do what comes through `pipe`, and answer each cell with its row and the side files that belong beside it.

    Messages to it: (RUN, suite, cell), and (KEEP, ...) with the arguments of `dataset_transfer.keep`. Messages from it:
    (READY, columns, description, cached), of `stamped` and `held`; then (ROUND, n, figures), and at last
    (DONE, values of the row by column, side files by path, spent). They come as JSON and are never unpickled: a worker
    runs code from outside. spent: a thread of the cell is still running. Printed output and the stack of a crash
    go to the file `log`.
    """
    ignore()
    threading.Thread(target=_die_with_parent, daemon=True).start()
    adopt()
    _redirect_output(log)
    warnings.filterwarnings("ignore")

    import torch

    from ...datasets.own_data import add_folders
    from ..store.provenance import stamped
    from ..store.side_files import Parcel
    from ..suites.plugins import load_plugins
    from .dataset_transfer import held, keep
    from .execute import FederationCache, execute
    from .gpus import opened

    torch.set_num_threads(options.threads)
    load_plugins(options.plugins)
    add_folders(options.folders)
    federations, device = FederationCache(), opened(options.device)
    columns, about = stamped(options.threads, options.submitter, str(device))
    _send(pipe, READY, columns, about, held())
    ours, tell = set(threading.enumerate()), partial(_tell, pipe)
    with suppress(EOFError):
        while True:
            word, *values = pipe.recv()
            if word == KEEP:
                keep(*values)
                continue
            suite, cell = values
            parcel = Parcel()
            row = execute(cell, suite, parcel, federations, columns, tell, options.embeddings, device, options.models)
            files = {place: base64.b64encode(data).decode() for place, data in parcel.contents.items()}
            _send(pipe, DONE, row.model_dump(mode="json"), files, bool(set(threading.enumerate()) - ours))


def _tell(pipe: Connection, *of_round: Any) -> None:
    _send(pipe, ROUND, *of_round)


def _send(pipe: Connection, *message: Any) -> None:
    pipe.send_bytes(json.dumps(message, default=float).encode())


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
