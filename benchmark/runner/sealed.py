"""While a method has the floor, what it was not handed stays closed: the datasets on disk, and lists of all objects.

Python tells a hook of its own (PEP 578) of every file that it opens. The hook cannot be removed, and sleeps otherwise.
It is no wall, for native code opens files unseen; it is there so that the plain ways to the labels end in a failed row.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from ...datasets.sources import cache_dir, mirror_dir
from ...registry import UserError

COLLECTOR = {"gc.get_objects", "gc.get_referrers", "gc.get_referents"}
OF_FILES = {"open", "os.link", "os.rename", "os.symlink", "os.exec", "os.posix_spawn", "os.system", "subprocess.Popen"}
CODE = (".py", ".pyc", ".so")  # is imported when it is needed, and may lie anywhere
_closed: list[str] = []  # folders, while a method has the floor
_tried: list[str] = []


@contextmanager
def sealed() -> Iterator[None]:
    """In the block, no file of the cache or the mirror can be opened, and nobody walks the garbage collector.

    Whoever tries gets a PermissionError, and, if he lives with it, the block ends in a UserError that says what he did.
    """
    _listen()
    _tried.clear()
    _closed[:] = [os.path.realpath(folder) for folder in (cache_dir(), mirror_dir()) if folder]
    try:
        yield
    finally:
        _closed.clear()
        if _tried:
            raise UserError(f"the method {_tried[0]}, which it was not handed") from None


@cache
def _listen() -> None:
    sys.addaudithook(_heard)


def _heard(event: str, told: tuple[Any, ...]) -> None:
    if not _closed:
        return
    if event in COLLECTOR:
        _refuse("asks the garbage collector for objects")
    elif event in OF_FILES and any(_within(word) for word in _words(told)):
        _refuse("reads the datasets on disk")


def _words(told: Any) -> Iterator[str]:
    """All texts among what an event tells."""
    for word in told if isinstance(told, list | tuple) else ():
        if isinstance(word, str | bytes | os.PathLike):
            yield os.fsdecode(word)
        else:
            yield from _words(word)


def _within(word: str) -> bool:
    """Whether a text names something in a closed folder, itself or through a link."""
    if word.endswith(CODE) or "\0" in word:
        return False
    place = os.path.realpath(word)
    return any(folder in word or place.startswith(folder + os.sep) for folder in _closed)


def _refuse(what: str) -> None:
    _tried.append(what)
    raise PermissionError(f"the method {what}")
