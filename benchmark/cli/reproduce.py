"""`fglbench reproduce`: run a paper's table. `fglbench verify`: run a sample of rows again."""

from __future__ import annotations

import json
import secrets
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from ...registry import UserError, did_you_mean
from . import common as given
from .common import Names, announce, answer, complain, names, plain_console, plain_table, print_json
from .run import carry_out

if TYPE_CHECKING:
    from ..runner.job import Job, Request
    from ..submission.verify import Comparison
    from ..suites.cell import Cell

TABLE = "a table's name, as fgssl-table1; without it all are listed, with --dry-run what each still costs"


def reproduce(
    table: Annotated[str | None, given.named("table", metavar="TABLE", help=TABLE)] = None,
    only: Annotated[
        Names, Option("--only", metavar="NAMES", help="these datasets and methods (our or the paper's names)")
    ] = None,
    reading: Annotated[
        Names, Option("--reading", metavar="NAMES", help="only the runs of these readings of the paper")
    ] = None,
    clients: given.Clients = None, split: given.Splits = None, seeds: given.Seeds = None,
    jobs: given.Jobs = None, threads: given.Threads = 1, timeout: given.Timeout = 3600,
    memory_limit: given.Memory = None, device: given.Device = "cpu",
    backend: given.Backends = "processes", address: given.Address = None,
    rerun: given.Rerun = None, dry_run: given.DryRun = False, yes: given.Yes = False,
    results: given.Results = Path("runs"), submitter: given.Submitter = "",
    json: Annotated[bool, Option("--json", help="the tables, or with --dry-run the plan, as JSON")] = False,
) -> int:  # fmt: skip
    """Run a results table of one of the papers, with its protocol. `fglbench report` compares the values.

    Rows of the same runs in other suites are reused.
    """
    if table is None:
        narrowing = {"--only": only, "--reading": reading, "--clients": clients, "--split": split}
        if option := next((name for name, value in narrowing.items() if value), None):
            raise UserError(f"{option} selects runs of one table: give its name too, as fgssl-table1")
        _tell_costs(results, given.parse_seeds(seeds)) if dry_run else _list_tables(json)
        return 0
    announce()
    from ..runner.job import Job, Request, Store

    wanted = _narrowed(table, given.names(only))
    request = Request(
        suites=(table,), datasets=wanted["dataset"], methods=wanted["method"],
        clients=given.client_numbers(clients), splits=given.names(split), seeds=given.parse_seeds(seeds),
    )  # fmt: skip
    options = given.options(device, backend, address=address, jobs=jobs, threads=threads, timeout=timeout,
                            memory_limit=memory_limit, submitter=submitter)  # fmt: skip
    if request.clients or request.splits:
        _check_table(table, request)
    job = Job(_read(request, table, given.names(reading)), Store(results), options, given.names(rerun))
    if not job.rerun:
        _reuse(job, table, dry_run, json)
    return carry_out(job, dry_run, json, yes)


def _check_table(table: str, request: Request) -> None:
    """UserError for a number of clients or a split that is not in the table."""
    from ..suites.suite import load_suite

    cells = load_suite(table).cells()
    clients, splits = sorted({cell.clients for cell in cells}), sorted({cell.split.name for cell in cells})
    for what, wanted, there in (("clients", request.clients, clients), ("split", request.splits, splits)):
        if others := [each for each in wanted if each not in there]:
            raise UserError(f"{table} has {what} {', '.join(map(str, there))}, not {others[0]}")


def _read(request: Request, table: str, readings: tuple[str, ...]) -> Request | list[tuple[str, Cell]]:
    """The cells of a request that belong to these readings (without any: the request). UserError if there are none."""
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
    """Print for each table the printed figures for which we have a value, the runs left, and their cost.

    Runs of other suites are not counted as left: they are reused.
    """
    announce()
    from ...report.papers import tables
    from ...report.reproduction import coverage
    from ..runner.job import Costs, Job, Options, Request, Store
    from ..runner.plan import elsewhere

    store = Store(results)
    rows = store.rows()
    costs = Costs(rows)
    listing = plain_table("table", "figures", "of", "runs left", "core-hours", "more runs", numeric=True)
    todo = {name: Job(Request(suites=(name,), seeds=seeds), store, Options()).plan().todo for name in tables()}
    reusable = {item.cell.key for item, _ in elsewhere(chain.from_iterable(todo.values()), store)}
    for name, items in todo.items():
        left = [(item.cell, 1) for item in items if item.cell.key not in reusable]
        cost = costs.of(left)
        unknown = sum(cost.unknown.values())
        ran, printed = coverage(name, [row for row in rows if row.suite == name])
        listing.add_row(name, *map(str, (ran, printed, len(left) - unknown)), f"{cost.hours:.1f}", str(unknown))
    plain_console().print(listing)
    plain_console().print("core-hours are estimated from the rows here; for more runs there are no such rows")


def _narrowed(table: str, only: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Axis -> names of the datasets and methods in --only; empty: all. UserError for an unknown table or word."""
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
    """Word for a dataset or method (the paper's, and ours) -> set of (axis, our name)."""
    from ...report.papers import tables
    from ..suites.suite import load_suite

    axes = ("dataset", "method")
    blocks = load_suite(table).cross
    ours = {(axis, entry.name) for block in blocks for axis in axes for entry in getattr(block, f"{axis}s")}
    words = defaultdict[str, set[tuple[str, str]]](set)
    paper, spec = tables()[table]
    for part in (part for figure in paper.figures(spec) for part in paper.components(spec, figure)):
        for axis in axes:
            name = paper.where(spec, part).get(axis)
            if isinstance(name, str) and (axis, name) in ours:
                words[getattr(part, axis).lower()].add((axis, name))
    return words | {name: {(axis, name)} for axis, name in ours}


def _reuse(job: Job, table: str, dry_run: bool, json: bool) -> None:
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


EQUAL = 1e-6  # rounding of float32 in a mean over clients


def verify(
    path: given.ResultsOrSubmission,
    sample: Annotated[int, Option("--sample", min=1, metavar="N", help="experiments, with all seeds")] = 3,
    seed: Annotated[int | None, Option("--seed", min=0, help="seed of the random sample [any]")] = None,
    method: Annotated[
        Names, given.naming("method", "-m", "--method", metavar=None, help="only rows of these methods")
    ] = None,
    suite: given.Suites = None,
    dataset: Annotated[
        Names, given.naming("dataset", "-d", "--dataset", metavar=None, help="only rows on these datasets")
    ] = None,
    jobs: given.Jobs = None, timeout: given.Timeout = 3600, device: given.Device = "cpu",
    backend: given.Backends = "processes", address: given.Address = None,
    record: Annotated[
        Path | None, Option("--record", metavar="DIR", help="maintainers: write the verdicts to DIR/verified.csv")
    ] = None,
    by: Annotated[str, Option("--by", envvar="FGLBENCH_SUBMITTER", help="your name, for --record")] = "",
    contract: Annotated[bool, Option("--contract/--no-contract", help="check the methods as well")] = True,
    json_: given.Json = False, plugin: given.PluginNames = None,
) -> int:  # fmt: skip
    """Run a random sample of the rows of PATH again with the installed code, and compare. Exit code 1 if one fails.

    All seeds of a sampled run are run. A score may be higher than ours by 2.5 times the standard deviation over our
    seeds, at least 0.01 and at most 0.05. The methods must also pass `fglbench check`.
    """
    from ..store import Store, provenance, verified
    from ..submission import verify as again
    from .progress import Display

    options = given.options(device, backend, address=address, jobs=jobs, timeout=timeout)
    if record is not None:
        again.may_record(record, by, provenance.git_state()[1])
    only = {"method": names(method), "suite": names(suite), "dataset": names(dataset)}
    number = secrets.randbelow(10**6) if seed is None else seed
    drawn = again.draw(Store(path).existing(), only, sample, number, str(path))
    options = replace(options, plugins=given.apart(plugin))
    comparisons, machines = again.run_again(drawn, options, complain, Display(plain_console(stderr=True)))
    with answer(json_) as said:
        said |= {"seed": number, "rows": _tell(comparisons, f"drawn with --seed {number}"), "contract": {}}
        if record is not None:
            again.record(comparisons, machines, record, by)
            typer.echo(f"recorded in {record / verified.FILE}; next: fglbench report --results {record}")
        methods = sorted({(row.method, row.method_params) for row in drawn}) if contract else []
        for name, params in methods:
            said["contract"].setdefault(name, []).extend(_broken(name, json.loads(params), options.plugins))
    return 0 if all(comparison.passed for comparison in comparisons) and not any(said["contract"].values()) else 1


def _broken(name: str, params: dict[str, Any], plugins: tuple[str, ...]) -> list[str]:
    """The checks of the contract that a method fails, one line each; real data included."""
    from ..runner.execute import in_child
    from .new_and_check import verdicts_on

    wrong = list[str]()
    for check, verdict, reason in in_child(verdicts_on, plugins, name, params, True):
        if verdict == "failed":
            wrong.append(f"{check.replace('_', ' ')}: {reason}")
            typer.echo(f"{name}: {wrong[-1]}")
    typer.echo(f"{name} {'does NOT hold' if wrong else 'holds'} to the contract")
    return wrong


def _tell(comparisons: Sequence[Comparison], how: str) -> list[dict[str, Any]]:
    """Print all rows, then the problems of each. Returns the same as data."""
    from ...report.text import plain

    typer.echo(_table(comparisons))
    for comparison in comparisons:
        for problem in comparison.problems:
            typer.echo(f"{comparison.theirs.key}: {plain(problem)}")
    equal = sum(abs(comparison.difference("score") or 0) <= EQUAL for comparison in comparisons if comparison.ours)
    typer.echo(f"{equal} of {len(comparisons)} scores are equal to rounding, which tells of the same type of machine")
    typer.echo(f"{sum(comparison.passed for comparison in comparisons)} of {len(comparisons)} rows passed ({how})")
    return [
        {"suite": one.theirs.suite, "key": one.theirs.key, "theirs": one.theirs.score,
         "ours": one.ours.score if one.ours else None, "bar": one.bar, "problems": one.problems}
        for one in comparisons
    ]  # fmt: skip


def _table(comparisons: Sequence[Comparison]) -> str:
    """One line per row: their value, ours, and the differences."""
    from tabulate import tabulate

    from ...report.text import plain

    rows = []
    for comparison in comparisons:
        row, ours = comparison.theirs, comparison.ours
        rows.append([
            row.key,
            plain(f"{row.suite}: {row.method}, {row.dataset}, seed {row.seed}", 60),
            _figure(row.score), _figure(ours.score if ours else None), _figure(comparison.difference("score"), "+.6f"),
            _figure(comparison.difference("val"), "+.6f"), _figure(comparison.difference("macro_f1"), "+.6f"),
            f"{row.best_round or '-'}, {(ours.best_round if ours else None) or '-'}",
            f"{comparison.bar:.2g}", "passed" if comparison.passed else "FAILED",
        ])  # fmt: skip
    headers = ["key", "row", "theirs", "ours", "diff", "val diff", "F1 diff", "best round", "bar", "verdict"]
    return tabulate(rows, headers, tablefmt="plain", disable_numparse=True)


def _figure(value: float | None, form: str = ".6f") -> str:
    return "-" if value is None else format(value, form)
