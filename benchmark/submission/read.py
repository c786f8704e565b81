"""Read a results folder or a submission: its rows line by line, and their problems.

Files from outside are data: they are counted, measured and parsed. Nothing of them is imported, unpickled or run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from ...methods import METHODS
from ...registry import UserError
from ..engine.config import TrainConfig
from ..engine.method import effective_training
from ..store import row_file
from ..store.places import place as place_of
from ..store.schema import Row
from ..suites.cell import NAMING, Cell, Choice, settled
from .listing import Findings, Folder, listed

ROWS_OF_A_FILE = 20_000  # the most that are read
LARGE = 1e15  # no figure of a run is as large
RERUN = "rows are never edited: run it again"
K = TypeVar("K")


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


def read(root: Path, name: str, findings: Findings, *, submission: bool | None = None) -> tuple[Folder, list[Line]]:
    """(the files of a folder, its sound rows). Links, unknown files, large files and damaged lines are findings.

    submission: as of `listed`.
    """
    folder = listed(root, name, findings, submission=submission)
    return folder, lines_of(folder, findings)


def lines_of(folder: Folder, findings: Findings) -> list[Line]:
    """The sound rows of a folder; damaged lines are findings."""
    sound, naming = list[Line](), attrgetter(*NAMING)
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
                sound.append(Line(file, number, place, text, row, same))
    return sound


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
