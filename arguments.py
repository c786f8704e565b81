"""Arguments of the Python interface: each function returns a value that has been checked, or raises UserError.

Also the bounds of seeds: cheap to import, so options are checked before anything is loaded.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from .registry import UserError

T = TypeVar("T")


def several(name: str, given: Iterable[Any], read: Callable[[Any], T]) -> tuple[T, ...]:
    """Return the values of a list. UserError for a single text, a mapping, an empty list, or a value of another type.

    read: `str`, or `operator.index` for whole numbers. The tuple () is an argument that is not given.
    """
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise UserError(f"{name} is a list of values, as in {name}=[...]; got {given!r:.60}")
    values = list(given)
    if not values and not isinstance(given, tuple):
        raise UserError(f"{name} is empty; give at least one value, or leave it out")
    wrong = [value for value in values if isinstance(value, bool) or (read is str and not _is_text(value))]
    try:
        if not wrong:
            return tuple(map(read, values))
    except TypeError:
        wrong = values
    raise UserError(f"{name} are {'texts' if read is str else 'whole numbers'}, got {wrong[0]!r:.60}")


def text(name: str, given: Any) -> str:
    """Return a text that is not empty."""
    if not _is_text(given):
        raise UserError(f"{name} is a text that is not empty, got {given!r:.60}")
    return str(given)


def whole(name: str, given: Any) -> int:
    """Return a whole number, of NumPy or PyTorch too."""
    try:
        if not isinstance(given, bool):
            return operator.index(given)
    except TypeError:
        pass
    raise UserError(f"{name} is a whole number, got {given!r:.60}")


def folder(name: str, given: Any) -> Path:
    """Return the path of a folder; "~" is the home folder. UserError for what is no path."""
    try:
        path = os.fspath(given)
        if isinstance(path, str) and path.strip() and "\0" not in path:
            return Path(path).expanduser()
    except TypeError:
        pass
    except RuntimeError:
        raise UserError(f"{name}: the home folder in {path!r} does not exist; give a whole path") from None
    if given == "":
        raise UserError(f"{name} is empty; give a folder, or leave it out")
    raise UserError(f"{name} is the path of a folder, got {given!r:.60}")


def _is_text(given: Any) -> bool:
    return isinstance(given, str) and bool(given.strip())


MOST_SEEDS = 10_000
SEED_BOUND = 2**31


def seed_range(first: int, last: int) -> list[int]:
    """The seeds from first to last. ValueError for more than can be run."""
    if last - first >= MOST_SEEDS:
        raise ValueError(f"more than {MOST_SEEDS} seeds")
    return list(range(first, last + 1))
