"""Workers on a Ray cluster: one actor per worker, with CPUs and memory as Ray counts them, without shared files.

Cells are sent pickled; rows and side files are sent back, and only the driver writes. A dataset that a node's cache
does not have is sent through the object store, a plug-in by the runtime environment. `process.Host` runs on a node.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import pickle
import platform
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import OutOfMemoryError, RayError, RayTaskError, RuntimeEnvSetupError

from ... import __version__
from ...datasets.own_data import packed
from ...datasets.sources import cache_file
from ...registry import UserError
from ..store.provenance import code_version
from ..suites.cell import Cell
from .process import READY, RUN, Host, News, Options
from .system import Ending

SETTINGS = b"\0\0\0\4\0\0\0\0\0"  # an empty settings frame of HTTP/2
ANSWER = 10.0  # seconds to wait for an answer of the cluster
INTERVAL = 1.0  # seconds between reports of a worker that only has progress to report
FAREWELL = 10.0  # seconds to wait for a worker to end
PATIENCE = 600.0  # seconds without any worker, for example if all nodes are lost, until the run stops


class Cluster:
    """The backend of a Ray cluster. This process joins it until `close`, unless it has joined one before."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.joined = not ray.is_initialized()
        if self.joined:
            _join(options)
        self.shipped: dict[str, tuple[str, str, Any] | None] = {}  # by dataset; the reference keeps the object alive
        self.without_workers_since: float | None = None
        self.gpus = options.device != "cpu" and (
            options.device == "cuda"
            or any(node["Resources"].get("GPU", 0) >= 1 for node in ray.nodes() if node["Alive"])
        )
        needs = {"num_cpus": options.threads, "max_concurrency": 2, "max_restarts": 0}
        if options.memory_limit:
            needs["memory"] = int(options.memory_limit * 2**30)
        if self.gpus:
            needs["num_gpus"] = 1  # the actor, and the process that it starts, see only this one
        self.host = ray.remote(Host).options(**needs)

    def size(self, cells: int) -> int:
        workers = sum(self._fitting_workers(node["Resources"]) for node in ray.nodes() if node["Alive"])
        if not workers:
            memory = f" and {self.options.memory_limit:g} GiB" if self.options.memory_limit else ""
            memory += " and a GPU" * self.gpus
            raise UserError(f"no node of the Ray cluster has {self.options.threads} CPUs{memory} for a worker")
        return max(1, min(self.options.jobs or workers, cells))

    def _fitting_workers(self, resources: dict[str, float]) -> int:
        number = resources.get("CPU", 0) / self.options.threads
        if self.options.memory_limit:
            number = min(number, resources.get("memory", 0) / 2**30 / self.options.memory_limit)
        return int(min(number, resources.get("GPU", 0)) if self.gpus else number)

    def start(self, plugins: bool) -> RemoteWorker:
        device = "cuda:0" if self.gpus else "cpu"
        # Nodes do not have the folders of the user's own data: their content is sent (`ship`).
        options = replace(self.options, device=device, plugins=self.options.plugins if plugins else (), folders=())
        return RemoteWorker(self.host.remote(options), self)

    def wait(self, workers: Sequence[RemoteWorker], seconds: float) -> None:
        ray.wait([worker.turn for worker in workers], timeout=seconds, fetch_local=False)
        if any(worker.up for worker in workers):
            self.without_workers_since = None
            return
        self.without_workers_since = self.without_workers_since or time.monotonic()
        if time.monotonic() > self.without_workers_since + PATIENCE:
            problem = f"no node of the Ray cluster has taken a worker for {PATIENCE / 60:g} minutes"
            raise UserError(f"{problem}; see `ray status`; the same command continues from here")

    def ship(self, dataset: str) -> tuple[str, str, Any] | None:
        """(dataset, sha256, reference to the bytes) of `packed`; put into the object store once."""
        if dataset not in self.shipped:
            package = packed(dataset)
            self.shipped[dataset] = (package[0], package[1], ray.put(package[2])) if package else None
        return self.shipped[dataset]

    def close(self) -> None:
        if self.joined:
            ray.shutdown()


class RemoteWorker:
    """A worker on a node, by its actor `process.Host`. up: it has reported, and is not lost. turn: its next report."""

    def __init__(self, host: Any, cluster: Cluster) -> None:
        self.host, self.cluster = host, cluster
        self.up, self.bytes = False, 0
        self.cached: set[str] = set()
        self.ending: Ending | None = None
        self.turn = host.listen.remote(INTERVAL)

    def give(self, suite: str, cell: Cell) -> None:
        name = cell.dataset.name
        data = None if cache_file(name).name in self.cached else self.cluster.ship(name)
        self.cached.add(cache_file(name).name)
        self.host.give.remote(pickle.dumps((RUN, suite, cell)), *(data or ()))

    def poll(self) -> Iterator[tuple[Any, ...]]:
        while self.ending is None and ray.wait([self.turn], timeout=0)[0]:
            try:
                news: News = ray.get(self.turn)
            except RayError as error:
                self.up, self.ending = False, _lost(error)
                return
            self.up, self.bytes, self.ending = True, news.memory, news.ending
            if news.ending is None:
                self.turn = self.host.listen.remote(INTERVAL)
            for message in news.said:
                if message[0] == READY:
                    self._check_node(*message[1:])
                yield message

    def _check_node(self, columns: dict[str, Any], about: dict[str, Any], cached: list[str]) -> None:
        """UserError if the node has another fglbench or Python than this machine."""
        self.cached |= set(cached)
        there, here = (columns["code"], about["python"]), (code_version(), platform.python_version())
        if there != here:
            of = "fglbench source {} on Python {}"
            problem = f"a node of the Ray cluster has {of.format(*there)}, this machine {of.format(*here)}"
            raise UserError(f"{problem}: install the same on every node")

    def ended(self) -> Ending | None:
        return self.ending

    def memory(self) -> int:
        return self.bytes

    def kill(self) -> None:
        if self.up:
            with suppress(RayError):
                ray.get(self.host.end.remote(), timeout=FAREWELL)
        with suppress(RayError, ValueError):
            ray.kill(self.host)


def _lost(error: RayError) -> Ending:
    reason = " ".join(str(error).strip().splitlines()[-1:])[:300]
    if isinstance(error, OutOfMemoryError):
        return Ending("oom", "the worker was killed by Ray for lack of memory on its node; give --memory-limit")
    if isinstance(error, RuntimeEnvSetupError | RayTaskError) or "creation task" in str(error):
        return Ending("failed", f"{reason}; every node of the cluster needs fglbench {__version__}")
    return Ending("failed", "the worker's node was lost, twice", outside=True)


def _join(options: Options) -> None:
    """Join the cluster of the options, else of RAY_ADDRESS, else of this machine; if there is none, start one here."""
    address = options.address or os.environ.get("RAY_ADDRESS") or None
    where = f"the Ray cluster at {address}" if address else "Ray"
    if address and ":" in address and not os.environ.get("RAY_USE_TLS"):
        _check_address(address.rpartition("/")[2], where)
    modules = [module for name in options.plugins if (module := _module(name))]
    try:
        with _kept_sigterm():
            ray.init(address, log_to_driver=False, logging_level=logging.CRITICAL, include_dashboard=False,
                     runtime_env={"py_modules": modules} if modules else None)  # fmt: skip
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, RayError) as error:
        raise UserError(f"{where} cannot be used: {' '.join(str(error).split())[:300]}") from None


def _check_address(address: str, where: str) -> None:
    """UserError unless a server there speaks HTTP/2, as Ray does: `ray.init` would wait for minutes and then exit."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), ANSWER) as stream:
            stream.settimeout(ANSWER)
            stream.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SETTINGS)
            answer = stream.recv(9)
    except (OSError, ValueError, OverflowError) as error:
        raise UserError(f"{where} does not answer ({error}): is it up, and is --address its HOST:PORT?") from None
    if answer[3:4] != SETTINGS[3:4]:
        raise UserError(f"what answers there is not {where}: --address is the HOST:PORT that `ray start` prints")


def _module(plugin: str) -> str | None:
    """The file or folder of a plug-in to send to nodes; None for an installed distribution, which nodes have."""
    if plugin.endswith(".py"):
        return plugin
    top = plugin.split(".")[0]
    spec = importlib.util.find_spec(top)
    if top in importlib.metadata.packages_distributions() or spec is None or spec.origin is None:
        return None
    return spec.origin if spec.submodule_search_locations is None else str(Path(spec.origin).parent)


@contextmanager
def _kept_sigterm() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
