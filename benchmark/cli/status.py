"""`fglbench status`: how far the suites are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from ...registry import UserError
from .. import api
from ..store import Store
from .options import Json, Plugins, ReadResults, Suites, found_folder, names
from .output import command, plain_console, plain_table, print_json, why
from .summary import show_scores

if TYPE_CHECKING:
    from ..overview import Progress

HEADINGS = {"cells": "runs", "done": "done", "failed": "failed", "skipped": "skipped", "todo": "to do"}
HEADINGS |= {"stale": "stale", "others": "others"}
OWN = "own:"  # how datasets of users are called


def status(suite: Suites = None, results: ReadResults = None, plugin: Plugins = None, json: Json = False) -> None:
    """Show, for every suite, how many runs are done, failed, skipped (with the reasons), still to do or cut off.

    Without --suite: the suites that have rows, or all where there are no rows. Others are rows of methods, datasets or
    settings that a suite itself does not have.
    """
    results = found_folder(results, (names(suite) or (None,))[0])
    if results.exists() and not results.is_dir():
        raise UserError(f"no results folder at {str(results)!r}: it is a file; give --results DIR")
    suites = api.overview(results, names(suite))
    if json:
        print_json([{"suite": progress.suite, **progress.counts(), **_reasons(progress)} for progress in suites])
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


def _reasons(progress: Progress) -> dict[str, Any]:
    keys = ("method", "dataset", "seed", "status", "error")
    bad = [{key: getattr(row, key) for key in keys} for row in progress.bad()]
    return {"reasons": bad, "rising": dict(progress.rising())}


def _remarks(suites: list[Progress], results: Path, empty: int) -> list[str]:
    """What there is to say of the table: reasons, each once, what was cut off, what the words mean."""
    lines = why([row for progress in suites for row in progress.bad()], suites=True)
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
    return lines + [line for progress in suites for line in progress.untuned]
