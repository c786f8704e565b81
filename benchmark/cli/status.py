"""`fglbench status`: how far the suites are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from .options import Plugins, Results, Suites, names
from .output import plain_console, plain_table

if TYPE_CHECKING:
    from ..runner.plan import Plan


def status(suite: Suites = None, results: Results = Path("results"), plugin: Plugins = None) -> None:
    """Show, for every suite, how many cells are done, failed, skipped (with the reasons) and still to do."""
    from ..runner.plan import make_plan
    from ..store import Store
    from ..suites.suitefile import load_suite, suite_names

    store = Store(results)
    table = plain_table("suite", "cells", "done", "failed", "skipped", "to do", "stale", numeric=True)
    plans = {}
    for found in map(load_suite, names(suite) or suite_names()):
        plans[found.name] = plan = make_plan([(found.name, cell) for cell in found.cells()], store)
        count = plan.counts()
        figures = (len(plan.items), count["done"], count["failed"], count["skipped"], count["todo"], plan.stale())
        table.add_row(found.name, *map(str, figures))
    plain_console().print(table)
    for name, plan in plans.items():
        for line in why(plan):
            typer.echo(f"{name}: {line}")


def why(plan: Plan) -> list[str]:
    """Why cells were skipped or failed, the reason that holds for most cells first."""
    return [
        f"{reason} ({count} cell{'s' * (count > 1)})"
        for state in ("failed", "skipped")
        for reason, count in plan.reasons(state).most_common()
    ]
