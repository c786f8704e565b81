"""Options that several commands share, and the parsing of comma lists."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from ...registry import UserError

Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="the results folder")]
Plugins = Annotated[
    list[str] | None,
    typer.Option("--plugin", metavar="FILE", help="a Python file or module that registers methods, datasets, ..."),
]


def names(values: Iterable[str] | None) -> tuple[str, ...]:
    """`-m a,b -m c` as (a, b, c)."""
    return tuple(dict.fromkeys(part.strip() for value in values or () for part in value.split(",") if part.strip()))


def numbers(values: Iterable[str] | None, what: str) -> tuple[int, ...]:
    try:
        return tuple(int(value) for value in names(values))
    except ValueError as error:
        raise UserError(f"{what} are whole numbers, as in 5,10: {error}") from None


def seeds(text: str | None) -> tuple[int, ...]:
    """`3` is the first three seeds (0, 1, 2); `4,7` and `4-7` are these seeds."""
    if text is None:
        return ()
    try:
        if text.isdigit():
            found = list(range(int(text)))
        elif "-" in text:
            first, last = text.split("-")
            found = list(range(int(first), int(last) + 1))
        else:
            found = [int(part) for part in text.split(",") if part]
    except ValueError:
        found = []
    if not found or min(found) < 0:
        raise UserError(f"--seeds is a count (3), a list (0,4) or a range (3-5), got {text!r}")
    return tuple(found)
