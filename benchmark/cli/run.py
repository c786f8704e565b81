"""`fglbench run`: plan, print the plan, run it, show the scores. `adopt`: the same for a submitted method."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from typer import Argument, Option

from ...registry import UserError, did_you_mean
from . import common as given
from .common import Names, answer, command, complain, plain_console, plain_table, print_json, why

if TYPE_CHECKING:
    from ...report.board import Board
    from ...report.ranking import Ranking
    from ..runner.job import Job
    from ..runner.plan import C, Item, Plan
    from ..store.schema import Row

QUIETLY_LOADED = 3  # datasets that are loaded without a word
STATES = {"todo": "to run", "done": "done", "skipped": "skipped", "failed": "failed"}  # state of a cell -> words


def run(
    suite: Annotated[
        Names, given.naming("suite", "-s", "--suite", metavar=None, help="a suite, or a YAML file (default: by task)")
    ] = None,
    all_suites: Annotated[bool, Option("--all", help="every leaderboard suite")] = False,
    quick: Annotated[bool, Option("--quick", help="the suite `quick`: under a minute")] = False,
    method: given.Methods = None, dataset: given.Datasets = None, partition: given.Partitions = None,
    clients: given.Clients = None, split: given.Splits = None, backbone: given.Backbones = None,
    seeds: given.Seeds = None,
    data: given.Data = None, metric: given.Metric = None, tuned: given.TunedFile = None, set_: given.Settings = None,
    jobs: given.Jobs = None, threads: given.Threads = 1, timeout: given.Timeout = 3600,
    memory_limit: given.Memory = None, device: given.Device = "cpu",
    backend: given.Backends = "processes", address: given.Address = None,
    rerun: given.Rerun = None, missing_rows: given.MissingRows = False, embeddings: given.Embeddings = False,
    save_models: given.SaveModels = False,
    dry_run: given.DryRun = False, yes: given.Yes = False,
    json: Annotated[bool, Option("--json", help="with --dry-run: the plan as JSON")] = False,
    results: given.Results = Path("runs"), submitter: given.Submitter = "", plugin: given.PluginNames = None,
) -> int:  # fmt: skip
    """Run methods on datasets. Finished runs are not repeated.

    Repeat an option or give a comma-separated list for several names. Without a suite, the runs of the leaderboard with
    these methods and datasets are made. Rows with changed settings or own data go to the suite `custom`.
    """
    methods, partitions, splits, backbones = map(given.names, (method, partition, split, backbone))
    numbers, plugins = (given.client_numbers(clients), given.parse_seeds(seeds)), given.apart(plugin)
    wanted = {"method": methods, "dataset": given.names(dataset), "partition": partitions, "split": splits}
    data = given.own_dataset(data, set_ or (), **wanted, backbone=backbones)
    from ..runner.job import Job, Request, Store

    settings = tuple(set_ or ())
    if metric is not None:
        from ...datasets.own_data import metric_setting

        settings += metric_setting(metric, data)
    request = Request(
        suites=given.names(suite), all_suites=all_suites, quick=quick, methods=methods, datasets=wanted["dataset"],
        partitions=partitions, clients=numbers[0], splits=splits, backbones=backbones, seeds=numbers[1],
        settings=settings, own_dataset=data, tuned=tuned,
    )  # fmt: skip
    if save_models:
        from ..runner.best_round import check_safetensors

        check_safetensors()
    options = given.options(
        device, backend, address=address, jobs=jobs, threads=threads, timeout=timeout, memory_limit=memory_limit,
        submitter=submitter, plugins=plugins, embeddings=embeddings, models=save_models,
    )  # fmt: skip
    return carry_out(Job(request, Store(results), options, given.names(rerun), missing_rows), dry_run, json, yes)


def _as_data(plan: Plan) -> dict[str, Any]:
    cells = [
        {"suite": item.suite, "key": item.cell.key, "state": item.state, "stale": item.stale, **item.cell.identity}
        for item in plan.items
    ]
    return {"counts": {state: plan.counts()[state] for state in STATES}, "stale": plan.stale(), "cells": cells}


def carry_out(job: Job, dry_run: bool, json: bool = False, yes: bool = False) -> int:
    """Plan a job, print the plan and, without dry_run, run it. Returns the exit code.

    yes: run more than one core-hour without a question.
    """
    if json and not dry_run:
        raise UserError("--json prints a plan: give --dry-run as well (the rows of a run are CSV files already)")
    job.options.check()
    console = plain_console()
    if json:
        print_json(_as_data(job.plan()))
        return 0
    if dry_run:
        foreseen: Plan[Any] = job.outlook() or job.plan()
        _tell_plan(foreseen, console)
        for line in outline(foreseen.todo):
            console.print(line, soft_wrap=True)
        _tell_cost(job, foreseen, console)
        return 0
    job.prepare()
    plan = job.plan()
    from ..runner.system import as_interrupts
    from .progress import Display

    _tell_plan(plan, console)
    if not plan.todo:
        return 1 if plan.counts()["failed"] else 0
    ask(_tell_cost(job, plan, console), yes)
    with as_interrupts():
        if (number := len({item.cell.dataset.name for item in plan.todo})) > QUIETLY_LOADED:
            console.print(f"loading {number} datasets")
        left = job.load(plan, complain)
        console.print(job.options.told(len(left.todo)))
        begun = time.monotonic()
        summary = job.run(left, Display(console))
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    parts = ", ".join(f"{number} {status}" for status, number in summary.counts().most_common())
    places = ", ".join(str(job.store.root / suite) for suite in sorted({item.suite for item in left.todo}))
    end = f"{parts} in {minutes}:{seconds:02d}; rows in {places}; next: {command('report', job.store.root)}"
    show_scores(job.rows(plan))
    console.print(end, soft_wrap=True)
    complete = summary.ok and len(left.items) == len(plan.items)
    return 0 if complete and not plan.counts()["failed"] else 1


def _tell_cost(job: Job, plan: Plan[C], console: Console) -> float:
    """Print the cost of a plan. Returns core-hours."""
    from ..runner.job import told_runs

    line, hours = told_runs([item.cell for item in plan.todo], job.store.rows(), job.options)
    if line:
        console.print(line, soft_wrap=True)
    return hours


def ask(hours: float, yes: bool) -> None:
    """Ask on a terminal before more than one core-hour. UserError if the answer is no."""
    if yes or hours <= 1 or not sys.stdin.isatty():
        return
    if not typer.confirm("More than one core-hour. Run it?", default=True):
        raise UserError("nothing was run; narrow it by -m, -d or --seeds")


def _tell_plan(plan: Plan[C], console: Console) -> None:
    count, stale, total = plan.counts(), plan.stale(), len(plan.items)
    states = ", ".join(f"{count[state]} {word}" for state, word in STATES.items())
    console.print(f"{total} run{'s' * (total != 1)}: {states}")
    for line in why([*plan.rows("failed"), *plan.rows("skipped")]):
        console.print(f"  {line}", soft_wrap=True)
    if count["failed"]:
        console.print("  failed runs are repeated with --rerun failed")
    if stale:
        console.print(f"  {stale} done with an earlier revision of the method or plug-in: run again with --rerun stale")


def outline(items: list[Item[C]]) -> list[str]:
    """One line for all seeds of a cell: "  leaderboard: cora louvain x10 gcn fedavg, seeds 0 1 2".

    Cells that differ in parameters only share a line: "  sweep-fgssl: ... fgssl (19 settings), seeds 0 1 2".
    """
    seeds: dict[tuple[str, str], list[int]] = {}
    for item in items:
        seeds.setdefault((item.suite, str(item.cell).rsplit(" seed ", 1)[0]), []).append(item.cell.seed)
    lines = []
    for (suite, cell), numbers in seeds.items():
        several = max(Counter(numbers).values())
        settings = f" ({several} settings)" if several > 1 else ""
        lines.append(f"  {suite}: {cell}{settings}, seeds {' '.join(map(str, dict.fromkeys(numbers)))}")
    return lines


def adopt(
    name: Annotated[str, Argument(metavar="METHOD", help="a method with a submission, whose code is merged")],
    jobs: given.Jobs = None, threads: given.Threads = 1, timeout: given.Timeout = 3600,
    memory_limit: given.Memory = None, device: given.Device = "cpu",
    backend: given.Backends = "processes", address: given.Address = None,
    rerun: given.Rerun = None, dry_run: given.DryRun = False,
    results: given.Results = Path("results"), submitter: given.Submitter = "fglbench", json: given.Json = False,
) -> int:  # fmt: skip
    """Run all suites that METHOD's submission has rows of, with the code of this package; these rows rank.

    The cost is printed first. After an interruption the same command continues. At the end the reported scores are
    shown beside ours.
    """
    from ...methods import METHODS
    from ..runner.job import Costs, Job, Request, Store, told
    from ..store.folder import submission_stores
    from ..store.row_file import submission_folder
    from ..submission.listing import SETTINGS
    from ..suites.suite import load_suite, suite_names

    reported = submission_folder(results, name)
    if not reported.is_dir():
        raise did_you_mean(name, [store.root.name for store in submission_stores(results)], "submission of method")
    METHODS.cls(name)  # merged, or UserError
    rows = Store(reported).rows(latest_only=True)
    suites = tuple(sorted({row.suite for row in rows} & set(suite_names())))
    if not suites:
        raise UserError(f"no row under {str(reported)!r} is of a suite of the benchmark: {', '.join(suite_names())}")
    for suite in suites if (settings := reported / SETTINGS).is_file() else ():
        if not load_suite(suite).lists(name):
            raise UserError(
                f"{settings} has tuned settings: put them into {load_suite(suite).tuned_file}, and name the method in "
                f"the file of suite {suite!r} as {{name: {name}, params: tuned}}"
            )
    options = given.options(device, backend, address=address, jobs=jobs, threads=threads, timeout=timeout,
                            memory_limit=memory_limit, submitter=submitter)  # fmt: skip
    job = Job(Request(suites=suites, methods=(name,)), Store(results), options, given.names(rerun))
    todo, console = job.plan().todo, plain_console()
    with answer(json) as said:
        said |= {"method": name, "suites": suites, "left": len(todo)}
        console.print(f"{name}: {len(todo)} runs left of {', '.join(suites)}", soft_wrap=True)
        if todo:
            cost = Costs([*job.store.rows(), *rows]).of((item.cell, 1) for item in todo)
            said["core_hours"] = cost.hours
            console.print(told(cost), soft_wrap=True)
        if dry_run:
            for line in outline(todo):
                console.print(line, soft_wrap=True)
            return 0
        code = carry_out(job, False)
        said["scores"] = _tell_differences(results, name)
        return code


def _tell_differences(results: Path, name: str) -> list[dict[str, Any]]:
    """Print each reported score with ours. Returns the same as data."""
    from ...report.text import plain
    from ..store.folder import self_reported

    differences = []
    for each in self_reported(results):
        if each.row.method == name and each.difference is not None and each.ours is not None:
            where = plain(f"{each.row.suite}: {each.row.dataset} {each.row.partition} x{each.row.clients}", 100)
            seeds = f"{each.our_seeds} seed{'s' * (each.our_seeds != 1)}"
            typer.echo(f"{where}: reported {each.theirs:.4f}, ours {each.ours:.4f} ({each.difference:+.4f}, {seeds})")
            differences.append({"task": where, "reported": each.theirs, "ours": each.ours, "our_seeds": each.our_seeds})
    return differences


SHOWN = 6  # tasks to show; for more the number is printed
BASELINE = "fedavg"


def show_scores(rows: Iterable[Row]) -> None:
    """Print a table for each task of rows with a score; nothing if there is none.

    Differences are over paired seeds, in points (0.01 of a score or an error), with a 95% t interval for two or
    more seeds.
    """
    scored = [row for row in rows if row.status == "ok" and row.score is not None]
    if not scored:
        return
    from ...report.board import Board
    from ...report.loading import frame

    boards = [
        Board.build(suite, frame(row for row in scored if row.suite == suite))
        for suite in dict.fromkeys(row.suite for row in scored)
    ]
    _print([table for board in boards for table in _tables(board)])


def _print(tables: list[Table]) -> list[Table]:
    """Print the first tables. Returns them."""
    console = plain_console()
    for table in tables[:SHOWN]:
        console.print("", table)
    if len(tables) > SHOWN:
        console.print(f"\n{len(tables) - SHOWN} more tasks: see the report")
    return tables[:SHOWN]


def show_ranking(ranking: Ranking) -> list[Table]:
    """Print the ranked methods of a board: mean score and rank over datasets, difference from FedAvg, traffic.

    The numbers are those of the leaderboard. A board of one dataset, or without a ranking, is shown as in
    `show_scores`. Returns the tables.
    """
    from ...metrics import sign
    from ...report.cells import difference_cell
    from ...report.text import count, data_size, gap_unit, score_text, unit

    board = ranking.board
    datasets = board.by_dataset
    if len(datasets) < 2 or len(datasets.columns) < 2:
        return _print(list(_tables(board)))
    base = _baseline(board, map(str, datasets))
    against = ranking.inference.against.get(base or "", {})
    titles = [] if base is None else [f"vs {base}{gap_unit(board.metric)} (95% interval)"]
    metric = unit("score" if sign(board.metric) > 0 else board.metric)
    averaged = len(board.datasets_of(board.metric))
    if averaged < len(datasets):  # means and differences are over the main metric
        metric = f"{metric} ({count(averaged, 'dataset')})"
    table = plain_table(f"{board.title}, {len(datasets)} datasets", "mean rank", metric, *titles, "traffic (median)",
                        numeric=True)  # fmt: skip
    for name, line in zip(map(str, ranking.table.index), ranking.table.to_dict("records"), strict=True):
        cells = [f"{line['mean_rank']:.2f}", score_text(line["score"], 1)]
        if base is not None and name == base:
            cells.append("baseline")
        elif base is not None:
            cells.append(str(difference_cell(against.get(name)).text))
        table.add_row(name, *cells, data_size(line["traffic"]))
    return _print([table])


def _baseline(board: Board, entrants: Iterable[str]) -> str | None:
    """The entry to which others are compared: the only one of FedAvg; None if there are several settings of it."""
    named = [name for name in entrants if board.method_of[name] == BASELINE]
    return named[0] if len(named) == 1 else None


def _tables(board: Board) -> Iterator[Table]:
    from ...report.statistics import paired_difference
    from ...report.text import data_size, gap_unit, mean_std, unit, with_bounds

    for task in board.tasks:
        seeds, measures = board.seeds_of(task), {name: board.measures(task, name) for name in board.entrants}
        base = _baseline(board, map(str, seeds))
        metric = board.metric_of[task]
        against = [] if base is None else [f"vs {base}{gap_unit(metric)} (95% interval)"]
        table = plain_table(task, f"{unit(metric)} (mean ± sd)", "seeds", *against, "traffic", numeric=True)
        for entrant, scores in sorted(measures.items(), key=lambda each: -each[1].get("score", -inf)):
            if not scores:
                continue
            cells = [mean_std(scores["score"], scores["score_std"], 1), f"{scores['n']:.0f}"]
            if base is not None and entrant == base:
                cells.append("baseline")
            elif base is not None:
                both = seeds[[entrant, base]].dropna()
                gap = paired_difference(both[entrant], both[base])
                cells.append(with_bounds(gap))
            table.add_row(str(entrant), *cells, data_size(scores["traffic"]))
        yield table
