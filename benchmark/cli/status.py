"""`fglbench status`: how far the suites are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .options import Json, Plugins, Results, Suites, names
from .output import command, plain_console, plain_table, print_json

if TYPE_CHECKING:
    from ..runner.plan import Plan
    from ..store import Store
    from ..store.schema import Row

HEADINGS = {"cells": "cells", "done": "done", "failed": "failed", "skipped": "skipped", "todo": "to do"}
HEADINGS |= {"stale": "stale", "others": "others"}
NAMED = 3  # methods; of more their number is told


def status(
    suite: Suites = None, results: Results = Path("results"), plugin: Plugins = None, json: Json = False
) -> None:
    """Show, for every suite, how many cells are done, failed, skipped (with the reasons), still to do or cut off.

    Without --suite: the suites that have rows, or all where none has. Others are rows of methods, datasets or settings
    that a suite itself does not have.
    """
    from ..runner.plan import make_plan
    from ..store import Store
    from ..suites.selection import untuned_of
    from ..suites.suitefile import load_suite, suite_names

    store = Store(results)
    wanted, there = names(suite), set(store.suites())
    shown = wanted or [name for name in suite_names() if name in there] or suite_names()
    plans, others, untuned = dict[str, "Plan"](), dict[str, list["Row"]](), list[str]()
    for found in map(load_suite, shown):
        untuned += untuned_of(found)
        plans[found.name] = make_plan([(found.name, cell) for cell in found.cells()], store)
        others[found.name] = _others(plans[found.name], store, found.name)
    if not wanted and "custom" in there:
        others["custom"] = store.rows("custom", latest_only=True)
    counts = {name: _counts(plans.get(name), others[name]) for name in others}
    if json:
        print_json([{"suite": name, **counts[name], **_reasons(plans.get(name), others[name])} for name in counts])
        return
    table = plain_table("suite", *HEADINGS.values(), numeric=True)
    for name, own in counts.items():
        table.add_row(name, *(str(own[key]) for key in HEADINGS))
    plain_console().print(table)
    for line in _remarks(plans, others, results, len(suite_names()) - len(plans) if not wanted else 0):
        typer.echo(line)
    for line in untuned:
        typer.echo(line)


def _others(plan: Plan, store: Store, suite: str) -> list[Row]:
    """The rows of a suite's folder that stand for no cell of the suite."""
    own = {item.cell.key for item in plan.items}
    return [row for row in store.rows(suite, latest_only=True) if row.key not in own]


def _counts(plan: Plan | None, others: list[Row]) -> dict[str, int]:
    found = plan.counts() if plan else Counter[str]()
    states = {state: found[state] for state in ("done", "failed", "skipped", "todo")}
    return {"cells": found.total(), **states, "stale": plan.stale() if plan else 0, "others": len(others)}


def _bad(plan: Plan | None, others: Iterable[Row]) -> list[Row]:
    """The rows that failed or were skipped, those of others included."""
    own = [*plan.rows("failed"), *plan.rows("skipped")] if plan else []
    return own + [row for row in others if row.status != "ok"]


def _reasons(plan: Plan | None, others: Iterable[Row]) -> dict[str, Any]:
    keys = ("method", "dataset", "seed", "status", "error")
    bad = [{key: getattr(row, key) for key in keys} for row in _bad(plan, others)]
    return {"reasons": bad, "rising": dict(plan.rising()) if plan else {}}


def _remarks(plans: dict[str, Plan], others: dict[str, list[Row]], results: Path, empty: int) -> list[str]:
    """What there is to say of the table: reasons, each once, what was cut off, what the words mean."""
    lines = why([row for name in others for row in _bad(plans.get(name), others[name])], suites=True)
    lines += [f"{name}: {line}" for name, plan in plans.items() for line in still_rising(plan)]
    if any(plan.stale() for plan in plans.values()):
        again = command("run -s SUITE --rerun stale", results)
        lines.append(f"stale: done with other source code of the method than now; to run them again: {again}")
    if any(others.values()):
        lines.append("others: rows of methods, datasets or settings that the suite itself does not have")
    if empty > 0:
        lines.append(f"{empty} more suites have no row in {results} (fglbench list suites)")
    return lines


def why(rows: Iterable[Row], *, suites: bool = False) -> list[str]:
    """Why cells were skipped or failed: each reason once, the one that holds for most cells first."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        found.setdefault((row.status, row.error), []).append(row)
    lines = []
    for (state, error), own in sorted(found.items(), key=lambda each: (each[0][0] == "skipped", -len(each[1]))):
        methods = list(dict.fromkeys(row.method for row in own))
        who = ", ".join(methods) if len(methods) <= NAMED else f"{len(methods)} methods"
        where = f" of {', '.join(dict.fromkeys(row.suite for row in own))}" if suites else ""
        lines.append(f"{who}: {state}: {error} ({len(own)} cell{'s' * (len(own) > 1)}{where})")
    return lines


def still_rising(plan: Plan) -> list[str]:
    """Which methods were cut off by the number of rounds, the one with most rows first."""
    found = plan.rising()
    methods = ", ".join(f"{method} ({count})" for method, count in found.most_common())
    return [f"still rising in the last 5% of the rounds: {methods}"] if found else []
