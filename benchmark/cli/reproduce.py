"""`fglbench reproduce`: run the cells of a paper's table."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from ...registry import did_you_mean
from .options import Results, names, numbers, seeds as parse_seeds
from .run import run

if TYPE_CHECKING:
    from ..suites.selection import Request
    from ..suites.suite import Suite

Names = list[str] | None


def reproduce(
    table: Annotated[
        str | None, typer.Argument(help="a table's name, as fgssl-table1; without it all are listed")
    ] = None,
    only: Annotated[
        Names, typer.Option("--only", metavar="NAMES", help="these datasets and methods, ours or the paper's names")
    ] = None,
    clients: Annotated[Names, typer.Option("-k", "--clients", help="only these numbers of clients")] = None,
    split: Annotated[Names, typer.Option("--split", help="only these splits")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="a count (3), a list (0,4) or a range (3-5)")] = None,
    jobs: Annotated[int | None, typer.Option("-j", "--jobs", min=1, help="worker processes (one a core)")] = None,
    threads: Annotated[int, typer.Option(min=1, help="threads a worker")] = 1,
    timeout: Annotated[float, typer.Option(min=0, help="seconds a cell may take; 0: any")] = 3600,
    memory_limit: Annotated[float | None, typer.Option(min=0.1, help="GiB a worker may take")] = None,
    rerun: Annotated[Names, typer.Option(help="run again: failed, timeout, oom, skipped, stale or all")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be run, and stop")] = False,
    results: Results = Path("results"),
    submitter: Annotated[str, typer.Option(envvar="FGLBENCH_SUBMITTER", help="your name, for the rows")] = "",
) -> int:
    """Run a results table of one of the papers, with its protocol; `fglbench report` then sets ours beside theirs.

    Cells that another suite has run already are taken over from there, with their rows.
    """
    from ...report.papers import tables

    if table is None:
        _list_tables()
        return 0
    if table not in tables():
        raise did_you_mean(table, tables(), "table")
    from ..suites.selection import Request
    from ..suites.suitefile import load_suite

    datasets, methods = _narrowed(table, load_suite(table), names(only))
    if not names(rerun):  # what is to run again is not to be had from elsewhere
        request = Request(
            suites=(table,),
            methods=tuple(methods),
            datasets=tuple(datasets),
            clients=numbers(clients, "numbers of clients"),
            splits=names(split),
            seeds=parse_seeds(seeds),
        )
        _reuse(request, results, dry_run)
    return run(
        suite=[table], method=methods, dataset=datasets, clients=clients, split=split, seeds=seeds, jobs=jobs,
        threads=threads, timeout=timeout, memory_limit=memory_limit, rerun=rerun, dry_run=dry_run, results=results,
        submitter=submitter,
    )  # fmt: skip


def _list_tables() -> None:
    from ...report.papers import tables

    listing = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("table", "paper", "what it shows"):
        listing.add_column(column)
    for name, (paper, spec) in tables().items():
        listing.add_row(name, f"{paper.name} {spec.table}", spec.shows)
    Console(highlight=False, markup=False).print(listing)


def _narrowed(table: str, suite: Suite, only: Iterable[str]) -> tuple[list[str], list[str]]:
    """(datasets, methods) that the words of --only stand for; empty lists for "all"."""
    from ...report.papers import printed, tables

    own = {
        "dataset": {entry.name for block in suite.cross for entry in block.datasets},
        "method": {entry.name for block in suite.cross for entry in block.methods},
    }
    paper, spec = tables()[table]
    words: dict[str, set[tuple[str, str]]] = {}
    for figure in paper.rows(spec, printed()):  # the paper's words first: ours stand for themselves below
        for part in paper.components(spec, figure):
            where = paper.where(spec, part)
            for axis in own:
                name = where.get(axis)
                if isinstance(name, str) and name in own[axis]:
                    words.setdefault(getattr(part, axis).lower(), set()).add((axis, name))
    words |= {name: {(axis, name)} for axis, known in own.items() for name in known}
    found: set[tuple[str, str]] = set()
    for word in only:
        if word.lower() not in words:
            raise did_you_mean(word, words, f"dataset or method of {table}")
        found |= words[word.lower()]
    return tuple(sorted(name for axis, name in found if axis == wanted) for wanted in own)  # type: ignore[return-value]


def _reuse(request: Request, results: Path, dry_run: bool) -> None:
    """Take finished cells over from other suites, so that the plan finds them done."""
    from ..runner.plan import make_plan
    from ..runner.reuse import elsewhere, take_over
    from ..store import Store
    from ..suites.selection import select

    store = Store(results)
    (table,) = request.suites
    todo = [item for item in make_plan(select(request), store).todo if item.suite == table]
    known = elsewhere(todo, store)
    if not known:
        return
    sources = ", ".join(sorted({item.suite for item in known.values()}))
    console = Console(highlight=False, markup=False)
    if dry_run:
        console.print(f"{len(known)} of these would be taken over from {sources}")
        return
    store.prepare([table])
    take_over(todo, known, store)
    console.print(f"{len(known)} taken over from {sources}")
