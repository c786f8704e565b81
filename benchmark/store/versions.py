"""Versions of methods: what a row was computed with, and which older versions compute the same.

A version is the hash of the source that a method reaches (`closure`): its file, those of its ancestors, and what they
call below methods/. results/versions.csv says of older ones which later one they equal, and why that is known. Rows
carry the version that they were made with and are never edited.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ...registry import UserError
from . import csvtext
from .closure import Read, reader, source_hash
from .places import APART
from .provenance import ROOT
from .schema import Row

FILE = "versions.csv"
PACKAGE = __name__.split(".")[0]
OWN = (f"{PACKAGE}.methods",)  # of the package: what is a paper's own
UNKNOWN = "unknown"  # of a class without a source file, as one typed into a prompt


@cache
def source_version(cls: type) -> str:
    """The version of a method: `closure.source_hash` of its class, below methods/ and in its own package or file."""
    top = cls.__module__.split(".")[0]
    ours = OWN if top == PACKAGE else (*OWN, top)
    return source_hash(_live(ours), cls.__module__, cls.__qualname__) or UNKNOWN


@cache
def _live(ours: tuple[str, ...]) -> Read:
    return reader(lambda module: _text(module) if module.startswith(ours) else None)


def _text(module: str) -> tuple[str, bool] | None:
    """The source of a module as it is on disk, without importing what is not imported yet, where that can be."""
    if module.startswith(f"{PACKAGE}."):
        stem = ROOT.joinpath(*module.split(".")[1:])
        path = stem / "__init__.py" if stem.is_dir() else stem.with_suffix(".py")
    elif file := getattr(sys.modules.get(module), "__file__", None):
        path = Path(file)
    else:
        try:
            spec = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            return None
        path = Path(spec.origin) if spec is not None and spec.origin is not None else Path()
    return (path.read_text(encoding="utf-8"), path.name == "__init__.py") if path.is_file() else None


class Equal(NamedTuple):
    """One line of the table. commit: of the rows that it is about; "" for all that carry this version."""

    method: str
    version: str
    commit: str
    equals: str
    proof: str


class Versions:
    """Which version stands for which."""

    def __init__(self, lines: list[Equal]) -> None:
        self._next: Mapping[tuple[str, str, str], str] = {line[:3]: line.equals for line in lines}

    def stale(self, row: Row, cls: type) -> bool:
        """Whether a row was computed otherwise than `cls`, its method, would compute it now."""
        return self.of(row.method, row.method_version, row.git_sha) != source_version(cls)

    def of(self, method: str, version: str, commit: str) -> str:
        """The latest version that is known to compute the same as this one, in a row made at `commit`."""
        for _ in range(len(self._next)):  # a table that runs in a circle ends here too
            found = self._next.get((method, version, commit)) or self._next.get((method, version, ""))
            if found is None:
                break
            version = found
        return version


def read(results: Path) -> Versions:
    """The table of a results folder, empty where there is none. UserError (file:line) for a line that is not of it.

    The folder of the trials of a results folder has no table of its own: the same methods made both.
    """
    path = (results.parent if results.resolve().name == APART else results) / FILE
    lines = csvtext.read(path)
    for number, fields in enumerate(lines, start=1):
        if len(fields) != len(Equal._fields) or (number == 1 and tuple(fields) != Equal._fields):
            raise UserError(f"{path}:{number}: not {', '.join(Equal._fields)}; take the file from version control")
    return Versions([Equal(*fields) for fields in lines[1:]])
