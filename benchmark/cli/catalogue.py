"""`fglbench list` and `fglbench show`: what there is, and what one thing is."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...registry import UserError, did_you_mean, parameters
from .options import Plugins
from .output import complain, plain_console, plain_table

if TYPE_CHECKING:
    from ...registry import Registry

KINDS = ("methods", "datasets", "partitions", "splits", "backbones", "suites")
Kind = Annotated[str, typer.Argument(metavar="KIND", help=", ".join(KINDS))]


def list_(kind: Kind, plugin: Plugins = None) -> None:
    """List the methods, datasets, partitions, splits, backbones or suites there are."""
    if kind not in KINDS:
        raise did_you_mean(kind, KINDS, "kind of thing to list")
    from ..suites.plugins import REGISTRIES

    table = plain_table()
    for name, what in _suites() if kind == "suites" else _registered(REGISTRIES[kind.removesuffix("s")]):
        table.add_row(name, what)
    plain_console().print(table)


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a method (or dataset, partition, split, backbone)")],
    plugin: Plugins = None,
) -> None:
    """Show what a method is: paper, formula, and its parameters with types and defaults."""
    from ..suites.plugins import REGISTRIES, installed

    known = {name: kind for kind, one in reversed(REGISTRIES.items()) for name in (*one.names(), *installed(one))}
    kind = known.get(name, "dataset" if ":" in name else None)  # datasets made on demand, as tu:NAME
    if kind is None:
        raise did_you_mean(name, known, "method, dataset, partition, split or backbone")
    cls = REGISTRIES[kind].cls(name)
    console = plain_console()
    console.print(f"{kind} {name}\n")
    console.print(inspect.getdoc(cls) or "", soft_wrap=True)
    console.print()
    if not (found := parameters(cls)):
        console.print("no parameters")
        return
    table = plain_table("parameter", "default", "type", "meaning")
    for column in table.columns[:-1]:
        column.no_wrap = True
    for parameter in found:
        table.add_row(*parameter)
    console.print(table)


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
