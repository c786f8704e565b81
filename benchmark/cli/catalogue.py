"""`fglbench list`, `show` and `status`: names, facts about a name, progress of suites."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from ...registry import OWN, UserError, did_you_mean
from .. import api
from ..store import Store
from ..suites.catalogue import KINDS as SINGULAR
from . import common as given
from .common import answer, command, complain, facts_table, names, plain_console, plain_table, print_json, why
from .run import show_scores

if TYPE_CHECKING:
    from ..known import Progress

KINDS = tuple(f"{kind}s" for kind in SINGULAR)
Kind = Annotated[str | None, Argument(metavar="KIND", help=", ".join(KINDS), autocompletion=lambda: list(KINDS))]
NAME = "a method (or dataset, partition, split, backbone, suite)"


def list_(kind: Kind = None, plugin: given.Plugins = None, json: given.Json = False) -> None:
    """List methods (by family), datasets, partitions, splits, backbones or suites."""
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
    # On a terminal a table per family, in a pipe one without a heading.
    for family, members in groupby(entries, lambda entry: entry.get("family", "") if console.is_terminal else ""):
        group = [{key: value for key, value in entry.items() if not family or key != "family"} for entry in members]
        meaning = f": {api.FAMILIES[family]}" if family in api.FAMILIES else ""
        console.print(f"\n{family}{meaning}\n" if family else "", end="")
        table = plain_table(*group[0])
        table.show_header = False
        for entry in group:
            table.add_row(*entry.values())
        console.print(table)


def show(
    name: Annotated[str, given.named(*SINGULAR, help=NAME)],
    kind: Annotated[str | None, Option("--kind", help="method, dataset, ... if several have the name")] = None,
    plugin: given.Plugins = None, json: given.Json = False,
) -> None:  # fmt: skip
    """Show a method, dataset, partition, split, backbone or suite: source, facts, parameters with defaults."""
    with answer(json) as said:
        entry = api.show(name, kind=kind)
        said |= {**vars(entry), "parameters": [value._asdict() for value in entry.parameters]}
    if json:
        return
    console = plain_console()
    console.print(f"{entry.kind} {name}\n\n{entry.text}\n", soft_wrap=True)
    facts = {**entry.facts}
    if entry.kind == "method":
        console.print(f"uploads: {facts.pop('uploads')}\n", soft_wrap=True)
    if facts:
        console.print(facts_table(facts), "")
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


HEADINGS = {"cells": "runs", "done": "done", "failed": "failed", "skipped": "skipped", "todo": "to do"}
HEADINGS |= {"stale": "stale", "others": "others"}


def status(
    suite: given.Suites = None, results: given.ReadResults = None, plugin: given.Plugins = None,
    json: given.Json = False,
) -> None:  # fmt: skip
    """Show, for every suite, how many runs are done, failed, skipped (with the reasons), to do, or not converged.

    Without --suite: the suites that have rows, or all suites if there are no rows. Others: rows of methods, datasets or
    settings that the suite does not have.
    """
    results = given.found_folder(results, (names(suite) or (None,))[0])
    if results.exists() and not results.is_dir():
        raise UserError(f"no results folder at {str(results)!r}: it is a file; give --results DIR")
    suites = api.overview(results, names(suite))
    if json:
        keys = ("method", "dataset", "seed", "status", "error")
        print_json([
            {"suite": progress.suite, **progress.counts(),
             "reasons": [{key: getattr(row, key) for key in keys} for row in progress.bad()],
             "rising": dict(progress.rising())}
            for progress in suites
        ])  # fmt: skip
        return
    table = plain_table("suite", *HEADINGS.values(), numeric=True)
    for progress in suites:
        counts = progress.counts()
        table.add_row(progress.suite, *(str(counts[key]) for key in HEADINGS))
    plain_console().print(table)
    empty = 0 if suite else len(api.catalogue()["suite"]) - sum(progress.cells > 0 for progress in suites)
    for line in _remarks(suites, results, empty):
        typer.echo(line)
    own_data = {row.key: row.suite for progress in suites for row in progress.others if row.dataset.startswith(OWN)}
    whole = (row for name in dict.fromkeys(own_data.values()) for row in Store(results).rows(name, latest_only=True))
    show_scores(row for row in whole if row.key in own_data)


def _remarks(suites: list[Progress], results: Path, empty: int) -> list[str]:
    """Remarks on the table: reasons, each once, runs that did not converge, the meaning of words."""
    lines = [] if results.exists() else [f"there is no folder {str(results)!r}: nothing was run there"]
    lines += why([row for progress in suites for row in progress.bad()], suites=True)
    for progress in suites:
        if rising := ", ".join(f"{method} ({count})" for method, count in progress.rising().most_common()):
            lines.append(f"{progress.suite}: not converged: best in the last 5% of the rounds: {rising}")
    if any(progress.stale for progress in suites):
        again = command("run -s SUITE --rerun stale", results)
        lines.append(f"stale: done with an earlier revision of the method; to run them again: {again}")
    if not {progress.suite for progress in suites if not progress.cells} <= {"custom"}:
        lines.append(f"a suite of your own has its runs in its file: {command('status -s FILE.yaml', results)}")
    if any(progress.others for progress in suites):
        lines.append("others: rows of methods, datasets or settings that the suite itself does not have")
    if empty > 0:
        lines.append(f"{empty} more suites have no row in {results} (fglbench list suites)")
    return lines + [line for progress in suites for line in progress.left_out]
