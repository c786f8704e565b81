"""The provenance of rows: revisions, source hashes, git state, packages, machine. Also a check of the packages.

Each method has a `revision`, which is raised by hand when its numbers change (tests/test_golden.py fails if it is not).
The `method_version` of a row is the revision of its method at that time. For a method from outside the package it also
has the hash of the source ("1+0a1b2c3d4e5f"), because no test checks its numbers. Rows from before 0.2.0 have a hash of
the method's source instead; revisions.csv gives the revision for each of these hashes.
"""

from __future__ import annotations

import csv
import datetime
import functools
import hashlib
import importlib.metadata
import inspect
import json
import os
import platform
import re
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...foundations import NEEDS, PYTHONS, prefers_onednn, python_fits
from ...registry import UserError
from .schema import Row, Standing

ROOT = Path(__file__).resolve().parents[2]
CODE = ("registry.py", "datasets", "benchmark", "methods")  # the source on which the values of a row depend
PACKAGES = "fglbench torch dgl numpy scipy scikit-learn scikit-network networkx ogb pydantic".split()  # noqa: SIM905


def now() -> str:
    """UTC, ISO 8601, seconds."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def canonical(value: Any) -> str:
    """Canonical JSON: sorted keys, no spaces."""
    return _CANONICAL.encode(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@functools.cache
def git_state() -> tuple[str, bool | None]:
    """(commit, dirty) of the checkout of the package; ("", None) if the package is not run from a checkout.

    A checkout is dirty with any change or new file, except in results/ and in the tuned settings, which rows contain in
    full.
    """
    if Path(_git("rev-parse", "--show-toplevel") or os.devnull) != ROOT:
        return "", None
    return _git("rev-parse", "--verify", "-q", "HEAD") or "", bool(
        _git("status", "--porcelain", "--", ".", ":!results", ":!benchmark/suites/tuned")
    )


@functools.cache
def code_version() -> str:
    """First 12 hex digits of the sha256 of the source of the package; it is also known without a checkout."""
    digest = hashlib.sha256()
    for top in CODE:
        for path in sorted((ROOT / top).rglob("*.py")) if (ROOT / top).is_dir() else [ROOT / top]:
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + _text(path) + b"\0")
    return digest.hexdigest()[:12]


def _text(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n")


@functools.cache
def origin(cls: type) -> str:
    """The origin of a class from outside the package, as canonical JSON; "" for a class of the package.

    distribution, version: of an installed package. commit, dirty: of the repository with its file. source: sha256 (12
    hex) of its file, or of its package.
    """
    top = cls.__module__.split(".")[0]
    if top == __name__.split(".")[0]:
        return ""
    about: dict[str, Any] = {}
    for name in importlib.metadata.packages_distributions().get(top, ())[:1]:
        about |= {"distribution": name, "version": installed(name)}
    file, folder = source_of(cls)
    if file is None:  # defined in an interactive session
        if text := _text_of_session(cls):
            about["source"] = hashlib.sha256(text.encode()).hexdigest()[:12]
        return canonical(about)
    if commit := _git("rev-parse", "--verify", "-q", "HEAD", folder=file.parent):
        about |= {"commit": commit, "dirty": bool(_git("status", "--porcelain", "--", ".", folder=file.parent))}
    files = sorted(folder.rglob("*.py")) if folder else [file]
    about["source"] = hashlib.sha256(b"\0".join(map(_text, files))).hexdigest()[:12]
    return canonical(about)


def outside_source(cls: type) -> str:
    """The hash of the source of a class from outside the package; "" for a class of the package."""
    about = origin(cls)
    return str(json.loads(about).get("source", "")) if about else ""


def _text_of_session(cls: type) -> str:
    """The source of the functions of a class of a notebook, and of its bases there; "" if nothing keeps it."""
    texts = []
    for one in (one for one in cls.__mro__ if one.__module__ == cls.__module__):
        for value in vars(one).values():
            with suppress(OSError, TypeError):  # no function, or no notebook
                texts.append(inspect.getsource(getattr(value, "__func__", value)))
    return "\n".join(texts)


def source_of(cls: type) -> tuple[Path | None, Path | None]:
    """The file that defines a class, and the folder of its package; None if there is none."""
    if cls in SOURCES:
        return SOURCES[cls]
    try:
        file = Path(inspect.getsourcefile(cls) or "").resolve(strict=True)
    except (TypeError, OSError):
        return None, None
    package = sys.modules.get(cls.__module__.split(".")[0])
    whole = getattr(package, "__file__", None) and hasattr(package, "__path__")
    return file, Path(str(getattr(package, "__file__", ""))).parent if whole else None


SOURCES: dict[type, tuple[Path | None, Path | None]] = {}  # of classes that replace those of another process


def git_output(*arguments: str, folder: Path) -> bytes | None:
    """The output of a git command in a folder; None if it fails or git is missing."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]  # a killed worker would leave the lock
    try:
        done = subprocess.run(command, capture_output=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _git(*arguments: str, folder: Path = ROOT) -> str | None:
    output = git_output(*arguments, folder=folder)
    return None if output is None else output.decode().strip()


def environment(threads: int, device: str = "cpu") -> tuple[str, dict[str, Any]]:
    """(hash, description) of machine, packages, GPU in use and preloaded libraries, without host or user names."""
    import psutil
    import torch

    about = {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": _cpu(),
        "instructions": torch.backends.cpu.get_cpu_capability(),  # sums differ between these, also for one CPU name
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "threads": threads,
        "packages": {name: version for name in PACKAGES if (version := installed(name))},
        **({} if device == "cpu" else _gpu(device)),
        **({"products": "oneDNN"} if device == "cpu" and prefers_onednn() else {}),  # torch's choice is MKL
        **_preloaded(),
    }
    return hashlib.sha256(canonical(about).encode()).hexdigest()[:12], about


def _preloaded() -> dict[str, str]:
    """The file names of libraries in LD_PRELOAD, which may change the kernels."""
    names = sorted(Path(path).name for path in re.split("[: ]+", os.environ.get("LD_PRELOAD", "")) if path)
    return {"preloaded": ", ".join(names)[:200]} if names else {}  # a description has at most 200 characters


def _gpu(device: str) -> dict[str, Any]:
    import torch

    about = torch.cuda.get_device_properties(torch.device(device))
    return {
        "gpu": about.name,
        "gpu_memory_gib": round(about.total_memory / 2**30),
        "cuda": torch.version.cuda,
        "driver": _driver(Path("/proc/driver/nvidia/version")),
    }


def _driver(path: Path) -> str | None:
    """The version of NVIDIA's driver from the file of Linux; None if it is unknown."""
    try:
        version = re.search(r"\d+\.\d+(\.\d+)?", path.read_text().split("\n")[0])
    except OSError:
        return None
    return version.group() if version else None


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def installed(package: str) -> str | None:
    """The version of a library; None if it is missing."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_packages() -> None:
    """Raise UserError (one line) if this combination of Python, torch and DGL cannot work."""
    python, torch, dgl = platform.python_version(), installed("torch"), installed("dgl")
    here = f"Python {python}, torch {torch or 'missing'}, DGL {dgl or 'missing'}"
    fix = f"use {PYTHONS} with {NEEDS}; `make run` sets this up"
    if not python_fits():
        raise UserError(f"this combination cannot work ({here}): DGL has no build for this Python; {fix}")
    try:
        import dgl as _dgl
        import torch as _torch

        _dgl.graph(([0], [0])), _torch.zeros(1)
    except Exception as error:  # DGL fails in many ways: ImportError, OSError, FileNotFoundError, AttributeError
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise UserError(f"this combination cannot work ({here}): {type(error).__name__}: {reason}; {fix}") from None


def stamped(threads: int, submitter: str, device: str = "cpu") -> tuple[dict[str, Any], dict[str, Any]]:
    """(columns, description): the provenance columns of rows that this process makes; machine and packages."""
    digest, about = environment(threads, device)
    sha, dirty = git_state()
    made = {"device": device, "environment": digest, "git_sha": sha, "git_dirty": dirty, "code": code_version()}
    return {**made, "submitter": submitter}, about


if TYPE_CHECKING:
    from ..engine.method import Method

TABLE = Path(__file__).with_name("revisions.csv")
HASH = 12  # characters of the hash in rows written before 0.2.0


def method_version(cls: type[Method]) -> str:
    """Return the `method_version` of new rows of this class."""
    source = outside_source(cls)
    return f"{cls.revision}+{source}" if source else str(cls.revision)


def current_version(method: str, version: str, commit: str) -> str:
    """Return the version of a row in the current form: the revision of a known hash; other versions unchanged.

    commit: `git_sha` of the row, because one early hash belongs to two revisions.
    """
    known = _table()
    return known.get((method, version, commit)) or known.get((method, version, "")) or version


def outdated(row: Row | Standing, now: str) -> bool:
    """Whether a row was made with an earlier or unknown revision of its method. now: `method_version` of the method."""
    then = current_version(row.method, row.method_version, row.git_sha)
    if "+" in now or "+" in then:
        return now != then
    return len(then) == HASH or not then.isdecimal() or int(then) < int(now)


@cache
def _table() -> dict[tuple[str, str, str], str]:
    with TABLE.open(newline="", encoding="utf-8") as file:
        return {(line["method"], line["version"], line["commit"]): line["revision"] for line in csv.DictReader(file)}
