"""Curves of many runs in one compressed file of columns, a NumPy archive of plain arrays:

    keys                       (runs,) text
    columns                    (columns,) text: "history.score", "per_client.val", ..., "label_counts"
    lengths                    (runs, columns): how many values a run has in a column; -1: it has no such column
    classes                    (runs,): how many values of `label_counts` each client has
    history.score, ...         the values of all runs, one run after the other; NaN for one that does not exist

A file of one run's curves takes a block of a disk and a table of compression of its own: a hundred in one take a third.
"""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from . import plainarrays

COLUMN_BYTES = 64 * 2**20  # of one file, unpacked
COUNTS, CLASSES = "label_counts", "classes"
PARTS = ("history", "per_client")
WHOLE = ("<i4", "<i8")
KINDS = {"keys": ("<U",), "columns": ("<U",), "lengths": WHOLE, CLASSES: WHOLE, COUNTS: WHOLE}
ANY = (*WHOLE, "<f8")  # of a column
ALWAYS = ("keys", "columns", "lengths", CLASSES)
BESIDE = 1024  # bytes of a run besides its values: its key and its lengths
PLAIN = re.compile(r"\w{1,40}", re.ASCII)  # a name of curves by which there can be a column
Stored = dict[str, Any]


class Ragged(NamedTuple):
    """One column of all runs. values: (all values,). bounds: (runs + 1,), where each run's begin. there: (runs,).
    gaps: whether some values do not exist."""

    values: NDArray[Any]
    bounds: NDArray[np.int64]
    there: NDArray[np.bool_]
    gaps: bool

    def part(self, run: int) -> NDArray[Any]:
        """The values of a run, NaN for one that does not exist."""
        return self.values[self.bounds[run] : self.bounds[run + 1]]

    def of(self, run: int) -> list[Any]:
        """The values of a run as they were given, None for one that does not exist."""
        found: list[Any] = self.part(run).tolist()
        return [None if value != value else value for value in found] if self.gaps else found

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(runs,) how many values each has; -1 for a run without the column."""
        return np.where(self.there, np.diff(self.bounds), -1)

    @property
    def numbers(self) -> NDArray[np.int64]:
        """(all values,) the number of each within its run, from 1."""
        starts = np.repeat(self.bounds[:-1], np.diff(self.bounds))
        return np.arange(1, len(self.values) + 1) - starts

    def reduced(self, by: np.ufunc, values: NDArray[Any], nothing: float) -> NDArray[np.float64]:
        """(runs,) what a ufunc makes of each run's part of values, which are (all values,); nothing: of no values."""
        found, some = np.full(len(self.there), nothing), np.diff(self.bounds) > 0
        if some.any():
            found[some] = by.reduceat(values, self.bounds[:-1][some])
        return found

    def any(self, odd: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(runs,) whether one of a run's values is odd. odd: (all values,)."""
        return self.reduced(np.logical_or, odd, 0.0) > 0


class CurveTable:
    """What `SideFiles.write_history` was given of many runs, by their keys. ValueError where arrays are none of it."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        names = _checked(arrays)
        self.keys: list[str] = arrays["keys"].tolist()
        self.place = {key: place for place, key in enumerate(self.keys)}
        if len(self.place) != len(self.keys):
            raise ValueError("a key occurs twice")
        self.classes = arrays[CLASSES]
        self.columns = {name: _column(arrays, name, place) for place, name in enumerate(names)}

    @property
    def size(self) -> int:
        """The bytes of all values."""
        return sum(column.values.nbytes for column in self.columns.values())

    def stored(self, key: str) -> Stored:
        """As it was given. KeyError for a key that is not here."""
        run, found = self.place[key], Stored()
        for name, column in self.columns.items():
            if column.there[run]:
                part, dot, own = name.partition(".")
                if dot:
                    found.setdefault(part, {})[own] = column.of(run)
                else:
                    found[part] = self.counts(run).tolist()
        return found

    def counts(self, run: int) -> NDArray[np.int64]:
        """(clients, classes) the label counts of a run that has some; nothing where these are of several lengths."""
        counts, width = self.columns[COUNTS].part(run), int(self.classes[run])
        return counts.reshape(-1, width) if width > 0 and not len(counts) % width else np.zeros((0, 1), np.int64)


def _checked(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    """The names of the columns; ValueError where arrays do not fit together."""
    if missing := [name for name in ALWAYS if name not in arrays]:
        raise ValueError(f"no array {missing[0]!r}")
    for name, array in arrays.items():
        if not array.dtype.str.startswith(KINDS.get(name, ANY)) or array.ndim != (2 if name == "lengths" else 1):
            raise ValueError(f"array {name!r:.40} is of the kind {array.dtype.str!r:.20}, with {array.ndim} axes")
    names: list[str] = arrays["columns"].tolist()
    lengths = arrays["lengths"]
    if sorted([*ALWAYS, *names]) != sorted(arrays):
        raise ValueError("has other arrays than its columns")
    if lengths.shape != (len(arrays["keys"]), len(names)) or len(arrays[CLASSES]) != len(lengths):
        raise ValueError("lengths are not those of its runs and columns")
    if not all(name.partition(".")[:2] in {(part, ".") for part in PARTS} for name in names if name != COUNTS):
        raise ValueError(f"columns are not made of {', '.join((*PARTS, COUNTS))}")
    if lengths.min(initial=0) < -1 or any(
        lengths[:, place].max(initial=0) > len(arrays[name])  # otherwise a sum of many could run over
        or np.maximum(lengths[:, place], 0).sum(dtype=np.int64) != len(arrays[name])
        for place, name in enumerate(names)
    ):
        raise ValueError("lengths do not add up to the values")
    return names


def _column(arrays: Mapping[str, NDArray[Any]], name: str, place: int) -> Ragged:
    lengths = arrays["lengths"][:, place].astype(np.int64)
    bounds = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.maximum(lengths, 0))])
    return Ragged(arrays[name], bounds, lengths >= 0, bool(np.isnan(arrays[name]).any()))


def arrays_of(runs: Mapping[str, Stored]) -> dict[str, NDArray[Any]]:
    """The arrays that hold runs, in the order of their keys. What does not fit into columns comes out otherwise than
    it went in, or is an error of Python's or NumPy's."""
    keys = sorted(runs)
    flat = {key: dict(_flat(runs[key])) for key in keys}
    names = list(dict.fromkeys(name for own in flat.values() for name in own))
    lengths = [[len(own[name]) if name in own else -1 for name in names] for own in flat.values()]
    widths = [set(map(len, runs[key].get(COUNTS, ()))) for key in keys]
    classes = [min(width) if len(width) == 1 else 0 for width in widths]
    arrays: dict[str, NDArray[Any]] = {
        "keys": np.array(keys, dtype=np.str_),
        "columns": np.array(names, dtype=np.str_),
        "lengths": np.array(lengths, dtype=np.int32).reshape(len(keys), len(names)),
        CLASSES: np.array(classes, dtype=np.int32),
    }
    return arrays | {name: _values(name, (own[name] for own in flat.values() if name in own)) for name in names}


def _flat(stored: Stored) -> Iterable[tuple[str, list[Any]]]:
    for part in PARTS:
        yield from ((f"{part}.{name}", values) for name, values in stored.get(part, {}).items())
    if COUNTS in stored:
        yield COUNTS, list(chain.from_iterable(stored[COUNTS]))


def _values(name: str, lists: Iterable[list[Any]]) -> NDArray[Any]:
    """One array of whole numbers where all are, else of real ones."""
    every = list(chain.from_iterable(lists))
    whole = name == COUNTS or set(map(type, every)) == {int}
    return np.array(every, dtype=np.int64) if whole else np.array(every, dtype=np.float64)  # None: NaN


def room(runs: Iterable[Stored]) -> int:
    """The bytes that runs take in columns, or some more."""
    return sum(BESIDE + 8 * sum(len(values) for _, values in _flat(stored)) for stored in runs)


def packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """The content of a file with these arrays; it depends on them only."""
    buffer, members = io.BytesIO(), dict[str, Any](arrays)
    np.savez_compressed(buffer, **members)
    return buffer.getvalue()


def parse(content: bytes) -> CurveTable:
    """The runs of a file's content, of which nothing is ever executed. ValueError (one line) where it is damaged."""
    try:
        return CurveTable(plainarrays.archived(content, COLUMN_BYTES))
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, NotImplementedError) as error:
        raise ValueError(str(error).splitlines()[0] if str(error) else type(error).__name__) from None
    except (zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(str(error)) from None
