"""Read the rows of a results folder or a submission line by line, and check each row: columns, code, key, names.

Files from outside are data. They are parsed within limits, and never imported, unpickled or run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from ...methods import METHODS
from ...registry import OWN, UserError
from ..engine.config import TrainConfig
from ..engine.method import effective_training
from ..store import row_file
from ..store.provenance import canonical, current_version
from ..store.row_file import place as place_of
from ..store.schema import FORMULA, RULES, Row
from ..suites.cell import NAMING, Cell, Choice, settled
from .listing import Findings, Folder, listed

ROWS_OF_A_FILE = 20_000  # limit
LARGE = 1e15  # above all valid numbers
RERUN = "rows are never edited: run it again"
K = TypeVar("K")


class Settings:
    """The cell of rows that differ only in their seed, and the training of its method. Computed once."""

    def __init__(self, row: Row, choices: dict[tuple[str, str], Choice]) -> None:
        self._row, self._choices = row, choices

    @cached_property
    def cell(self) -> Cell:
        """The cell with one of the seeds. ValueError if the columns are no cell."""
        return Cell.of(self._row, self._choices)

    @cached_property
    def settled(self) -> Cell:
        """The cell with the defaults of this version. UserError for an unknown name or a wrong parameter."""
        return settled(self.cell)

    @cached_property
    def effective(self) -> TrainConfig:
        """The training configuration of the method for this cell. UserError for an unknown method."""
        return effective_training(self.cell.method.build(METHODS), self.cell.training)


@dataclass(frozen=True, eq=False)
class Line:
    """A row and its place. text: the line, with a line break. settings: shared with the other seeds."""

    file: str
    number: int
    place: str
    text: bytes
    row: Row
    settings: Settings = field(repr=False)

    @cached_property
    def experiment(self) -> Cell:
        """The cell of the row. ValueError if the columns are no cell."""
        return self.settings.cell.at(self.row.seed)

    @property
    def cell(self) -> Cell | None:
        """The same, or None if the columns are no cell (`problems` reports it)."""
        with suppress(ValueError):
            return self.experiment
        return None

    @property
    def seedless(self) -> str:
        """The identity of the cell without its seed; the key of the row if it has no cell."""
        return self.cell.seedless if self.cell else self.row.key


def read(root: Path, name: str, findings: Findings, *, submission: bool | None = None) -> tuple[Folder, list[Line]]:
    """(files of a folder, its valid rows). Links, unknown files, large files and damaged lines are findings.

    submission: see `listed`.
    """
    folder = listed(root, name, findings, submission=submission)
    return folder, lines_of(folder, findings)


def lines_of(folder: Folder, findings: Findings) -> list[Line]:
    """The valid rows of a folder; damaged lines are findings."""
    valid, naming = list[Line](), attrgetter(*NAMING)
    settings, choices = dict[object, Settings](), dict[tuple[str, str], Choice]()
    for file in folder.files.get("rows", ()):
        path = folder.root / file
        try:
            lines = list(row_file.split(path))
        except UserError as error:
            number, what = located(error, path)
            findings.add(folder.place(file, number or 1), what.split("; ")[0], "write it anew")
            continue
        if not lines:
            findings.add(folder.place(file), "no rows in the file", "remove it")
        if len(lines) > ROWS_OF_A_FILE:
            findings.add(folder.place(file), f"{len(lines)} rows; at most {ROWS_OF_A_FILE} are read", "submit fewer")
            continue
        for number, line, fields in lines:
            place, text = folder.place(file, number), line.replace(b"\r\n", b"\n")
            if fields is None:
                findings.add(place, row_file.damage(line), "remove the line; `fglbench run` runs it again")
                continue
            try:
                row = row_file.parse(Row, path, number, fields)
            except UserError as error:
                findings.add(place, located(error, path)[1], RERUN)
                continue
            if row_file.line(row) != text:
                findings.add(place, "the line is not as fglbench writes it", RERUN)
            elif file != place_of(row):
                what = f"a row of suite {row.suite!r} and method {row.method!r}"
                findings.add(place, what, f"it belongs in {place_of(row)}")
            else:
                same = settings.setdefault(naming(row), Settings(row, choices))
                valid.append(Line(file, number, place, text, row, same))
    return valid


def located(error: UserError, path: Path) -> tuple[int | None, str]:
    """The line that an error about a file names, if any, and what is wrong."""
    named = re.fullmatch(rf"{re.escape(str(path))}(?::(\d+))?: (.*)", str(error), re.DOTALL)
    number, what = named.groups() if named else (None, str(error))
    return int(number) if number else None, what


def grouped(lines: Iterable[Line], by: Callable[[Line], K]) -> dict[K, list[Line]]:
    """Group lines by a key, in their order."""
    groups: dict[K, list[Line]] = {}
    for line in lines:
        groups.setdefault(by(line), []).append(line)
    return groups


def standing(lines: Iterable[Line]) -> dict[tuple[str, str], Line]:
    """The current line of each (suite, key): the last one."""
    return {(line.row.suite, line.row.key): line for line in lines}


COMMIT = "commit the code, then run again with --rerun all"
NEEDED = [name for name, rule in RULES.items() if rule.needed]
Problem = tuple[str, str]  # description, fix


def problems(line: Line) -> Iterator[Problem]:
    """The problems of a single row."""
    row = line.row
    for (name, rule), value in zip(RULES.items(), _values(row), strict=True):
        if isinstance(value, str):
            yield from _text(name, value)
        elif value is not None and not rule.least <= value < LARGE:
            yield f"column {name!r}: {value!r} is out of range", RERUN
    yield from _status(row)
    yield from _checkout(row)
    try:
        cell = line.experiment
    except ValueError as error:
        yield f"its columns name no experiment: {str(error).splitlines()[0]}", RERUN
        return
    if cell.key != row.key:
        yield f"key {row.key} is not that of its experiment, which is {cell.key}", RERUN
    elif row.dataset.startswith(OWN):
        yield f"{row.dataset} is the user's data, no registered dataset", "leave its rows out: no one else has it"
    elif row.method in METHODS.names():
        try:
            yield from _names(row, cell, line.settings.settled)
        except UserError as error:
            yield str(error), "run it again with a name that this version knows"


_values = attrgetter(*RULES)


@lru_cache(maxsize=100_000)  # most texts are in many rows
def _text(name: str, value: str) -> tuple[Problem, ...]:
    rule, problems = RULES[name], list[Problem]()
    if len(value) > rule.longest:
        problems.append((f"column {name!r} has {len(value)} characters; at most {rule.longest} are read", "shorten it"))
    if value.startswith(FORMULA):
        problems.append((f"column {name!r}: {value!r:.40} begins like a spreadsheet formula", RERUN))
    if not value.isprintable():
        problems.append((f"column {name!r} has control or invisible characters", "remove them"))
    if rule.pattern and not re.fullmatch(rule.pattern, value):
        fix = COMMIT if name == "git_sha" else RERUN
        problems.append((f"column {name!r}: {value!r:.80} is not of the form {rule.pattern}", fix))
    if rule.json and value and not _canonical(value):
        problems.append((f"column {name!r} is not canonical JSON", RERUN))
    return tuple(problems)


def _canonical(text: str) -> bool:
    try:
        return canonical(json.loads(text)) == text
    except (ValueError, RecursionError):
        return False


def _status(row: Row) -> Iterator[Problem]:
    """Check that a row with status ok has all values, and any other row an error and no score."""
    missing = [name for name in NEEDED if getattr(row, name) in (None, "")]
    if row.status != "ok":
        if row.score is not None:
            yield f"a score although the run is {row.status}", RERUN
        if not row.error:
            yield f"no error although the run is {row.status}", RERUN
    elif missing:
        yield f"status ok without {', '.join(missing)}", RERUN
    else:
        if row.error:
            yield "status ok with an error", RERUN
        if not row.in_time:
            yield f"best round {row.best_round} of {row.rounds}", RERUN
        if not (row.train_seconds or 0) <= (row.total_seconds or 0):
            yield f"trained for {row.train_seconds:g} seconds, but {row.total_seconds:g} seconds in total", RERUN


def _checkout(row: Row) -> Iterator[Problem]:
    """Check that the code of the row is known: a commit without changes, or an installed package."""
    if row.git_dirty:
        yield "made from a checkout with uncommitted changes (git_dirty)", COMMIT
    elif (row.git_dirty is None) == bool(row.git_sha) or not (row.git_sha.strip("0") or row.code):
        yield "neither a commit nor the code of an installed package is named (git_sha, git_dirty, code)", COMMIT


def _names(row: Row, cell: Cell, made: Cell) -> Iterator[Problem]:
    """Check that parameters are complete. made: the cell with the defaults of this version."""
    method = METHODS.cls(row.method)
    if row.reference != method.reference:
        yield f"reference is {row.reference}, of {row.method} it is {method.reference}", RERUN
    version = current_version(row.method, row.method_version, row.git_sha)
    if version.isdecimal() and int(version) > method.revision:
        yield f"method_version is {row.method_version}, of {row.method} it is {method.revision}", RERUN
    if made.seedless != cell.seedless:
        parts = [name for name in made.identity if name != "seed" and made.identity[name] != cell.identity[name]]
        yield f"its {', '.join(parts)} is not as this version fills in the parameters", "run it again"
        return
    if row.task != cell.task:
        yield f"task {row.task!r}, but {row.dataset} under split {row.split} is for {cell.task!r}", RERUN
