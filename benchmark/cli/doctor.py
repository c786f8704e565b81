"""`fglbench doctor`: what a run would find here, in one screen."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from .options import Json, Results
from .output import announce, plain_console, plain_table, print_json

if TYPE_CHECKING:
    from ...datasets import DatasetSpec

GIB = 2**30
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
SHOWN = 8  # datasets of one source on one line


def doctor(results: Results = Path("results"), json: Json = False) -> int:
    """Tell what a run would find: packages, threads, device, folders, free disk, and each dataset's source.

    Nothing is fetched and nothing is written. Exit code 1 if torch and DGL do not work together here.
    """
    announce()
    trouble = _trouble()
    facts = {**dict(_packages()), "torch and DGL": trouble or "work together"}
    if not trouble:
        facts |= dict(_device())
    facts |= dict(_folders(results))
    sources = {} if trouble else dict(_sources())
    if json:
        print_json({"facts": facts, "sources": sources, "sound": not trouble})
        return int(bool(trouble))
    table = plain_table()
    table.columns[1].overflow = "fold"
    for fact in facts.items():
        table.add_row(*fact)
    for source in dict.fromkeys(sources.values()):
        datasets = [name for name, where in sources.items() if where == source]
        for place in range(0, len(datasets), SHOWN):
            table.add_row("" if place else f"from {source}", ", ".join(datasets[place : place + SHOWN]))
    plain_console().print(table)
    return int(bool(trouble))


def _trouble() -> str:
    """Why torch and DGL do not work here, in one line; empty if they do."""
    from ...registry import UserError
    from ..store.provenance import check_packages

    try:
        check_packages()
    except UserError as error:
        return str(error)
    return ""


def _packages() -> Iterator[tuple[str, str]]:
    yield "fglbench", f"{_version('fglbench')} in {Path(__file__).resolve().parents[2]}"
    yield "Python", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    for name in ("torch", "dgl", "numpy", "scipy", "pandas"):
        yield name, _version(name)
    yield "optuna", _version("optuna", "not installed: only `fglbench tune` needs it (pip install 'fglbench[tune]')")


def _version(package: str, missing: str = "not installed") -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return missing


def _device() -> Iterator[tuple[str, str]]:
    import psutil
    import torch

    memory = psutil.virtual_memory()
    yield "cores", f"{os.cpu_count()} (a worker process each, unless -j says otherwise)"
    yield "memory", f"{memory.available / GIB:.1f} of {memory.total / GIB:.1f} GiB free"
    asked = ", ".join(f"{name}={os.environ[name]}" for name in THREADS if name in os.environ)
    yield "threads", f"torch would take {torch.get_num_threads()}; a worker takes --threads (1){asked and f'; {asked}'}"
    cards = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    yield "device", f"cpu{''.join(f', {name}' for name in cards)}"


def _folders(results: Path) -> Iterator[tuple[str, str]]:
    from ...files import cache_dir

    mirror = os.environ.get("FGLBENCH_MIRROR", "")
    yield "cache", _folder(cache_dir(), "FGLBENCH_CACHE")
    there = "" if Path(mirror).expanduser().is_dir() else ": there is no such folder"
    yield "mirror", f"{mirror} (FGLBENCH_MIRROR){there}" if mirror else "none (FGLBENCH_MIRROR is not set)"
    yield "results", _folder(results.resolve(), "--results")


def _folder(path: Path, setting: str) -> str:
    """A folder, whether it is there and may be written, and what is free on its disk."""
    near = next(place for place in (path, *path.parents) if place.exists())
    free = shutil.disk_usage(near).free / GIB
    state = "" if path.exists() else ", made when needed"
    barred = "" if os.access(near, os.W_OK) else ", NOT writable"
    return f"{path} ({setting}{state}{barred}; {free:.1f} GiB free)"


def _sources() -> Iterator[tuple[str, str]]:
    """(dataset, which source a run would try first that may have it)."""
    from ...datasets import DATASETS

    for name in DATASETS.names():
        yield name, _source(DATASETS.cls(name))


def _source(cls: type[DatasetSpec]) -> str:
    """Folders are looked into; the package index and upstream are not asked."""
    from ...datasets.sources import Mirror, Unavailable, cache_file

    if cache_file(cls.name).is_file():
        return "cache"
    for route in cls.routes:
        if not isinstance(route, Mirror):
            return route.kind
        try:
            route.fetch(Path())
        except Unavailable:
            continue
        return route.kind
    return "nowhere" if cls.routes else "generator"
