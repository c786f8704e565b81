"""`fglbench reproduce`: run a paper's table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...registry import UserError, did_you_mean
from . import options as given
from .options import Names, completes
from .output import announce, plain_console, plain_table, print_json
from .run import carry_out

if TYPE_CHECKING:
    from ..runner.job import Job, Request
    from ..suites.cell import Cell

TableName = Annotated[
    str | None,
    typer.Argument(
        help="a table's name, as fgssl-table1; without it all are listed, with --dry-run what each still costs",
        autocompletion=completes("table"),
    ),
]
ReadingNames = Annotated[
    Names, typer.Option("--reading", metavar="NAMES", help="only what these readings of the paper ask for")
]


def reproduce(
    table: TableName = None,
    only: Annotated[
        Names, typer.Option("--only", metavar="NAMES", help="these datasets and methods, ours or the paper's names")
    ] = None,
    reading: ReadingNames = None,
    clients: given.Clients = None,
    split: given.Splits = None,
    seeds: given.Seeds = None,
    jobs: given.Jobs = None, threads: given.Threads = 1, timeout: given.Timeout = 3600,
    memory_limit: given.Memory = None, device: given.Device = "cpu",
    backend: given.Backends = "processes", address: given.Address = None,
    rerun: given.Rerun = None,
    dry_run: given.DryRun = False, yes: given.Yes = False,
    results: given.Results = Path("runs"),
    submitter: given.Submitter = "",
    json: Annotated[bool, typer.Option("--json", help="the tables, or with --dry-run the plan, as JSON")] = False,
) -> int:  # fmt: skip
    """Run a results table of one of the papers, with its protocol; `fglbench report` then sets ours beside theirs.

    Cells that another suite has run already are reused, with their rows.
    """
    if table is None:
        _tell_costs(results, given.parse_seeds(seeds)) if dry_run else _list_tables(json)
        return 0
    announce()
    from ..runner.gpus import resolved
    from ..runner.job import Job, Options, Request, Store

    wanted = _narrowed(table, given.names(only))
    request = Request(
        suites=(table,), datasets=wanted["dataset"], methods=wanted["method"],
        clients=given.client_numbers(clients), splits=given.names(split), seeds=given.parse_seeds(seeds),
    )  # fmt: skip
    where = backend, address, resolved(device, backend)
    options = Options(jobs, threads, timeout, memory_limit, submitter, (), False, *where)
    job = Job(_read(request, table, given.names(reading)), Store(results), options, given.names(rerun))
    if not job.rerun:  # what is to run again is not to be had from elsewhere
        _reuse(job, table, dry_run, json)
    return carry_out(job, dry_run, json, yes)


def _read(request: Request, table: str, readings: tuple[str, ...]) -> Request | list[tuple[str, Cell]]:
    """The cells of a request that these readings ask for; of none, the request. UserError where there are no cells."""
    if not readings:
        return request
    from ...report.reproduction.match import keys_of_readings
    from ..suites.select import select

    cells = select(request)
    keys = keys_of_readings(
        table, readings, [cell.row(table, status="ok", started="", environment="") for _, cell in cells]
    )
    chosen = [(suite, cell) for suite, cell in cells if cell.key in keys]
    if not chosen:
        raise UserError(f"no run of {table} is both asked for and of the readings {', '.join(readings)}")
    return chosen


def _list_tables(json: bool) -> None:
    from ...report.papers import tables

    if json:
        print_json([
            {"table": name, "paper": paper.name, "of": spec.table, "shows": spec.shows}
            for name, (paper, spec) in tables().items()
        ])  # fmt: skip
        return
    listing = plain_table("table", "paper", "what it shows")
    for name, (paper, spec) in tables().items():
        listing.add_row(name, f"{paper.name} {spec.table}", spec.shows)
    plain_console().print(listing)


def _tell_costs(results: Path, seeds: tuple[int, ...]) -> None:
    """For each table: printed figures that have ours beside them, cells that are left to run, and what they cost.

    Cells that another suite has run are not among them: they are reused.
    """
    announce()
    from ...report.papers import tables
    from ...report.reproduction import coverage
    from ..runner.cost_estimate import Costs
    from ..runner.job import Job, Options, Request, Store
    from ..runner.plan import elsewhere

    store = Store(results)
    rows = store.rows()
    costs = Costs(rows)
    listing = plain_table("table", "figures", "of", "runs left", "core-hours", "more runs", numeric=True)
    todo = {name: Job(Request(suites=(name,), seeds=seeds), store, Options()).plan().todo for name in tables()}
    had = {item.cell.key for item, _ in elsewhere(chain.from_iterable(todo.values()), store)}
    for name, items in todo.items():
        left = [(item.cell, 1) for item in items if item.cell.key not in had]
        cost = costs.of(left)
        unknown = sum(cost.unknown.values())
        ran, printed = coverage(name, [row for row in rows if row.suite == name])
        listing.add_row(name, *map(str, (ran, printed, len(left) - unknown)), f"{cost.hours:.1f}", str(unknown))
    plain_console().print(listing)
    plain_console().print("core-hours are judged by the rows here; for more runs there are no rows to judge by")


def _narrowed(table: str, only: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The datasets and methods that the words of --only stand for; none for "all". UserError for an unknown table."""
    from ...report.papers import tables

    if table not in tables():
        raise did_you_mean(table, tables(), "table")
    words, meant = _words(table), set[tuple[str, str]]()
    for word in only:
        if word.lower() not in words:
            raise did_you_mean(word, words, f"dataset or method of {table}")
        meant |= words[word.lower()]
    return {axis: tuple(sorted(name for where, name in meant if where == axis)) for axis in ("dataset", "method")}


def _words(table: str) -> dict[str, set[tuple[str, str]]]:
    """The (axis, our name) that each word for a dataset or method means: the paper's words, and ours."""
    from ...report.papers import printed, tables
    from ..suites.suitefile import load_suite

    axes = ("dataset", "method")
    blocks = load_suite(table).cross
    ours = {(axis, entry.name) for block in blocks for axis in axes for entry in getattr(block, f"{axis}s")}
    words = defaultdict[str, set[tuple[str, str]]](set)
    paper, spec = tables()[table]
    for part in (part for figure in paper.rows(spec, printed()) for part in paper.components(spec, figure)):
        for axis in axes:
            name = paper.where(spec, part).get(axis)
            if isinstance(name, str) and (axis, name) in ours:
                words[getattr(part, axis).lower()].add((axis, name))
    return words | {name: {(axis, name)} for axis, name in ours}


def _reuse(job: Job, table: str, dry_run: bool, json: bool) -> None:
    """Take finished cells over from other suites, so that the plan finds them done."""
    from ..runner.plan import elsewhere, take_over

    reusable = elsewhere([item for item in job.plan().todo if item.suite == table], job.store)
    if not reusable:
        return
    if not dry_run:
        job.store.prepare([table])
        take_over(reusable, job.store)
    sources = ", ".join(sorted({row.suite for _, row in reusable}))
    what = "of these would be reused" if dry_run else "reused"
    plain_console(stderr=json).print(f"{len(reusable)} {what} from {sources}")
