"""`fglbench list` and `fglbench show`: what there is, and what one thing is."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...registry import UserError, did_you_mean
from .completion import completes
from .options import Json, Plugins
from .output import complain, plain_console, plain_table, print_json

if TYPE_CHECKING:
    from ...registry import Registry
    from ..engine import Method

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
Entry = dict[str, str]


def list_(kind: Kind = None, plugin: Plugins = None, json: Json = False) -> None:
    """List the methods (by family), datasets, partitions, splits, backbones or suites there are."""
    if kind is None:
        raise UserError(f"say what to list, as in `fglbench list methods` (one of {', '.join(KINDS)})")
    if kind not in KINDS:
        raise did_you_mean(kind, KINDS, "kind of thing to list")
    from ..suites.plugins import REGISTRIES

    found = _suites() if kind == "suites" else _registered(REGISTRIES[kind.removesuffix("s")])
    entries = [{"name": name, "what": what} for name, what in found]
    if kind == "methods":
        entries = _by_family(entries)
    if json:
        print_json(entries)
        return
    console = plain_console()
    for heading, own in _groups(entries, console.is_terminal):
        console.print(f"{heading}\n" if heading else "", end="")
        table = plain_table(*own[0])
        table.show_header = False
        for entry in own:
            table.add_row(*entry.values())
        console.print(table)


def _by_family(entries: list[Entry]) -> list[Entry]:
    """Methods with family and deed, families in their order, those of plug-ins at the end."""
    from ...report.families import MEANING, UNKNOWN, deed, family

    order = [*MEANING, UNKNOWN]
    known = [
        {"name": own["name"], "family": family(own["name"]), "what": deed(own["name"]) or own["what"]}
        for own in entries
    ]
    return sorted(known, key=lambda own: (order.index(own["family"]), own["name"]))


def _groups(entries: list[Entry], terminal: bool) -> Iterator[tuple[str, list[Entry]]]:
    """What stands under one heading: on a terminal each family under its own, in a pipe everything without any."""
    from ...report.families import MEANING

    for own, group in groupby(entries, lambda entry: entry.get("family", "") if terminal else ""):
        meaning = f": {MEANING[own]}" if own in MEANING else ""
        kept = [{key: value for key, value in entry.items() if not (own and key == "family")} for entry in group]
        yield f"\n{own}{meaning}" if own else "", kept


def show(
    name: Name,
    plugin: Plugins = None,
    json: Json = False,
) -> None:
    """Show what a method, dataset, partition, split, backbone or suite is: source, facts, parameters with defaults."""
    from ..known import look_up

    found = look_up(name)
    if json:
        print_json({**vars(found), "parameters": [own._asdict() for own in found.parameters]})
        return
    console = plain_console()
    console.print(f"{found.kind} {name}\n\n{found.text}\n", soft_wrap=True)
    if found.kind == "method":
        from ..engine import METHODS

        console.print(f"uploads: {_uploads(METHODS.cls(name))}\n", soft_wrap=True)
    if found.facts:
        facts = plain_table()
        facts.columns[1].overflow = "fold"
        for fact in found.facts.items():
            facts.add_row(*fact)
        console.print(facts, "")
    if found.kind == "suite":
        console.print(f"run it: fglbench run -s {name} (--dry-run: what it would run)", soft_wrap=True)
    elif not found.parameters:
        console.print("no parameters")
    else:
        table = plain_table("parameter", "default", "type", "meaning")
        for column in table.columns[:-1]:
            column.no_wrap = True
        for parameter in found.parameters:
            table.add_row(*parameter)
        console.print(table)


def _uploads(cls: type[Method]) -> str:
    """What its clients send to the server: by the table of the package's own methods, or by a dry run."""
    from ..contract.crossing import kinds
    from ..engine import METHODS
    from ..suites.uploads import stored

    if METHODS.is_own(cls):
        return stored()[cls.name]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ", ".join(kinds(cls())) or "nothing"
    except Exception as error:  # a plug-in's method may fail in any way, and what it is is shown all the same
        return f"not known ({type(error).__name__}; `fglbench check` says more)"


def _registered(registry: Registry[Any]) -> list[tuple[str, str]]:
    """What is known, then what installed packages have; one that cannot be imported is complained of and left out."""
    from ..suites.plugins import installed, refused

    names = registry.names()
    found, troubles = [(name, _summary(registry.cls(name))) for name in names], refused(registry)
    for name, point in installed(registry).items():
        if name in names:
            continue  # loaded already
        try:
            found.append((name, f"{_summary(registry.cls(name))} (plug-in: {point.dist.name if point.dist else '?'})"))
        except UserError as error:
            troubles.append(str(error))
    for line in dict.fromkeys(troubles):
        complain(line)
    return found


def _summary(cls: type) -> str:
    """The first paragraph of a docstring, on one line."""
    paragraph = (inspect.getdoc(cls) or "").split("\n\n", 1)[0]
    return " ".join(paragraph.split())


def _suites() -> list[tuple[str, str]]:
    from ..suites.suitefile import load_suite, suite_names

    suites = [load_suite(name) for name in suite_names()]
    return [(s.name, f"{s.description} ({len(s.cells())} cells{', leaderboard' * s.leaderboard})") for s in suites]
