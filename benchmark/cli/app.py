"""The tree of commands."""

from __future__ import annotations

from typing import Annotated

import typer

from ... import __version__
from . import (
    adopt,
    catalogue,
    check,
    compete,
    data,
    doctor,
    export,
    new,
    pack,
    profile,
    recommend,
    report,
    reproduce,
    run,
    status,
    submit,
    tune,
    validate,
    verify,
)
from .grouped import Command, application

app = application(
    name="fglbench", help="The benchmark suite for federated graph learning.", pretty_exceptions_enable=False
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


for command in (
    run.run, reproduce.reproduce, status.status, catalogue.list_, catalogue.show, report.report, report.compare,
    export.export,
    compete.compete, tune.tune, recommend.recommend, profile.profile, check.check, submit.submit,
    validate.validate, verify.verify, adopt.adopt, pack.pack, doctor.doctor,
):  # fmt: skip
    app.command(command.__name__.rstrip("_"), cls=Command)(command)
app.add_typer(new.app, name="new")
app.add_typer(data.app, name="data")
