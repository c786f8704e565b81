"""One CSV file of result rows: a header line, then one line a row, read and appended to with crashes in mind."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path

from pydantic import ValidationError

from ... import files
from ...registry import UserError
from .schema import SCHEMA_VERSION, Row

COLUMNS = list(Row.model_fields)


def append(path: Path, row: Row) -> None:
    """Add one row, after mending what a crash left behind, and force it to disk. Call with the file's lock held."""
    if path.exists() and path.stat().st_size:
        repair(path)
    if not path.exists() or not path.stat().st_size:
        files.write_atomically(path, header())
    files.append(path, line(row))


def header() -> bytes:
    """The first line of a file."""
    return _line(COLUMNS)


def line(row: Row) -> bytes:
    """A row as it stands in a file, with the line break at its end."""
    return _line(_fields(row))


def _fields(row: Row) -> list[str]:
    values = row.model_dump().values()  # a line is a row: no value may hold a line break
    return ["" if value is None else " ".join(str(value).split("\n")).replace("\r", " ") for value in values]


def _line(fields: Sequence[str]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(fields)
    return buffer.getvalue().encode()


def _sound(line: bytes) -> list[str] | None:
    """The fields of a complete line, None for one that a crash cut or that a power cut filled with zeros."""
    if not line.endswith(b"\n") or b"\0" in line:
        return None
    try:
        fields = next(csv.reader([line.decode()], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        return None
    return fields if len(fields) == len(COLUMNS) else None


def split(path: Path) -> Iterator[tuple[int, bytes, list[str] | None]]:
    """(line number, bytes, fields or None when damaged) of every line below the header, which is checked.

    Raises UserError for a foreign header.
    """
    lines = path.read_bytes().splitlines(keepends=True)
    if lines and lines[0].endswith(b"\n"):
        _check_header(path, lines[0].decode(errors="replace").strip().split(","))
    for number, line in enumerate(lines, start=1):
        if number == 1 and line.endswith(b"\n"):
            continue
        yield number, line, None if number == 1 else _sound(line.replace(b"\r\n", b"\n"))


def _check_header(path: Path, header: list[str]) -> None:
    if header == COLUMNS:
        return
    extra, missing = sorted(set(header) - set(COLUMNS)), sorted(set(COLUMNS) - set(header))
    what = "; ".join(f"{word} {', '.join(map(repr, n))}" for word, n in (("unknown", extra), ("missing", missing)) if n)
    raise UserError(
        f"{path}: the header is not that of result schema {SCHEMA_VERSION} ({what or 'columns in another order'}); "
        "move the file away, or use the fglbench version that wrote it"
    )


def read(path: Path, only: str | None = None) -> list[Row]:
    """The rows of a file in order (of one key: `only`). Damaged lines are left out with a warning.

    Raises UserError for a foreign header, another schema version, or a value that its column does not admit.
    """
    rows, damaged = [], []
    for number, _, fields in split(path):
        if fields is None:
            damaged.append(number)
        elif only is None or fields[COLUMNS.index("key")] == only:
            rows.append(parse(path, number, fields))
    if damaged:
        numbers = ", ".join(map(str, damaged))
        warnings.warn(f"{path}: line {numbers} is damaged and left out; the next run moves it aside", stacklevel=3)
    return rows


def parse(path: Path, number: int, fields: list[str]) -> Row:
    """The row of a line's fields. UserError as of `read`."""
    values = {column: value for column, value in zip(COLUMNS, fields, strict=True) if value != ""}
    if values.get("schema_version") != str(SCHEMA_VERSION):
        version = values.get("schema_version", "none")
        raise UserError(f"{path}:{number}: written in result schema {version}; this fglbench reads {SCHEMA_VERSION}")
    try:
        return Row.model_validate(values)
    except ValidationError as error:
        problem = error.errors()[0]
        column = ".".join(map(str, problem["loc"]))
        what = "is empty" if problem["type"] == "missing" else f"{problem['msg']}, got {problem['input']!r}"
        raise UserError(f"{path}:{number}: column {column!r}: {what}") from None


def repair(path: Path) -> None:
    """Move damaged lines to `<file>.damaged`, with a warning. Call with the file's lock held."""
    damaged = [line for _, line, fields in split(path) if fields is None]
    if not damaged:
        return
    aside = path.with_name(path.name + ".damaged")
    files.append(aside, b"".join(line if line.endswith(b"\n") else line + b"\n" for line in damaged))
    kept = [line for line in path.read_bytes().splitlines(keepends=True) if line not in damaged]
    files.write_atomically(path, b"".join(kept))
    warnings.warn(f"{path}: {len(damaged)} damaged line(s) moved to {aside.name}", stacklevel=3)
