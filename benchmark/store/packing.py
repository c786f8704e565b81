"""Move the curves of finished rows from single files into files of columns, one or more per method of a suite.

A method gets another file when one has PART_BYTES. Version control stores each state of a file, so one growing file
would be stored again with every new row.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from ... import files
from ...registry import UserError
from . import curves, row_file
from .curves import CurveTable, Stored
from .folder import Store, latest
from .provenance import canonical
from .row_file import rows_stem
from .schema import Row
from .side_files import clear_errors, unpacked

PART_BYTES = 12 * 2**20  # of the runs of a file in memory; below 2 MB on disk. A fuller file gets no more runs
HEADS = 2**16  # bytes of a file of columns without its runs


def pack(store: Store, suite: str) -> tuple[int, int]:
    """Move the curves of a suite's current rows into its files of columns. Return the number of moved runs, and of runs
    that are left in single files.

    The single file of a run is removed when the file of columns is on disk and has the same content. Curves stay in
    their file if they cannot be read, do not fit into columns, are too large, or belong to a running cell. UserError if
    the folder cannot be written, or if a file of columns is damaged.
    """
    moved = left = 0
    for rows in store.files(suite):
        files_of = {key: store.history_file(suite, key) for key in latest(row_file.read(Row, rows))}
        loose = {key: file for key, file in files_of.items() if file.is_file()}
        claims = {key: lock for key in loose if (lock := store.claim(suite, key))}
        runs = dict[str, Stored]()
        try:
            for key in claims:
                with suppress(OSError, EOFError, ValueError, zlib.error):  # a damaged file stays where it is
                    runs[key] = unpacked(loose[key].read_bytes())
            done = add_runs(store, suite, rows.stem, runs) if claims else []
            with clear_errors(store.root):
                for key in done:
                    loose[key].unlink()
        finally:
            for lock in claims.values():
                store.unclaim(lock)
        moved, left = moved + len(done), left + len(loose) - len(done)
    return moved, left


def add_runs(store: Store, suite: str, stem: str, runs: Mapping[str, Stored]) -> list[str]:
    """Write runs of a method into its files of columns. Return the keys of the runs that are on disk now.

    A run replaces an earlier run of its cell. Other runs are added to the last file, or to new files when it is full.
    Runs that do not fit into columns are left out. UserError for a damaged file.
    """
    columns = store.columns(suite)
    for name, reason in columns.damaged.items():
        if rows_stem(name) == stem:
            raise _damaged(store.columns_file(suite, stem).with_stem(name), reason)
    file_of = {key: name for key, name in columns.holder.items() if rows_stem(name) == stem}
    done, waiting = list[str](), {key: run for key, run in runs.items() if key not in file_of}
    for part in count(1):
        path = store.columns_file(suite, stem, part)
        last = not store.columns_file(suite, stem, part + 1).exists()
        replacing = {key: run for key, run in runs.items() if file_of.get(key) == path.stem}
        moved, rest = _add(store, path, replacing | (waiting if last else {}))
        done += moved
        if last:
            waiting = {key: runs[key] for key in rest}
            if not waiting:
                break
    return done


def _add(store: Store, path: Path, new: Mapping[str, Stored]) -> tuple[list[str], Sequence[str]]:
    """Add runs to a file of columns. Return (keys that are on disk now, keys for which there was no space)."""
    if not new:
        return [], []
    with clear_errors(store.root), store.locked(path):
        try:
            before = curves.read_curves(path) if path.exists() else CurveTable(curves.table_of({}))
        except ValueError as error:
            raise _damaged(path, str(error)) from None
        runs, kinds = {key: before.stored(key) for key in before.keys}, before.kinds
        size, moved, keys = sum(map(curves.room, runs.values())), list[str](), list(new)
        rest: Sequence[str] = []
        for place, key in enumerate(keys):
            if not _fits(new[key], kinds):
                continue
            room = curves.room(new[key])
            if size + room > PART_BYTES and runs and key not in runs:
                rest = keys[place:]
                break
            if size + room <= curves.CURVE_BYTES - HEADS:
                size += room
                runs[key] = new[key]
                moved.append(key)
        if moved:
            content = curves.packed(runs)
            made = curves.parse(content)
            if lost := [key for key, stored in runs.items() if canonical(made.stored(key)) != canonical(stored)]:
                raise UserError(f"{path}: the curves of {lost[0]} would change in this file; nothing was moved")
            files.write_atomically(path, content)
    return moved, rest


def _damaged(path: Path, reason: str) -> UserError:
    return UserError(f"{path}: {reason}; take it from version control again")


def _fits(stored: Stored, kinds: dict[str, str]) -> bool:
    """Whether a run is unchanged in columns together with others whose columns have these kinds of values. If so, the
    kinds of its columns are added to `kinds`."""
    try:
        made = CurveTable(curves.table_of({"": stored}))
        if canonical(made.stored("")) != canonical(stored):
            return False
    except (AttributeError, IndexError, TypeError, ValueError, OverflowError):  # these are no curves
        return False
    if any(kinds.get(name, kind) != kind for name, kind in made.kinds.items()):
        return False
    kinds |= made.kinds
    return True
