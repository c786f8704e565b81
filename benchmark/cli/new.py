"""`fglbench new`: the file that a new method, partition, split or backbone starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Start something new: a method, a partition, a split, a backbone.")


Name = Annotated[str, typer.Argument(metavar="NAME", help="as it will be called: lower case, as in my-method")]
Into = Annotated[Path, typer.Option("--into", metavar="DIR", help="the folder for the file")]


@app.command()
def method(
    name: Name,
    into: Into = Path(),
    torch: Annotated[
        bool, typer.Option("--torch", help="an nn.Module and a training loop, one client at a time")
    ] = False,
) -> None:
    """Write one file with a working method to start from, and say what comes next."""
    what = "your model, training loop and docstring" if torch else "your method's objective, server rule and docstring"
    _started("method", name, into, what, "--quick -m", torch=torch)
    typer.echo("CONTRIBUTING.md describes the way from there to results on the leaderboard")


@app.command()
def partition(name: Name, into: Into = Path()) -> None:
    """Write one file with a working partition to start from, and say what comes next."""
    _started("partition", name, into, "your rule and docstring", "--quick -m fedavg -p")


@app.command()
def split(name: Name, into: Into = Path()) -> None:
    """Write one file with a working split to start from, and say what comes next."""
    _started("split", name, into, "your rule and docstring", "--quick -m fedavg --split")


@app.command()
def backbone(name: Name, into: Into = Path()) -> None:
    """Write one file with a working backbone to start from, and say what comes next."""
    _started("backbone", name, into, "your layer and docstring", "--quick -m fedavg -b")


def _started(kind: str, name: str, into: Path, what: str, option: str, *, torch: bool = False) -> None:
    from . import template

    path = template.create(kind, name, into, torch=torch)
    plugin = "" if template.in_tree(into) else f" --plugin {path}"
    steps = [f"replace the template's code by {what}", f"fglbench check {name}{plugin}"]
    typer.echo(f"wrote {path}; next:")
    for number, step in enumerate([*steps, f"fglbench run {option} {name}{plugin}"], 1):
        typer.echo(f"  {number}. {step}")
