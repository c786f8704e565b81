"""`fglbench new`: the file that a new method starts from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Start something new: a method.")


@app.command()
def method(
    name: Annotated[str, typer.Argument(metavar="NAME", help="as it will be called: lower case, as in my-method")],
    into: Annotated[Path, typer.Option("--into", metavar="DIR", help="the folder for the file")] = Path(),
) -> None:
    """Write one file with a working method to start from, and say what comes next."""
    from ..contract import template

    path = template.new_method(name, into)
    plugin = "" if template.in_tree(into) else f" --plugin {path}"
    steps = [
        "put your method's objective, server rule and docstring in place of the template's",
        f"fglbench check {name}{plugin}",
        f"fglbench run --quick -m {name}{plugin}",
    ]
    typer.echo(f"wrote {path}; next:")
    for number, step in enumerate(steps, 1):
        typer.echo(f"  {number}. {step}")
    typer.echo("CONTRIBUTING.md goes on from there to results on the leaderboard")
