"""Verdicts of a command on files, stored in the user's cache under the hash of everything that it read.

A verdict counts only for the same names and bytes, the same source of this package and the same versions of the
libraries. Verdicts are not stored in results folders, whose files may come from any source.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from ...files import cache_dir, write_atomically
from .provenance import PACKAGES, ROOT, installed
from .schema import parse

OWN = ("benchmark", "datasets", "methods", "report", "tasks")  # the folders of the package
LIBRARIES = [*PACKAGES, "pandas", "pyarrow", "matplotlib", "jinja2", "tabulate", "markdown-it-py"]
KEPT = 2000  # verdicts; the oldest are removed
METHODS = f"{__name__.split('.')[0]}.methods"


class Verdicts:
    """The verdicts of one command. If the process has imported the methods, no verdict is stored: plug-ins may be
    registered, which are not in the hash."""

    def __init__(self) -> None:
        self._folder = None if METHODS in sys.modules else cache_dir() / "verdicts"

    def of(
        self,
        files: Iterable[Path],
        about: object,
        judge: Callable[[], dict[str, Any]],
        made: Callable[[], Iterable[Path]] = tuple,
    ) -> dict[str, Any]:
        """The result of `judge` for these files, stored or new.

        about: everything else that it depends on. made: the files that `judge` writes; a stored verdict counts only if
        they are unchanged.
        """
        if self._folder is None:
            return judge()
        files = list(files)
        if (digest := _digest(files, about)) is None:
            return judge()
        path = self._folder / f"{digest}.json"
        with suppress(OSError, ValueError, KeyError, TypeError):
            known = parse(path.read_text(encoding="utf-8")) or {}
            if known.get("made") == _digest(made(), about):
                return dict(known["found"])
        verdict = judge()
        if _digest(files, about) == digest:  # no file has changed meanwhile
            with suppress(OSError):
                write_atomically(path, json.dumps({"made": _digest(made(), about), "found": verdict}).encode())
                kept = sorted(self._folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
                for old in kept[: max(len(kept) - KEPT, 0)]:
                    old.unlink(missing_ok=True)
        return verdict


def _digest(files: Iterable[Path], about: object) -> str | None:
    """The hash of files, `about` and the code; None if a file cannot be read."""
    try:
        content = [(str(path), hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]
    except OSError:
        return None
    return hashlib.sha256(json.dumps([_code(), repr(about), content]).encode()).hexdigest()


@cache
def _code() -> str:
    """The hash of the files of the package and of the versions of Python and the libraries."""
    versions = repr((sys.version, [(name, installed(name)) for name in LIBRARIES]))
    digest = hashlib.sha256(versions.encode())
    for path in sorted(_own_files()):
        digest.update(f"{path}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def _own_files() -> Iterator[Path]:
    yield from ROOT.glob("*.py")
    for folder in OWN:
        yield from (p for p in (ROOT / folder).rglob("*") if p.is_file() and p.parent.name != "__pycache__")
