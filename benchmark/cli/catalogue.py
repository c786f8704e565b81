"""`fglbench list` and `fglbench show`: what there is, and what one thing is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Annotated, Any

import typer

from ...registry import UserError, did_you_mean
from .. import api
from .options import Json, Plugins, completes
from .output import complain, plain_console, plain_table, print_json

KINDS = ("methods", "datasets", "partitions", "splits", "backbones", "suites")
Kind = Annotated[str | None, typer.Argument(metavar="KIND", help=", ".join(KINDS), autocompletion=lambda: list(KINDS))]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="a method (or dataset, partition, split, backbone, suite)",
        autocompletion=completes("method", "dataset", "partition", "split", "backbone", "suite"),
    ),
]
Entry = dict[str, Any]


def list_(kind: Kind = None, plugin: Plugins = None, json: Json = False) -> None:
    """List the methods (by family), datasets, partitions, splits, backbones or suites there are."""
    if kind is None:
        raise UserError(f"say what to list, as in `fglbench list methods` (one of {', '.join(KINDS)})")
    if kind not in KINDS:
        raise did_you_mean(kind, KINDS, "kind of thing to list")
    entries, troubles = api.listed(kind.removesuffix("s"))
    for line in dict.fromkeys(troubles):
        complain(line)
    if json:
        print_json(entries)
        return
    console = plain_console()
    for heading, group in _groups(entries, console.is_terminal):
        console.print(f"{heading}\n" if heading else "", end="")
        table = plain_table(*group[0])
        table.show_header = False
        for entry in group:
            table.add_row(*entry.values())
        console.print(table)


def _groups(entries: list[Entry], terminal: bool) -> Iterator[tuple[str, list[Entry]]]:
    """The entries of each heading: on a terminal each family under its own, in a pipe everything without any."""
    for family, group in groupby(entries, lambda entry: entry.get("family", "") if terminal else ""):
        meaning = f": {api.FAMILIES[family]}" if family in api.FAMILIES else ""
        kept = [{key: value for key, value in entry.items() if not (family and key == "family")} for entry in group]
        yield f"\n{family}{meaning}" if family else "", kept


def show(
    name: Name,
    plugin: Plugins = None,
    json: Json = False,
) -> None:
    """Show what a method, dataset, partition, split, backbone or suite is: source, facts, parameters with defaults."""
    entry = api.show(name)
    if json:
        print_json({**vars(entry), "parameters": [value._asdict() for value in entry.parameters]})
        return
    console = plain_console()
    console.print(f"{entry.kind} {name}\n\n{entry.text}\n", soft_wrap=True)
    facts = {**entry.facts}
    if entry.kind == "method":
        console.print(f"uploads: {facts.pop('uploads')}\n", soft_wrap=True)
    if facts:
        table = plain_table()
        table.columns[1].overflow = "fold"
        for fact in facts.items():
            table.add_row(*fact)
        console.print(table, "")
    if entry.kind == "suite":
        console.print(f"run it: fglbench run -s {name} (--dry-run: what it would run)", soft_wrap=True)
    elif not entry.parameters:
        console.print("no parameters")
    else:
        table = plain_table("parameter", "default", "type", "meaning")
        for column in table.columns[:-1]:
            column.no_wrap = True
        for parameter in entry.parameters:
            table.add_row(*parameter)
        console.print(table)
