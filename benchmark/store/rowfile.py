"""One CSV file of result rows: a header line, then one line a row, read and appended to with crashes in mind.

Lines of several schemas may stand below one header: a row's first field says how many columns its line has, and the
header is that of the newest. It is the only line that is ever replaced, when a row of a newer schema is appended.
"""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ... import files
from ...registry import UserError
from .schema import COLUMNS, SCHEMA_VERSION, WIDTHS, Row

READ = {str(version): width for version, width in WIDTHS.items()}  # by a line's first field
_VALUES = {version: attrgetter(*COLUMNS[:width]) for version, width in WIDTHS.items()}  # of a row, by its schema
BREAKS = re.compile(r"[\n\r]")
HEADERS = {tuple(COLUMNS[:width]): version for version, width in WIDTHS.items()}


def append(path: Path, row: Row) -> None:
    """Add one row, after mending what a crash left behind, and force it to disk. Call with the file's lock held."""
    if path.exists() and path.stat().st_size:
        repair(path)
    first, _, rest = (path.read_bytes() if path.exists() else b"").partition(b"\n")
    if not first or _schema(path, first) < row.schema_version:
        files.write_atomically(path, header() + rest)
    files.append(path, line(row))


def header() -> bytes:
    """The first line of a new file."""
    return record(COLUMNS)


def line(row: Row) -> bytes:
    """A row as it stands in a file, in the columns of its schema, with the line break at its end."""
    return record(_VALUES[row.schema_version](row))


def record(values: Iterable[Any]) -> bytes:
    """A line of values: None is an empty field, and none holds a line break."""
    found = _record(values := list(values))
    if BREAKS.search(found, 0, len(found) - 1):
        found = _record([BREAKS.sub(" ", value) if isinstance(value, str) else value for value in values])
    return found.encode()


def _record(values: list[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(values)  # which writes None as nothing, others as `str` does
    return buffer.getvalue()


def _sound(line: bytes) -> list[str] | None:
    """The fields of a complete line, None for one that a crash cut or that a power cut filled with zeros."""
    if not line.endswith(b"\n") or b"\0" in line:
        return None
    try:
        fields = next(csv.reader([line.decode()], strict=True), [])
    except (UnicodeDecodeError, csv.Error):
        return None
    first, width = fields[0] if fields else "", len(fields)
    newer = first.isdecimal() and width > len(COLUMNS)  # not ours to read, and not damaged
    return fields if READ.get(first, width) == width and (width in READ.values() or newer) else None


def split(path: Path) -> Iterator[tuple[int, bytes, list[str] | None]]:
    """(line number, bytes, fields or None when damaged) of every line below the header, which is checked.

    Raises UserError for a foreign header, and for a line of a newer schema than the header's.
    """
    schema = SCHEMA_VERSION
    for number, line in enumerate(path.read_bytes().splitlines(keepends=True), start=1):
        if number == 1 and line.endswith(b"\n"):
            schema = _schema(path, line)
            continue
        fields = None if number == 1 else _sound(line.replace(b"\r\n", b"\n"))
        if fields is not None and len(fields) > WIDTHS[schema] and fields[0] in READ:
            told = f"written in result schema {fields[0]}, below a header of schema {schema}"
            raise UserError(f"{path}:{number}: {told}; make the first line that of schema {fields[0]}")
        yield number, line, fields


def _schema(path: Path, first: bytes) -> int:
    """The schema of a header. UserError for a foreign one."""
    header = first.decode(errors="replace").strip().split(",")
    found = HEADERS.get(tuple(header))
    if found is not None:
        return found
    near = min(WIDTHS, key=lambda version: len(set(header) ^ set(COLUMNS[: WIDTHS[version]])))
    known = COLUMNS[: WIDTHS[near]]
    extra, missing = sorted(set(header) - set(known)), sorted(set(known) - set(header))
    what = "; ".join(f"{word} {', '.join(map(repr, n))}" for word, n in (("unknown", extra), ("missing", missing)) if n)
    told = f"{path}: the header is not that of result schema {near} ({what or 'columns in another order'})"
    raise UserError(f"{told}; move the file away, or use the fglbench version that wrote it")


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
    if fields[0] not in READ:
        told = f"written in result schema {fields[0] or 'none'}; this fglbench reads 1 to {SCHEMA_VERSION}"
        raise UserError(f"{path}:{number}: {told}")
    try:
        return Row.model_validate({name: v for name, v in zip(COLUMNS, fields, strict=False) if v != ""})
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
