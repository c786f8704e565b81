"""Curves of finished rows, moved from a file each into files of columns for each method of a suite.

A method has one such file, and another once it holds PART_BYTES: version control keeps each state of a file, and one to
which all is added would be kept as often as there were new rows.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

from ... import files
from ...registry import UserError
from . import curves, row_file
from .curves import PARTS, PLAIN, CurveTable, Stored
from .folder import Store, latest
from .places import rows_stem
from .provenance import canonical
from .side_files import clear_errors, unpacked

PART_BYTES = 12 * 2**20  # of the runs in a file to which others are added, in memory; below 2 MB on disk
HEADS = 2**16  # bytes of a file of columns besides its runs


class Packed(NamedTuple):
    """What `pack` did. moved: runs whose curves are in columns now. left: those that keep a file of their own."""

    moved: int
    left: int


def pack(store: Store, suite: str) -> Packed:
    """Move the curves of a suite's current rows into its files of columns.

    A run's own file is removed once the file of columns is on disk and gives the same back. Curves that cannot be read,
    do not fit into columns, are more than one file may hold or belong to a cell that is running keep their file. Raises
    UserError for a folder that cannot be written, and for a file of columns that is damaged.
    """
    moved = left = 0
    for rows in store.files(suite):
        standing = latest(row_file.read(rows)).values()
        loose = [row.key for row in standing if store.history_file(suite, row.key).is_file()]
        claims = {key: lock for key in loose if (lock := store.claim(suite, key))}
        try:
            done = _take_in(store, suite, rows.stem, list(claims)) if claims else 0
        finally:
            for lock in claims.values():
                store.unclaim(lock)
        moved, left = moved + done, left + len(loose) - done
    return Packed(moved, left)


def _take_in(store: Store, suite: str, stem: str, keys: Sequence[str]) -> int:
    """Move runs of a method, whose cells are claimed; how many were moved."""
    loose = {}
    for key in keys:
        with suppress(OSError, EOFError, ValueError, zlib.error):  # a damaged file stays where it is
            loose[key] = unpacked(store.history_file(suite, key).read_bytes())
    moved = add_runs(store, suite, stem, loose)
    with clear_errors(store.root):
        for key in moved:
            store.history_file(suite, key).unlink()
    return len(moved)


def add_runs(store: Store, suite: str, stem: str, runs: Mapping[str, Stored]) -> list[str]:
    """Write runs of a method into its files of columns; the keys of those that are on disk now.

    A run whose cell has an earlier one takes the place of that, the others go into the last file and, where that is
    full, into new ones. What does not fit into columns is left out. UserError for a file that is damaged.
    """
    columns = store.columns(suite)
    for name, reason in columns.damaged.items():
        if rows_stem(name) == stem:
            raise _damaged(store.columns_file(suite, stem).with_stem(name), reason)
    held = {key: name for key, name in columns.holder.items() if rows_stem(name) == stem}
    done, waiting = list[str](), {key: run for key, run in runs.items() if key not in held}
    for part in count(1):
        path = store.columns_file(suite, stem, part)
        last = not store.columns_file(suite, stem, part + 1).exists()
        earlier = {key: run for key, run in runs.items() if held.get(key) == path.stem}
        moved, over = _add(store, path, earlier | (waiting if last else {}))
        done += moved
        if last:
            waiting = {key: runs[key] for key in over}
            if not waiting:
                break
    return done


def _add(store: Store, path: Path, new: Mapping[str, Stored]) -> tuple[list[str], Sequence[str]]:
    """Add runs to a file of columns: (keys of those that are on disk now, keys of those for which it is full)."""
    if not new:
        return [], []
    with clear_errors(store.root), store.locked(path):
        try:
            before = curves.read_curves(path) if path.exists() else None
        except ValueError as error:
            raise _damaged(path, str(error)) from None
        runs = {key: before.stored(key) for key in before.keys} if before else {}
        kinds = {name: str(column.values.dtype.kind) for name, column in before.columns.items()} if before else {}
        size, moved, keys = curves.room(runs.values()), list[str](), list(new)
        over: Sequence[str] = []
        for place, key in enumerate(keys):
            if not _fits(new[key], kinds):
                continue
            room = curves.room([new[key]])
            if size + room > PART_BYTES and runs and key not in runs:
                over = keys[place:]
                break
            if size + room <= curves.CURVE_BYTES - HEADS:
                size += room
                runs[key] = new[key]
                moved.append(key)
        if moved:
            content = curves.packed(CurveTable.of(runs))
            made = curves.parse(content)
            if lost := [key for key, stored in runs.items() if canonical(made.stored(key)) != canonical(stored)]:
                raise UserError(f"{path}: the curves of {lost[0]} do not come back as they went in; nothing was moved")
            files.write_atomically(path, content)
    return moved, over


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(f"{path}: {reason}; take it from version control again")


def _fits(stored: Stored, kinds: dict[str, str]) -> bool:
    """Whether a run comes back from columns as it went in, beside others whose columns are of these kinds, to which it
    adds its own."""
    try:
        if not all(PLAIN.fullmatch(name) for part in PARTS for name in stored.get(part, {})):
            return False
        made = CurveTable.of({"": stored})
        if canonical(made.stored("")) != canonical(stored):
            return False
    except (AttributeError, IndexError, TypeError, ValueError, OverflowError):  # it is no curves
        return False
    own_kinds = {name: str(column.values.dtype.kind) for name, column in made.columns.items()}
    if any(kinds.get(name, kind) != kind for name, kind in own_kinds.items()):
        return False
    kinds |= own_kinds
    return True
