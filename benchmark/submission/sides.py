"""The side files of rows, read as columns; what has not their form is told and left out."""

from __future__ import annotations

import math
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...metrics import METRICS
from ..store import Store
from ..store.columnfile import COUNTS, PLAIN, CurveTable, Stored, arrays_of
from ..store.schema import Row
from .inbox import Line
from .limits import LARGE

PARTS = {"history", "per_client", COUNTS}
NAMES = {*(rule.curve for rule in METRICS.values() if rule.curve), "round", "seconds", "val_loss", "train_loss"}
UNREADABLE = (OSError, EOFError, ValueError, zlib.error)
MOST_ROUNDS = 2**53  # a row may claim any number; no curve has as many values
NUMBERS = "holds something else than lists of numbers"


class Side(NamedTuple):
    """The curves of one row: one run of a table of them."""

    table: CurveTable
    run: int

    def values(self, name: str) -> NDArray[np.float64]:
        """A column of the run, NaN where nothing is known, 0 and -0 alike; empty without it."""
        column = self.table.columns.get(name)
        return column.part(self.run) + 0.0 if column else np.zeros(0)

    @property
    def counts(self) -> NDArray[np.int64]:
        """(clients, classes) the label counts; nothing without them."""
        column = self.table.columns.get(COUNTS)
        return self.table.counts(self.run) if column and column.there[self.run] else np.zeros((0, 1), np.int64)


@dataclass(frozen=True)
class Sides:
    """The side files of rows. wrong: those that have not the form of one, and why. changed: those whose own file is not
    as fglbench writes it."""

    found: dict[Line, Side] = field(default_factory=dict)
    wrong: dict[Line, str] = field(default_factory=dict)
    changed: set[Line] = field(default_factory=set)

    def tables(self) -> Iterator[tuple[CurveTable, list[Line], NDArray[np.int64]]]:
        """(table, rows, where each stands in it)."""
        groups: dict[int, list[Line]] = defaultdict(list)
        for line, side in self.found.items():
            groups[id(side.table)].append(line)
        for lines in groups.values():
            yield self.found[lines[0]].table, lines, np.array([self.found[line].run for line in lines])


def load(store: Store, row: Row) -> Stored | None:
    """What the side file of a row holds; None where there is none, or something is wrong with its form."""
    line = Line("", 0, "", b"", row)
    side = read(store, [line]).found.get(line)
    return side.table.stored(side.table.keys[side.run]) if side else None


def read(store: Store, lines: Iterable[Line], strict: Collection[Line] = ()) -> Sides:
    """The side files of rows that have one. strict: those of which it is asked whether it is as it was written."""
    sides, loose, batches = Sides(), dict[str, set[str]](), defaultdict[str, dict[Line, Stored]](dict)
    for line in lines:
        suite, key = line.row.suite, line.row.key
        if suite not in loose:
            loose[suite] = store.loose(suite)
        columns = store.columns(suite)
        if key in loose[suite]:
            found = _own(store, line, strict, sides)
            if found is not None:
                batches[line.file][line] = found
        elif key in columns.holder:
            table = columns.files[columns.holder[key]]
            sides.found[line] = Side(table, table.place[key])
    for batch in batches.values():
        made = CurveTable(arrays_of({line.row.key: found for line, found in batch.items()}))
        sides.found.update({line: Side(made, made.place[line.row.key]) for line in batch})
    for table, own, runs in list(sides.tables()):
        for line, wrong in _misshapen(table, own, runs):
            sides.wrong[line] = wrong
            del sides.found[line]
    return sides


def _own(store: Store, line: Line, strict: Collection[Line], sides: Sides) -> Stored | None:
    """What a row's own file holds; None where that are no lists of numbers."""
    try:
        curves = store.curves(line.row.suite, line.row.key)
    except UNREADABLE as error:
        sides.wrong[line] = f"cannot be read: {str(error).splitlines()[0]:.120}"
        return None
    if wrong := _no_lists(curves.found):
        sides.wrong[line] = wrong
        return None
    stored: Stored = curves.found
    if any(len(values) != line.row.rounds for values in stored["history"].values()):  # too long, it is not kept
        sides.wrong[line] = _uneven(line.row)
        return None
    if line in strict and not curves.as_written:
        sides.changed.add(line)
    return stored


def _no_lists(found: Any) -> str | None:
    """In what a side file is not made of lists of numbers, by which it fits into columns."""
    if not isinstance(found, dict) or not isinstance(found.get("history"), dict) or not set(found) <= PARTS:
        return f"is not made of {', '.join(sorted(PARTS))}"
    if not isinstance(clients := found.get("per_client", {}), dict) or not isinstance(found.get(COUNTS, []), list):
        return NUMBERS
    if strange := [name for name in (*found["history"], *clients) if not PLAIN.fullmatch(name)]:
        return f"has a curve that no run has: {strange[0]!r:.40}"
    if not all(map(_numbers, found.values())):
        return NUMBERS
    if set(map(type, chain.from_iterable(found.get(COUNTS, ())))) - {int}:
        return "label_counts are no counts"
    return None


def _numbers(part: Mapping[str, Any] | list[Any]) -> bool:
    """Whether a part of a side file is lists of numbers, with names or without."""
    lists = list(part.values()) if isinstance(part, Mapping) else part
    if not all(isinstance(each, list) for each in lists):
        return False
    return _bounded(list(chain.from_iterable(lists)))


def _bounded(values: list[Any]) -> bool:
    """Whether all are None or numbers (no bool, no NaN) of a sane size. They are millions: the loops are C's."""
    kinds = set(map(type, values))
    if not kinds <= {int, float, type(None)}:
        return False
    numbers = [value for value in values if value is not None] if type(None) in kinds else values
    with suppress(OverflowError):  # of a whole number beyond all floats
        if sum(map(abs, numbers)) < LARGE:  # so is each, and none is a NaN: one pass over most
            return True
    within = -LARGE < min(numbers, default=0) <= max(numbers, default=0) < LARGE
    return within and math.isfinite(sum(numbers))  # otherwise a NaN, which may hide what is least and greatest


def _misshapen(table: CurveTable, lines: list[Line], runs: NDArray[np.int64]) -> Iterator[tuple[Line, str]]:
    """Rows whose curves are not one value for each of their rounds, and in what."""
    history = {name.partition(".")[2]: own for name, own in table.columns.items() if name.startswith("history.")}
    lengths = np.array([column.lengths[runs] for column in history.values()]).reshape(len(history), len(lines))
    rounds = np.array([-1 if line.row.rounds is None else min(line.row.rounds, MOST_ROUNDS) for line in lines])
    uneven = ((lengths >= 0) & (lengths != rounds)).any(axis=0)
    large = [
        column.any(~(np.abs(column.values) < LARGE) & ~np.isnan(column.values)) for column in table.columns.values()
    ]
    beyond = np.logical_or.reduce(large)[runs] if large else np.zeros(len(lines), bool)
    for place, line in enumerate(lines):
        have = frozenset(name for name, own in zip(history, lengths[:, place], strict=True) if own >= 0)
        needed = _needed(line.row.schema_version)
        if beyond[place]:
            yield line, NUMBERS
        elif have - NAMES:
            yield line, f"has a curve that no run has: {min(have - NAMES)!r:.40}"
        elif uneven[place] or not needed.keys() <= have:
            yield line, _uneven(line.row)


def _uneven(row: Row) -> str:
    return f"has not one value of {', '.join(_needed(row.schema_version))} for each of {row.rounds} rounds"


@lru_cache
def _needed(schema: int) -> dict[str, None]:
    """The curves that a row of a schema must have, in their order."""
    since = {name: METRICS[name].since for name in METRICS}
    return dict.fromkeys(
        [*(rule.curve for name, rule in METRICS.items() if rule.curve and since[name] <= schema), "seconds"]
    )
