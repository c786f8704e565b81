"""How commands say things: plain text, tables without lines, JSON, complaints on the error output."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from ..store.places import WRITTEN

if TYPE_CHECKING:
    from ..store.schema import Row
    from ..store.standing import Standing

ENDLESS = 100_000  # characters; a line of a pipe is not broken
HEAVY = "torch"
NAMED = 3  # methods; more are counted
DEFAULT = Path(WRITTEN)


def plain_console(*, stderr: bool = False) -> Console:
    """On a terminal as wide as it is; in a pipe or a file every record is one line, for any COLUMNS."""
    console = Console(stderr=stderr, highlight=False, markup=False)
    if not console.is_terminal:
        console.width = ENDLESS
    return console


def plain_table(*columns: str, numeric: bool = False) -> Table:
    """A table whose first column is not broken; numeric: the others stand to the right. Without columns: no header."""
    table = Table(box=None, show_header=bool(columns), pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns or ("", "")):
        table.add_column(column, justify="right" if numeric and place else "left", no_wrap=numeric or not place)
    return table


def records(table: Table) -> list[dict[str, str]]:
    """The rows of a table for programs: header -> text."""
    heads = [str(column.header) for column in table.columns]
    lines = zip(*(column.cells for column in table.columns), strict=True)
    return [dict(zip(heads, map(str, cells), strict=True)) for cells in lines]


def print_json(document: Any) -> None:
    """For programs: one JSON document on the output, what JSON does not know as text, numbers that are none as null."""
    known = json.loads(json.dumps(document, default=str), parse_constant=lambda _: None)
    typer.echo(json.dumps(known, indent=2, ensure_ascii=False))


@contextmanager
def answer(json: bool) -> Iterator[dict[str, Any]]:
    """A dict for what a command finds. With `--json` it is printed in the end; all other text is on the error output.

    Also where the command ends by `typer.Exit`. An error leaves the output empty.
    """
    document: dict[str, Any] = {}
    ended: typer.Exit | None = None
    with redirect_stdout(sys.stderr) if json else nullcontext():
        try:
            yield document
        except typer.Exit as end:
            ended = end
    if json:
        print_json(document)
    if ended is not None:
        raise ended


def command(name: str, results: Path) -> str:
    """The command that continues with a results folder, to be typed in the folder where one is now."""
    return f"fglbench {name}" if results == DEFAULT else f"fglbench {name} --results {shlex.quote(str(results))}"


def why(rows: Iterable[Row | Standing], *, suites: bool = False) -> list[str]:
    """Why cells were skipped or failed: each reason once, the one that holds for most cells first."""
    by_reason: dict[tuple[str, str], list[Row | Standing]] = {}
    for row in rows:
        by_reason.setdefault((row.status, row.error), []).append(row)
    lines = []
    for (state, error), group in sorted(by_reason.items(), key=lambda each: (each[0][0] == "skipped", -len(each[1]))):
        methods = list(dict.fromkeys(row.method for row in group))
        who = ", ".join(methods) if len(methods) <= NAMED else f"{len(methods)} methods"
        where = f" of {', '.join(dict.fromkeys(row.suite for row in group))}" if suites else ""
        lines.append(f"{who}: {state}: {error} ({len(group)} run{'s' * (len(group) > 1)}{where})")
    return lines


def complain(line: str) -> None:
    typer.echo(f"fglbench: {line}", err=True)


def announce() -> None:
    """Say on a terminal that loading what runs the cells takes seconds; nothing where it is loaded, or in a pipe."""
    if HEAVY not in sys.modules and sys.stderr.isatty():
        typer.echo("fglbench: loading torch and DGL ...", err=True)
