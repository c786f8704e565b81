"""The tree of commands, with help in groups: commands by purpose, options by panel."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from ... import __version__
from . import catalogue, compete, data, machine, new_and_check, report, reproduce, run, submit, tune

START, METHOD, DATA, PAPERS, MAINTAIN = "Start", "Your method", "Your data", "Papers", "Maintain"
COMMANDS: dict[str, tuple[str, str, Any]] = {  # in the order of the help: command -> group, a few words, function
    "doctor": (START, "packages, threads, device and data of this machine", machine.doctor),
    "list": (START, "methods, datasets, partitions, suites, ...", catalogue.list_),
    "show": (START, "one of them: formula, parameters, source", catalogue.show),
    "run": (START, "run methods on datasets; what is done stays", run.run),
    "status": (START, "what is done, failed and left", catalogue.status),
    "report": (START, "leaderboard, tables and figures from rows", report.report),
    "compare": (START, "two methods side by side, with intervals", report.compare),
    "export": (START, "rows as CSV, Parquet or a LaTeX table", report.export),
    "new": (METHOD, "a template of a method, partition, split, ...", new_and_check.app),
    "check": (METHOD, "test a method or another part of your own", new_and_check.check),
    "compete": (METHOD, "check, tune, run, rank and pack a method", compete.compete),
    "tune": (METHOD, "choose settings on validation, equal budgets", tune.tune),
    "profile": (METHOD, "time and memory of rounds", machine.profile),
    "submit": (METHOD, "pack rows for a pull request", submit.submit),
    "data": (DATA, "list, fetch and partition datasets", data.app),
    "recommend": (DATA, "which method for a graph of your own", tune.recommend),
    "reproduce": (PAPERS, "a results table of a paper", reproduce.reproduce),
    "validate": (MAINTAIN, "check the form of rows or of a submission", submit.validate),
    "verify": (MAINTAIN, "run a sample of rows again", reproduce.verify),
    "adopt": (MAINTAIN, "run all suites of a submission", run.adopt),
    "pack": (MAINTAIN, "put curves into compressed files", report.pack),
}
EXAMPLES = """Examples:
  fglbench run --quick                     36 short runs, then: fglbench report
  fglbench compare fedprox fedavg          two methods on the same tasks and seeds
  fglbench recommend --data my_graph       which method for a graph of your own
Documentation: docs/ in the repository; fglbench COMMAND -h for one command."""
WHAT = (
    "method", "dataset", "partition", "clients", "split", "backbone", "seeds", "data", "metric", "tuned", "suite",
    "all_suites", "quick", "set_",
)  # fmt: skip
WHERE = ("results", "submitter", "plugin", "out", "json", "address", "backend", "device")
PANELS = dict.fromkeys(WHAT, "What") | dict.fromkeys(WHERE, "Where") | {"help": "Help"}  # others: How


class Group(TyperGroup):
    """List commands in groups, with examples at the end."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        lines: dict[str, list[tuple[str, str]]] = {}
        for name, (group, words, _) in COMMANDS.items():
            lines.setdefault(group, []).append((name, words))
        for group, commands in lines.items():
            with formatter.section(group):
                formatter.write_dl(commands)
        formatter.write_paragraph()
        formatter.write(f"{EXAMPLES}\n")


class Command(TyperCommand):
    """List options in panels: what to run, how to run it, where files are."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if (record := parameter.get_help_record(ctx)) is not None:
                argument = parameter.param_type_name == "argument"
                panels.setdefault("Arguments" if argument else PANELS.get(str(parameter.name), "How"), []).append(
                    record
                )
        for panel in ("Arguments", "What", "How", "Where", "Help"):
            if panel in panels:
                with formatter.section(panel if len(panels) > 2 else "Options"):
                    formatter.write_dl(panels[panel])


app = typer.Typer(
    name="fglbench", help="The benchmark suite for federated graph learning.", cls=Group, rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]}, pretty_exceptions_enable=False,
)  # fmt: skip


@app.callback(invoke_without_command=True)
def options(
    context: typer.Context, version: Annotated[bool, Option("--version", help="show the version")] = False
) -> None:
    """The benchmark suite for federated graph learning."""
    if version:
        typer.echo(f"fglbench {__version__}")
    elif context.invoked_subcommand is None:
        typer.echo(context.get_help())


def _overview(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for name, (_, _, command) in COMMANDS.items():
    if isinstance(command, typer.Typer):
        app.add_typer(command, name=name, callback=_overview, invoke_without_command=True)
    else:
        app.command(name, cls=Command)(command)
