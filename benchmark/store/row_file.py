"""The places in a results folder: which files have the rows that count. One CSV file of result rows: a header line,
then one line per row. Appending and reading are safe after crashes."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ... import files
from ...metrics import ABOVE
from ...registry import UserError
from .schema import COLUMNS, SCHEMA_VERSION, AnyRow, Row, Standing

WRITTEN = "runs"  # the default folder of new rows
SHIPPED = "results"  # the folder with the rows of the leaderboard in a clone
LOCKS, LOGS = ".locks", ".logs"
CURVES = "curves"  # the folder of a suite's files of columns
PART = "@"  # before the number of a method's second and later files of columns; no row file has it in its name
SUBMISSIONS = "submissions"  # in a results folder: one folder of self-reported rows per method; these are never ranked
NOT_SUITES = {"environments", SUBMISSIONS}
APART = "tuning"  # in a results folder: a results folder with the trials of studies
# names that a user's suite cannot have
RESERVED = NOT_SUITES | {"history", CURVES, "embeddings", "models", "tables", "figures", "site", APART}
NAME = r"[A-Za-z0-9_+][\w.+-]*"  # of a suite (a folder) and of a method (a file)
SUFFIX = ".parquet"  # of a file of columns
COLUMN_FILE = rf"{NAME}({PART}([2-9]|[1-9][0-9]+))?\.parquet"
ROWS = rf"(?!({'|'.join(sorted(NOT_SUITES))})/){NAME}/{NAME}\.csv"


def reading(suite: str | None = None) -> Path:
    """Return the folder that is read by default: `runs` if it has rows (of `suite`, if given), else `results`."""
    written = Path(WRITTEN)
    paths = (
        path
        for path in written.glob(f"{safe_name(suite) if suite else '*'}/*.csv")
        if is_rows(f"{path.parent.name}/{path.name}")
    )
    return written if any(paths) else Path(SHIPPED)


def safe_name(name: str) -> str:
    """`name` as a file name: characters except letters, digits, '.', '_', '+' and '-' become '-'. A '-' or '.' at the
    start gets a '_' before it."""
    plain = re.sub(r"[^\w.+-]", "-", name)
    return plain if re.match(r"[A-Za-z0-9_+]", plain) else f"_{plain}"


def submission_folder(results: Path, method: str) -> Path:
    """The folder with the self-reported rows of a method; it is a results folder."""
    return results / SUBMISSIONS / safe_name(method)


def place(row: Row | Standing) -> str:
    """The path of a row's file in the results folder. The row does not count in another file."""
    return f"{row.suite}/{safe_name(row.method)}.csv"


def column_file(stem: str, part: int) -> str:
    """The name of a file of columns. stem: of the row file. part: from 1."""
    return f"{stem}{PART}{part}{SUFFIX}" if part > 1 else f"{stem}{SUFFIX}"


def rows_stem(name: str) -> str:
    """The stem of the row file of a file of columns. name: stem of the latter, of any part."""
    return name.partition(PART)[0]


def is_rows(path: str) -> bool:
    """Whether a path below the results folder is that of a row file."""
    return re.fullmatch(ROWS, path) is not None


BREAKS = re.compile(r"[\n\r]")
OTHER = "move the file away, or use the fglbench version that wrote it"
_values = attrgetter(*COLUMNS)


def append_row(path: Path, row: Row) -> None:
    """Repair the file if needed, add one row and force it to disk. The caller must have the lock of the file."""
    if path.exists() and path.stat().st_size:
        repair(path)
    if not path.exists() or not path.stat().st_size:
        files.write_atomically(path, header())
    files.append_bytes(path, line(row))


def header() -> bytes:
    """The first line of a file."""
    return record(COLUMNS)


def line(row: Row) -> bytes:
    """The line of a row, with the line break."""
    return record(_values(row))


def record(values: Iterable[Any]) -> bytes:
    """A CSV line of values: None becomes an empty field, and a line break in a text becomes a space."""
    buffer, values = io.StringIO(), list(values)
    csv.writer(buffer, lineterminator="\n").writerow(values)
    text = buffer.getvalue()
    if BREAKS.search(text, 0, len(text) - 1):
        return record(BREAKS.sub(" ", value) if isinstance(value, str) else value for value in values)
    return text.encode()


def fields_of(line: bytes) -> list[str] | None:
    """The fields of a line; None for a damaged line: cut by a crash, or filled with zeros by a power cut."""
    try:
        return _parsed(line)
    except ValueError:
        return None


def damage(line: bytes) -> str:
    """What is wrong with a line that is no row, in words."""
    try:
        return f"not a row: {len(_parsed(line))} fields instead of {len(COLUMNS)}"
    except ValueError as error:
        return str(error)


def _parsed(line: bytes) -> list[str]:
    """The fields of a line. ValueError, in words, for a damaged line."""
    if not line.endswith(b"\n"):
        raise ValueError("not a complete row: the end of the line is missing")
    if b"\0" in line:
        raise ValueError(f"not a row: byte {line.index(0) + 1} of the line is zero")
    try:
        return next(csv.reader([line.replace(b"\r\n", b"\n").decode()], strict=True), [])
    except UnicodeDecodeError as error:
        place, byte = error.start + 1, line[error.start]
        raise ValueError(f"not a row: byte {place} of the line ({byte:#x}) is not UTF-8") from None
    except csv.Error as error:
        raise ValueError(f"not a row of a CSV file: {error}") from None


def split(path: Path) -> Iterator[tuple[int, bytes, list[str] | None]]:
    """Yield (line number, bytes, fields or None if damaged) of every line below the header.

    Raises UserError for another header, and for a line of another version of fglbench.
    """
    content = path.read_bytes()
    lines = content.splitlines(keepends=True)
    fields_by_line = _fields_of_all(content, len(lines))
    for number, line in enumerate(lines, start=1):
        if number == 1 and line.endswith(b"\n"):
            _check_header(path, line)
            continue
        fields = None if number == 1 else fields_by_line[number - 1] if fields_by_line else fields_of(line)
        if fields is not None and len(fields) != len(COLUMNS):
            version = int(fields[0]) if fields and re.fullmatch("[0-9]{1,4}", fields[0]) else SCHEMA_VERSION
            if version < SCHEMA_VERSION and len(fields) < len(COLUMNS):
                raise UserError(f"{path}:{number}: written in result schema {version}; {OTHER}")
            if version > SCHEMA_VERSION and len(fields) > len(COLUMNS):
                raise UserError(f"{path}:{number}: {_newer(version)}")
            fields = None
        yield number, line, fields


def _fields_of_all(content: bytes, lines: int) -> list[list[str]] | None:
    """The fields of every line, in a third of the time of `fields_of`; None if a line may be damaged."""
    if b"\0" in content or b"\r" in content or not content.endswith(b"\n"):
        return None
    try:
        rows = list(csv.reader(content.decode().split("\n")[:-1], strict=True))
    except (UnicodeDecodeError, csv.Error):
        return None
    return rows if len(rows) == lines else None  # fewer rows: an open quotation mark joined lines


def _check_header(path: Path, first: bytes) -> None:
    names = first.decode(errors="replace").strip().split(",")
    if names == COLUMNS:
        return
    extra, missing = sorted(set(names) - set(COLUMNS)), sorted(set(COLUMNS) - set(names))
    lists = (("unknown", extra), ("missing", missing))
    difference = " and ".join(f"{word} {', '.join(map(repr, some))}" for word, some in lists if some)
    what = f"the header is not that of result schema {SCHEMA_VERSION} ({difference or 'columns in another order'})"
    raise UserError(f"{path}: {what}; {OTHER}")


def _newer(version: object) -> str:
    return f"written in result schema {version}; this fglbench reads up to {SCHEMA_VERSION}"


def read(model: type[AnyRow], path: Path, only: str | None = None) -> list[AnyRow]:
    """The rows of a file in order, with the columns of `model`. only: of this key. Damaged lines are left out with a
    warning.

    Raises UserError for another header or schema version, and for an invalid value.
    """
    rows, damaged = list[AnyRow](), []
    for number, _, fields in split(path):
        if fields is None:
            damaged.append(number)
        elif only is None or fields[COLUMNS.index("key")] == only:
            rows.append(parse(model, path, number, fields))
    if damaged:
        numbers = ", ".join(map(str, damaged))
        warnings.warn(f"{path}: line {numbers} is damaged and left out; the next run moves it aside", stacklevel=4)
    return rows


def parse(model: type[AnyRow], path: Path, number: int, fields: list[str]) -> AnyRow:
    """The row of the fields of a line. UserError as for `read`."""
    version = fields[0]
    if not (version.isascii() and version.isdigit() and len(version) <= 4 and 1 <= int(version) <= SCHEMA_VERSION):
        raise UserError(f"{path}:{number}: {_newer(fields[0] or 'none')}")
    try:
        return model.model_validate({name: v for at, name in _places(model) if (v := fields[at]) != ""})
    except ValidationError as error:
        problem = error.errors()[0]
        column, given = ".".join(map(str, problem["loc"])), problem["input"]
        if problem["type"] == ABOVE:
            column = problem["ctx"]["column"]
            given = given[column]
        what = "is empty" if problem["type"] == "missing" else f"{problem['msg']}, got {given!r}"
        raise UserError(f"{path}:{number}: column {column!r}: {what}") from None


@cache
def _places(model: type[BaseModel]) -> list[tuple[int, str]]:
    """(place in a line, name) of the columns of a model."""
    return [(at, name) for at, name in enumerate(COLUMNS) if name in model.model_fields]


def repair(path: Path) -> None:
    """Move damaged lines to `<file>.damaged`, with a warning. The caller must have the lock of the file."""
    damaged = [line for _, line, fields in split(path) if fields is None]
    if not damaged:
        return
    aside = path.with_name(path.name + ".damaged")
    files.append_bytes(aside, b"".join(line if line.endswith(b"\n") else line + b"\n" for line in damaged))
    kept = [line for line in path.read_bytes().splitlines(keepends=True) if line not in damaged]
    files.write_atomically(path, b"".join(kept))
    warnings.warn(f"{path}: {len(damaged)} damaged line(s) moved to {aside.name}", stacklevel=3)
