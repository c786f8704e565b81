"""The actor on a node of a Ray cluster. It has one worker process, the same as on a single machine.

The actor does not import torch: it passes on pickled messages and watches its process. Errors, timeouts and memory
limits of cells therefore have the same effects as on a single machine.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import sys
import tempfile
import time
from dataclasses import replace
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

from .process import KEEP, ROUND, Options, WorkerProcess
from .system import Ending

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
