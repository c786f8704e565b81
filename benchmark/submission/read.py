"""Read a results folder or a submission: its files by kind, its rows line by line, its problems.

Files from outside are data: they are counted, measured and parsed. Nothing of them is imported, unpickled or run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

from ...methods import METHODS
from ...registry import UserError
from ..engine.config import TrainConfig
from ..engine.method import effective_training
from ..store import Store, places, row_file
from ..store.places import APART, COLUMN_FILE, COLUMNS, LOCKS, LOGS, NAME, PART, ROWS, SUBMISSIONS, place as place_of
from ..store.schema import Row
from ..suites.cell import NAMING, Cell, Choice, settled

MIB = 2**20
FILES, ROWS_OF_A_FILE = 50_000, 20_000  # the most that are read
TOTAL_BYTES = 256 * MIB  # of a submission
LARGE = 1e15  # no figure of a run is as large
METADATA = "submission.yaml"
SLUG = r"[a-z0-9][a-z0-9._-]*"
Kinds = dict[str, tuple[str, int]]  # kind -> (pattern of the path, most bytes); the first that fits
SUBMISSION: Kinds = {
    "curves": (rf"{NAME}/history/[0-9a-f]{{16}}\.json\.gz", 2 * MIB),
    "environment": (r"environments/[0-9a-f]{12}\.json", 1 << 16),
    "metadata": (re.escape(METADATA), 1 << 14),
    "rows": (ROWS, 16 * MIB),
}
RESULTS: Kinds = SUBMISSION | {
    "metadata": (r"(?!)", 0),  # those of submissions are in their folders
    "columns": (rf"{NAME}/{COLUMNS}/{COLUMN_FILE}", 64 * MIB),
    "embeddings": (rf"{NAME}/embeddings/[0-9a-f]{{16}}\.npz", 32 * MIB),
    "verified": (r"verified\.csv", 16 * MIB),
    "findings": (r"FINDINGS\.md", 64 * MIB),
    # Made by `fglbench report`.
    "report": (
        rf"(LEADERBOARD|REPRODUCTION)\.md|{NAME}/REPRODUCTION\.md|{NAME}/tables/{SLUG}\.(md|csv)"
        rf"|{NAME}/figures/(({'|'.join(places.FIGURES + places.FORMER)})\.png|manifest\.json)",
        64 * MIB,
    ),
    # Of a folder in use; not for version control.
    "page": (r"leaderboard\.html", 64 * MIB),
    "lock": (rf"{re.escape(LOCKS)}/[\w.+{PART}-]+", 0),
    "log": (rf"{re.escape(LOGS)}/[\w.+-]+\.txt", MIB),
    "study": (rf"\.studies/{NAME}/[\w.+-]+", 16 * MIB),
    "temporary": (r"(.+/)?\.[^/]+\.tmp", 64 * MIB),
    "damaged": (rf"{NAME}/{NAME}\.csv\.damaged", 16 * MIB),
}
TRIALS: Kinds = RESULTS | {"tuning": (rf"{NAME}/(README\.md|tuning\.png)", 64 * MIB)}  # pages of the studies
RERUN = "rows are never edited: run it again"
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
    """Problems in the order in which they are found, each once."""

    found: dict[Finding, None] = field(default_factory=dict)

    def add(self, place: str, what: str, fix: str, *, warning: bool = False) -> None:
        self.found[Finding(place, what, fix, warning)] = None

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.found if not finding.warning]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.found if finding.warning]


class Settings:
    """The cell of rows that differ only in their seed, and the training that its method makes of it. Computed once."""

    def __init__(self, row: Row, choices: dict[tuple[str, str], Choice] | None = None) -> None:
        self._row, self._choices, self._cells = row, choices, dict[int, Cell]()

    def at(self, seed: int) -> Cell:
        """The cell with this seed. ValueError where the columns name none."""
        if seed not in self._cells:
            self._cells[seed] = self.cell.at(seed)
        return self._cells[seed]

    @cached_property
    def cell(self) -> Cell:
        """The cell with one of the seeds. ValueError where the columns name none."""
        return Cell.of(self._row, self._choices)

    @cached_property
    def settled(self) -> Cell:
        """That cell as this version fills it in. UserError for an unknown name or a wrong parameter."""
        return settled(self.cell)

    @cached_property
    def effective(self) -> TrainConfig:
        """The training that the method makes of that of the cell. UserError for an unknown method."""
        return effective_training(self.cell.method.build(METHODS), self.cell.training)


@dataclass(frozen=True, eq=False)
class Line:
    """A row and its place. text: the line as read, with a line break at the end. settings: shared with its seeds."""

    file: str
    number: int
    place: str
    text: bytes
    row: Row
    settings: Settings = field(repr=False)

    @cached_property
    def cell(self) -> Cell | None:
        """The cell that the columns name; None if they name none (the check of the row says so)."""
        try:
            return self.settings.at(self.row.seed)
        except ValueError:
            return None

    @property
    def seedless(self) -> str:
        """The cell without its seed; the key of the row if its columns name none."""
        return self.cell.seedless if self.cell else self.row.key


@dataclass(frozen=True)
class Folder:
    """A folder and its files. name: as messages call it. files: kind -> paths below the root."""

    root: Path
    name: str
    submission: bool
    files: dict[str, tuple[str, ...]]

    @property
    def trials(self) -> bool:
        """Whether its rows are the trials of `fglbench tune`."""
        return holds_trials(self.root)

    @cached_property
    def store(self) -> Store:
        return Store(self.root, columns=not self.submission)

    @cached_property
    def curves(self) -> dict[tuple[str, str], str]:
        """(suite, key) -> the file with its curves; a file of one row takes precedence over a file of columns."""
        found = dict[tuple[str, str], str]()
        for file in self.files.get("columns", ()):
            path = PurePosixPath(file)
            table = self.store.columns(path.parts[0]).files.get(path.stem)
            found |= {(path.parts[0], key): file for key in (table.keys if table else ())}
        paths = map(PurePosixPath, self.files.get("curves", ()))
        return found | {(path.parts[0], path.name.split(".")[0]): str(path) for path in paths}

    def stored(self, suite: str, key: str) -> Any:
        """What the file in `curves` holds of a row. OSError, EOFError, zlib.error or ValueError for a damaged one."""
        path = PurePosixPath(self.curves[suite, key])
        if path.suffix == ".gz":
            return self.store.history(suite, key)
        return self.store.columns(suite).files[path.stem].stored(key)

    def place(self, path: str, number: int | None = None) -> str:
        return f"{self.name}/{path}" + (f":{number}" if number is not None else "")


def holds_trials(root: Path) -> bool:
    return root.resolve().name == APART


def inner(root: Path) -> list[str]:
    """The folders of a results folder that are looked at by themselves: the trials, and each submission."""
    found = [APART, *(f"{SUBMISSIONS}/{each.name}" for each in root.glob(f"{SUBMISSIONS}/*/"))]
    return [] if holds_trials(root) else found


def read(root: Path, name: str, findings: Findings, *, submission: bool | None = None) -> tuple[Folder, list[Line]]:
    """(the files of a folder, its sound rows). Links, unknown files, large files and damaged lines are findings.

    submission: None: whether there is a metadata file at the root. Of results, what is `inner` is left out.
    """
    submission = (root / METADATA).is_file() if submission is None else submission
    kinds = SUBMISSION if submission else TRIALS if holds_trials(root) else RESULTS
    skip = set() if submission else {str(root / each) for each in inner(root)}
    files: dict[str, list[str]] = {}
    total = 0
    for number, (path, entry) in enumerate(_walk(root, skip), start=1):
        size = entry.stat(follow_symlinks=False).st_size
        kind, most = next(((kind, most) for kind, (form, most) in kinds.items() if re.fullmatch(form, path)), ("", 0))
        if number > FILES:
            findings.add(name, f"more than {FILES} files", "submit rows and their side files only")
            break
        if entry.is_dir(follow_symlinks=False):
            findings.add(f"{name}/{path}", "a folder, where a file of rows belongs", "move it away")
        elif not entry.is_file(follow_symlinks=False):
            findings.add(f"{name}/{path}", "a link or device, not a file", "replace it by the file itself")
        elif not kind:
            findings.add(f"{name}/{path}", "unknown file", "remove it; `fglbench submit` packs what belongs here")
        elif size > most:
            findings.add(f"{name}/{path}", f"{size} bytes; at most {most} are read", "submit fewer or smaller files")
        else:
            files.setdefault(kind, []).append(path)
            total += size
    if submission and total > TOTAL_BYTES:
        findings.add(name, f"{total} bytes; at most {TOTAL_BYTES // MIB} MiB are read", "submit fewer files")
    folder = Folder(root, name, submission, {kind: tuple(sorted(paths)) for kind, paths in files.items()})
    return folder, _lines(folder, findings)


def _walk(root: Path, skip: set[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """(path below the root, entry) of every file, and of folders that have the name of a file of rows."""
    waiting, start = [str(root)], len(os.path.join(root, ""))
    while waiting:  # no recursion: a folder from outside may have any depth
        with os.scandir(waiting.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = entry.path[start:].replace(os.sep, "/")
                folder = entry.is_dir(follow_symlinks=False)
                if folder and entry.path not in skip:
                    waiting.append(entry.path)
                if not folder or re.fullmatch(ROWS, path):
                    yield path, entry


def _lines(folder: Folder, findings: Findings) -> list[Line]:
    found, naming = list[Line](), attrgetter(*NAMING)
    settings, choices = dict[object, Settings](), dict[tuple[str, str], Choice]()
    for file in folder.files.get("rows", ()):
        path = folder.root / file
        try:
            lines = list(row_file.split(path))
        except UserError as error:
            number, what = _located(error, path)
            findings.add(folder.place(file, number), what.split("; ")[0], "write it anew")
            continue
        if not lines:
            findings.add(folder.place(file), "no rows in the file", "remove it")
        if len(lines) > ROWS_OF_A_FILE:
            findings.add(folder.place(file), f"{len(lines)} rows; at most {ROWS_OF_A_FILE} are read", "submit fewer")
            continue
        for number, text, fields in lines:
            place, text = folder.place(file, number), text.replace(b"\r\n", b"\n")
            if fields is None:
                findings.add(place, "not a complete row", "remove the line; `fglbench run` runs it again")
                continue
            try:
                row = row_file.parse(path, number, fields)
            except UserError as error:
                findings.add(place, _located(error, path)[1], RERUN)
                continue
            if row_file.line(row) != text:
                findings.add(place, "the line is not as fglbench writes it", RERUN)
            elif file != place_of(row):
                what = f"a row of suite {row.suite!r} and method {row.method!r}"
                findings.add(place, what, f"it belongs in {place_of(row)}")
            else:
                same = settings.setdefault(naming(row), Settings(row, choices))
                found.append(Line(file, number, place, text, row, same))
    return found


def _located(error: UserError, path: Path) -> tuple[int, str]:
    """(line, problem) of an error about a file of rows; without a line it is about the header."""
    _, number, what = re.split(r"^(?::(\d+))?: ", str(error).removeprefix(str(path)), maxsplit=1)
    return int(number or 1), what


def grouped(lines: Iterable[Line], by: Callable[[Line], K]) -> dict[K, list[Line]]:
    """Lines by a key, in their order."""
    groups: dict[K, list[Line]] = {}
    for line in lines:
        groups.setdefault(by(line), []).append(line)
    return groups


def standing(lines: Iterable[Line]) -> dict[tuple[str, str], Line]:
    """The line that counts for each (suite, key): the last one."""
    return {(line.row.suite, line.row.key): line for line in lines}
