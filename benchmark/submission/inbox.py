"""A folder from outside: which files it holds and which it may not, its rows line by line, what is wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TypeVar

from ...registry import UserError
from ..store import Store, made, rowfile
from ..store.places import APART, COLUMN_FILE, COLUMNS, LOCKS, LOGS, NAME, PART, ROWS, place as place_of
from ..store.schema import Row
from ..suites.cell import Cell
from . import limits, metadata
from .kin import Kin, Kindred

SLUG = r"[a-z0-9][a-z0-9._-]*"
Kinds = dict[str, tuple[str, int]]  # kind -> pattern of the path, most bytes; the first that fits
KINDS: Kinds = {
    "curves": (rf"{NAME}/history/[0-9a-f]{{16}}\.json\.gz", limits.CURVES_BYTES),
    "environment": (r"environments/[0-9a-f]{12}\.json", limits.ENVIRONMENT_BYTES),
    "metadata": (re.escape(metadata.FILE), limits.METADATA_BYTES),
    "rows": (ROWS, limits.ROWS_BYTES),
}
# What a results folder has besides, made by the report or kept by the maintainers, and where its metadata are.
MORE: Kinds = {
    "metadata": (rf"{metadata.FOLDER}/{NAME}\.yaml", limits.METADATA_BYTES),
    "columns": (rf"{NAME}/{COLUMNS}/{COLUMN_FILE}", limits.COLUMNS_BYTES),
    "embeddings": (rf"{NAME}/embeddings/[0-9a-f]{{16}}\.npz", limits.EMBEDDINGS_BYTES),
    "verified": (r"verified\.csv", limits.ROWS_BYTES),
    "versions": (r"versions\.csv", limits.ROWS_BYTES),
    "report": (
        rf"(LEADERBOARD|REPRODUCTION|FINDINGS)\.md|{NAME}/REPRODUCTION\.md|{NAME}/tables/{SLUG}\.(md|csv)",
        limits.PAGE_BYTES,
    ),
    "figure": (rf"{NAME}/figures/({'|'.join(made.FIGURES + made.FORMER)})\.png", limits.PAGE_BYTES),
    "manifest": (rf"{NAME}/figures/manifest\.json", limits.ENVIRONMENT_BYTES),
    # Of a folder in use; not for version control.
    "page": (r"leaderboard\.html", limits.PAGE_BYTES),
    "lock": (rf"{re.escape(LOCKS)}/[\w.+{PART}-]+", 0),
    "log": (rf"{re.escape(LOGS)}/[\w.+-]+\.txt", limits.LOG_BYTES),
    "study": (rf"\.studies/{NAME}/[\w.+-]+", limits.ROWS_BYTES),
    "temporary": (r"(.+/)?\.[^/]+\.tmp", limits.PAGE_BYTES),
    "damaged": (rf"{NAME}/{NAME}\.csv\.damaged", limits.ROWS_BYTES),
}
TRIALS: Kinds = {"tuning": (rf"{NAME}/(README\.md|tuning\.png)", limits.PAGE_BYTES)}  # of `APART`: its own pages
RERUN = "rows are never edited: run the cell again"
K = TypeVar("K")


@dataclass(frozen=True)
class Finding:
    """One problem. place: a file, or file:line. A warning does not make the folder invalid."""

    place: str
    what: str
    fix: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{'warning: ' if self.warning else ''}{self.place}: {self.what}; {self.fix}"


@dataclass
class Findings:
    """Problems in the order in which they are found, each told once."""

    found: dict[Finding, None] = field(default_factory=dict)

    def add(self, place: str, what: str, fix: str, *, warning: bool = False) -> None:
        self.found[Finding(place, what, fix, warning)] = None

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.found if not finding.warning]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.found if finding.warning]


@dataclass(frozen=True)
class Folder:
    """A folder of results, looked through. name: what messages call it. files: kind -> paths below the root."""

    root: Path
    name: str
    submission: bool
    files: dict[str, tuple[str, ...]]

    @property
    def trials(self) -> bool:
        """Whether its rows are those of `fglbench tune`."""
        return holds_trials(self.root)

    @cached_property
    def store(self) -> Store:
        """To read what lies in it."""
        return Store(self.root, columns=not self.submission)

    @cached_property
    def curves(self) -> dict[tuple[str, str], str]:
        """Which file has the curves of (suite, key): a row's own goes before one of columns."""
        paths = [PurePosixPath(file) for file in self.files.get("curves", ())]
        own = {(path.parts[0], path.name.split(".")[0]): str(path) for path in paths}
        suites = {PurePosixPath(file).parts[0] for file in self.files.get("columns", ())}
        return {
            (suite, key): f"{suite}/{COLUMNS}/{stem}.npz"
            for suite in sorted(suites)
            for key, stem in self.store.columns(suite).holder.items()
        } | own

    def place(self, path: str, number: int | None = None) -> str:
        return f"{self.name}/{path}" + (f":{number}" if number is not None else "")


@dataclass(frozen=True, eq=False)
class Line:
    """A row and where it stands. text: the line as read, ending in a line break. kindred: of lines read with it."""

    file: str
    number: int
    place: str
    text: bytes
    row: Row
    kindred: Kindred = field(default_factory=Kindred, repr=False)

    @cached_property
    def kin(self) -> Kin:
        return self.kindred.of(self.row)

    @cached_property
    def cell(self) -> Cell | None:
        """The cell that the row's columns name; None where they name none, which the row's own check tells."""
        try:
            return self.kin.at(self.row.seed)
        except ValueError:
            return None


def holds_trials(root: Path) -> bool:
    return root.resolve().name == APART


def look(root: Path, name: str, findings: Findings, *, archive: bool = False, submission: bool | None = None) -> Folder:
    """Every file of a folder by its kind; symbolic links, unknown and oversized files are findings, and left out.

    submission: whether it is one. Where it is not said, a folder with a metadata file at its root is, as is whatever
    came as an archive.
    """
    if submission is None:
        submission = archive or (root / metadata.FILE).is_file()
    kinds = KINDS if submission else KINDS | MORE | (TRIALS if holds_trials(root) else {})
    files: dict[str, list[str]] = {}
    total, start = 0, len(os.path.join(root, ""))
    for number, entry in enumerate(_walk(root, apart=None if submission else root / APART), start=1):
        path = entry.path[start:].replace(os.sep, "/")
        place, size = f"{name}/{path}", entry.stat(follow_symlinks=False).st_size
        kind, most = _kind(kinds, path)
        if number > limits.FILES:
            findings.add(name, f"more than {limits.FILES} files", "submit rows and their side files only")
            break
        if not entry.is_file(follow_symlinks=False):
            findings.add(place, "a link or device, not a file", "replace it by the file itself")
        elif not kind:
            findings.add(place, "unknown file", "remove it; `fglbench submit` packs what belongs here")
        elif size > most:
            findings.add(place, f"{size} bytes; at most {most} are read", "submit fewer or smaller files")
        else:
            files.setdefault(kind, []).append(path)
            total += size
    for path in (str(each.relative_to(root).as_posix()) for each in root.glob("*/*.csv") if each.is_dir()):
        if re.fullmatch(ROWS, path):
            findings.add(f"{name}/{path}", "a folder, where a file of rows belongs", "move it away")
    if submission and total > limits.TOTAL_BYTES:
        most = limits.TOTAL_BYTES // limits.MIB
        findings.add(name, f"{total} bytes; at most {most} MiB are read", "submit fewer files")
    return Folder(root, name, submission, {kind: tuple(sorted(paths)) for kind, paths in files.items()})


def _kind(kinds: Kinds, path: str) -> tuple[str, int]:
    """(kind, most bytes) of a path; no kind: it is unknown."""
    return next(((kind, most) for kind, (pattern, most) in kinds.items() if re.fullmatch(pattern, path)), ("", 0))


def _walk(root: Path, apart: Path | None) -> Iterator[os.DirEntry[str]]:
    """Everything below a folder that is not a folder itself, but for what lies in `apart`; links are not followed."""
    waiting = [str(root)]
    while waiting:  # no recursion: a folder from outside may be of any depth
        with os.scandir(waiting.pop()) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        folders = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
        waiting += [entry.path for entry in reversed(folders) if entry.path != str(apart)]
        yield from (entry for entry in found if entry not in folders)


def read(folder: Folder, findings: Findings) -> list[Line]:
    """Every sound row of a folder, file by file; damaged and foreign lines are findings."""
    found, kindred = list[Line](), Kindred()
    for file in folder.files.get("rows", ()):
        try:
            lines = list(rowfile.split(folder.root / file))
        except UserError as error:
            number, what = _told(error, folder.root / file)
            findings.add(folder.place(file, number), what.split("; ")[0], "write it anew")
            continue
        if not lines:
            findings.add(folder.place(file), "no rows in the file", "remove it")
        if len(lines) > limits.ROWS:
            findings.add(folder.place(file), f"{len(lines)} rows; at most {limits.ROWS} are read", "submit fewer")
            continue
        for number, text, fields in lines:
            text = text.replace(b"\r\n", b"\n")
            row = _row(folder, file, number, text, fields, findings)
            if row is not None:
                found.append(Line(file, number, folder.place(file, number), text, row, kindred))
    return found


def _row(folder: Folder, file: str, at: int, text: bytes, fields: list[str] | None, findings: Findings) -> Row | None:
    place = folder.place(file, at)
    if fields is None:
        findings.add(place, "not a complete row", "remove the line; `fglbench run` runs the cell again")
        return None
    try:
        row = rowfile.parse(folder.root / file, at, fields)
    except UserError as error:
        findings.add(place, _told(error, folder.root / file)[1], RERUN)
        return None
    expected = place_of(row)
    if rowfile.line(row) != text:
        findings.add(place, "the line is not as fglbench writes it", RERUN)
    elif file != expected:
        findings.add(place, f"a row of suite {row.suite!r} and method {row.method!r}", f"it belongs in {expected}")
    else:
        return row
    return None


def _told(error: UserError, path: Path) -> tuple[int, str]:
    """(line, what is wrong with it) of an error about a file of rows; without a line it is about the header."""
    _, number, what = re.split(r"^(?::(\d+))?: ", str(error).removeprefix(str(path)), maxsplit=1)
    return int(number or 1), what


def grouped(lines: Iterable[Line], by: Callable[[Line], K]) -> dict[K, list[Line]]:
    """Lines in their order, by what `by` says of them."""
    groups: dict[K, list[Line]] = {}
    for line in lines:
        groups.setdefault(by(line), []).append(line)
    return groups


def standing(lines: Iterable[Line]) -> dict[tuple[str, str], Line]:
    """The line that counts for each (suite, key): the last one."""
    return {(line.row.suite, line.row.key): line for line in lines}
