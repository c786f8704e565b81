"""The rows of a folder, line by line, with the place of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from ...registry import UserError
from ..store import rowfile
from ..store.folder import safe_name
from ..store.schema import Row
from .findings import Findings
from .folder import Folder
from .limits import ROWS


@dataclass(frozen=True, eq=False)
class Line:
    """A row and where it stands. text: the line as read, ending in a line break."""

    file: str
    number: int
    place: str
    text: bytes
    row: Row


def read(folder: Folder, findings: Findings) -> list[Line]:
    """Every sound row of a folder, file by file; damaged and foreign lines are findings."""
    found: list[Line] = []
    for file in folder.files.get("rows", ()):
        path = folder.root / file
        try:
            lines = list(rowfile.split(path))
        except UserError as error:
            findings.add(folder.place(file, 1), _without(str(error), f"{path}: ").split("; ")[0], "write it anew")
            continue
        if not path.read_bytes()[:1] or not lines:
            findings.add(folder.place(file), "no rows in the file", "remove it")
        if len(lines) > ROWS:
            findings.add(folder.place(file), f"{len(lines)} rows; at most {ROWS} are read", "submit fewer")
            continue
        for number, text, fields in lines:
            line = _line(folder, file, number, text, fields, findings)
            if line is not None:
                found.append(line)
    return found


def _line(
    folder: Folder, file: str, number: int, text: bytes, fields: list[str] | None, findings: Findings
) -> Line | None:
    path, place = folder.root / file, folder.place(file, number)
    if fields is None:
        findings.add(place, "not a complete row", "remove the line; `fglbench run` runs the cell again")
        return None
    try:
        row = rowfile.parse(path, number, fields)
    except UserError as error:
        findings.add(place, _without(str(error), f"{path}:{number}: "), "rows are never edited: run the cell again")
        return None
    text = text.replace(b"\r\n", b"\n")
    if rowfile.line(row) != text:
        findings.add(place, "the line is not as fglbench writes it", "rows are never edited: run the cell again")
        return None
    expected = f"{row.suite}/{safe_name(row.method)}.csv"
    if file != expected:
        findings.add(place, f"a row of suite {row.suite!r} and method {row.method!r}", f"it belongs in {expected}")
        return None
    return Line(file, number, place, text, row)


def standing(lines: list[Line]) -> dict[tuple[str, str], Line]:
    """The line that counts for each (suite, key): the last one."""
    return {(line.row.suite, line.row.key): line for line in lines}


def suite_of(file: str) -> str:
    return PurePosixPath(file).parts[0]


def _without(text: str, prefix: str) -> str:
    return text.removeprefix(prefix)
