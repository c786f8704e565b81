"""Curves of finished rows, moved from a file each into one of columns for each method of a suite."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple

from ... import files
from ...registry import UserError
from . import columnfile, rowfile
from .attachments import clear_errors, unpacked
from .columnfile import PARTS, PLAIN, CurveTable, Stored
from .folder import Store, latest
from .provenance import canonical

HEADS = 2**16  # bytes of a file of columns besides its runs


class Packed(NamedTuple):
    """What `pack` did. moved: runs whose curves are in columns now. left: those that keep a file of their own."""

    moved: int
    left: int


def pack(store: Store, suite: str) -> Packed:
    """Move the curves of a suite's standing rows into its files of columns.

    A run's own file is removed once the file of columns is on disk and gives the same back. Curves that cannot be read,
    do not fit into columns, are more than one file may hold or belong to a cell that is running keep their file. Raises
    UserError for a folder that cannot be written, and for a file of columns that is damaged.
    """
    moved = left = 0
    for rows in store.files(suite):
        standing = latest(rowfile.read(rows)).values()
        loose = [row.key for row in standing if store.history_file(suite, row.key).is_file()]
        claims = {key: lock for key in loose if (lock := store.claim(suite, key))}
        try:
            done = _add(store, suite, store.columns_file(suite, rows.stem), list(claims)) if claims else 0
        finally:
            for lock in claims.values():
                store.unclaim(lock)
        moved, left = moved + done, left + len(loose) - done
    return Packed(moved, left)


def _add(store: Store, suite: str, path: Path, keys: list[str]) -> int:
    """Move runs, whose cells are claimed, into a file of columns; how many were moved."""
    with clear_errors(store.root), store.locked(path):
        try:
            before = columnfile.parse(path.read_bytes()) if path.exists() else None
        except ValueError as error:
            raise UserError(f"{path}: {error}; take it from version control again") from None
        runs = {key: before.stored(key) for key in before.keys} if before else {}
        kinds = {name: str(column.values.dtype.kind) for name, column in before.columns.items()} if before else {}
        moved, free = list[str](), columnfile.COLUMN_BYTES - HEADS - columnfile.room(runs.values())
        for key in keys:
            found = _loose(store.history_file(suite, key))
            if found is not None and _fits(found, kinds) and (room := columnfile.room([found])) <= free:
                free -= room
                runs[key] = found
                moved.append(key)
        if not moved:
            return 0
        content = columnfile.packed(columnfile.arrays_of(runs))
        made = columnfile.parse(content)
        if lost := [key for key, stored in runs.items() if canonical(made.stored(key)) != canonical(stored)]:
            raise UserError(f"{path}: the curves of {lost[0]} do not come back as they went in; nothing was moved")
        files.write_atomically(path, content)
        for key in moved:
            store.history_file(suite, key).unlink()
    return len(moved)


def _loose(path: Path) -> Stored | None:
    """What a run's own file holds; None where it is not as it was written."""
    try:
        found = unpacked(path.read_bytes())
    except (OSError, EOFError, ValueError, zlib.error):
        return None
    return found.found if found.as_written else None


def _fits(stored: Stored, kinds: dict[str, str]) -> bool:
    """Whether a run comes back from columns as it went in, beside others whose columns are of these kinds, to which it
    adds its own."""
    try:
        if not all(PLAIN.fullmatch(name) for part in PARTS for name in stored.get(part, {})):
            return False
        made = CurveTable(columnfile.arrays_of({"": stored}))
        if canonical(made.stored("")) != canonical(stored):
            return False
    except (AttributeError, IndexError, TypeError, ValueError, OverflowError):  # it is no curves
        return False
    own = {name: str(column.values.dtype.kind) for name, column in made.columns.items()}
    if any(kinds.get(name, kind) != kind for name, kind in own.items()):
        return False
    kinds |= own
    return True
