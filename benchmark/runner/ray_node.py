"""On a node of a Ray cluster: an actor that has one worker process, of the kind that a single machine runs.

The actor does not import torch: it passes on what is pickled, and looks after its process. So
a cell ends on a node as it ends at home: by its own fault, by timeout or memory limit, with all that it has started.
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

LOOK = 0.2  # seconds between looks at the process's memory


class News(NamedTuple):
    """What a host tells at a time: what its worker said, its resident bytes, how it ended if it did."""

    said: list[tuple[Any, ...]]
    memory: int
    ending: Ending | None


class Host:
    """The actor. Two threads may be in it: one in `listen`, one in `give` or `end`."""

    def __init__(self, options: Options) -> None:
        vars(sys.modules["__main__"]).pop("__file__", None)  # Ray's own: a spawned process would import it again
        handle, log = tempfile.mkstemp(prefix="fglbench-worker-", suffix=".txt")
        os.close(handle)
        plugins = tuple(shipped_plugin(name) for name in options.plugins)
        self.limit = options.memory_limit * 2**30 if options.memory_limit else float("inf")
        self.process = WorkerProcess(Path(log), replace(options, plugins=plugins))

    def give(self, told: bytes, dataset: str = "", sha256: str = "", data: bytes | None = None) -> None:
        """Hand over a cell, after the data that it needs where this node has none."""
        if data is not None:
            self.process.hand(pickle.dumps((KEEP, dataset, sha256, data)))
        self.process.hand(told)

    def listen(self, seconds: float) -> News:
        """What there is to tell: at once when it is more than progress, else when the time is over."""
        begun, looked, memory, said = time.monotonic(), 0.0, 0, list[tuple[Any, ...]]()
        while True:
            ending = self.process.ended()
            said += self.process.poll()  # after the look: its last words are among them
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
    """A plug-in as `load_plugins` takes it on this node: a file is where the runtime environment has put it."""
    if not name.endswith(".py"):
        return name
    spec = importlib.util.find_spec(Path(name).stem)
    if spec is None or spec.origin is None:
        raise ImportError(f"plug-in {name!r} did not reach the node; put it on the node's PYTHONPATH")
    return spec.origin
