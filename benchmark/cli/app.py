"""The tree of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import __version__
from . import catalogue, check, data, new, profile, report, reproduce, run, status, submit, validate, verify

app = typer.Typer(
    name="fglbench",
    help="The benchmark suite for federated graph learning.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="show the version")] = False
) -> None:
    """The benchmark suite for federated graph learning."""
    if version:
        typer.echo(f"fglbench {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(run.run)
app.command()(reproduce.reproduce)
app.command()(status.status)
app.command("list")(catalogue.list_names)
app.command()(catalogue.show)
app.command()(report.report)
app.command()(report.compare)
app.command()(profile.profile)
app.add_typer(new.app, name="new")
app.command()(check.check)
app.command()(submit.submit)
app.command()(validate.validate)
app.command()(verify.verify)
app.add_typer(data.app, name="data")
