"""How commands say things: plain text, tables without lines, complaints on the error output."""

from __future__ import annotations

import typer
from rich.console import Console
from rich.table import Table


def plain_console(*, stderr: bool = False) -> Console:
    return Console(stderr=stderr, highlight=False, markup=False)


def plain_table(*columns: str, numeric: bool = False) -> Table:
    """A table whose first column is not broken; numeric: the others stand to the right. Without columns: no header."""
    table = Table(box=None, show_header=bool(columns), pad_edge=False, padding=(0, 2, 0, 0))
    for place, column in enumerate(columns or ("", "")):
        table.add_column(column, justify="right" if numeric and place else "left", no_wrap=numeric or not place)
    return table


def complain(line: str) -> None:
    typer.echo(f"fglbench: {line}", err=True)
