"""`fglbench list` and `fglbench show`: what there is, and what one thing is."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from ...registry import UserError, did_you_mean, parameters
from .options import Plugins

if TYPE_CHECKING:
    from ...registry import Registry

KINDS = ("methods", "datasets", "partitions", "splits", "backbones", "suites")
Kind = Annotated[str, typer.Argument(metavar="KIND", help=", ".join(KINDS))]


def list_names(kind: Kind, plugin: Plugins = None) -> None:
    """List the methods, datasets, partitions, splits, backbones or suites there are."""
    if kind not in KINDS:
        raise did_you_mean(kind, KINDS, "kind of thing to list")
    lines = _suites() if kind == "suites" else _registered(_registries(plugin)[kind])
    if kind in ("methods", "datasets"):
        lines += _installed(_registries(None)[kind])
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column()
    for name, what in lines:
        table.add_row(name, what)
    Console(highlight=False, markup=False).print(table)


def show(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a method (or dataset, partition, split, backbone)")],
    plugin: Plugins = None,
) -> None:
    """Show what a method is: paper, formula, and its parameters with types and defaults."""
    registries = _registries(plugin)
    for registry in registries.values():
        if name in registry.names() or _is_installed(registry, name):
            break
    else:
        if ":" in name:
            registry = registries["datasets"]  # names made on demand, as tu:NAME
        else:
            known = {known for registry in registries.values() for known in registry.names()}
            raise did_you_mean(name, known, "method, dataset, partition, split or backbone")
    cls = registry.cls(name)
    console = Console(highlight=False, markup=False)
    console.print(f"{registry.kind} {name}\n")
    console.print(inspect.getdoc(cls) or "", soft_wrap=True)
    console.print()
    if not (found := parameters(cls)):
        console.print("no parameters")
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("parameter", "default", "type", "meaning"):
        table.add_column(column, no_wrap=column != "meaning")
    for parameter in found:
        table.add_row(*parameter)
    console.print(table)


def _registries(plugins: list[str] | None) -> dict[str, Registry[Any]]:
    from ...datasets import DATASETS, PARTITIONS, SPLITS
    from ...methods import METHODS
    from ..engine.backbones import BACKBONES
    from ..plugins import load_plugins

    load_plugins(plugins or ())
    return {
        "methods": METHODS,
        "datasets": DATASETS,
        "partitions": PARTITIONS,
        "splits": SPLITS,
        "backbones": BACKBONES,
    }


def _registered(registry: Registry[Any]) -> list[tuple[str, str]]:
    return [(name, _summary(registry.cls(name))) for name in registry.names()]


def _is_installed(registry: Registry[Any], name: str) -> bool:
    from ..plugins import GROUPS, installed

    return registry in GROUPS.values() and name in installed(registry)


def _installed(registry: Registry[Any]) -> list[tuple[str, str]]:
    """What installed plug-in packages have. One that cannot be imported is named on the error output, and left out."""
    from ..plugins import installed, refused

    found, troubles = [], refused(registry)
    for name, point in installed(registry).items():
        if name in registry.names():
            continue  # loaded already, and listed
        try:
            found.append((name, f"{_summary(registry.cls(name))} (plug-in: {point.dist.name if point.dist else '?'})"))
        except UserError as error:
            troubles.append(str(error))
    for line in dict.fromkeys(troubles):
        typer.echo(f"fglbench: {line}", err=True)
    return found


def _summary(cls: type) -> str:
    """The first paragraph of a docstring, on one line."""
    paragraph = (inspect.getdoc(cls) or "").split("\n\n", 1)[0]
    return " ".join(paragraph.split())


def _suites() -> list[tuple[str, str]]:
    from ..suites.suitefile import load_suite, suite_names

    suites = [load_suite(name) for name in suite_names()]
    return [(s.name, f"{s.description} ({len(s.cells())} cells{', leaderboard' * s.leaderboard})") for s in suites]
