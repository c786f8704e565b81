"""`fglbench run`: plan, say what is to be done, do it."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from . import options as given
from .options import Names
from .output import complain, plain_console
from .status import why

if TYPE_CHECKING:
    from ..runner.job import Job
    from ..runner.plan import Item, Plan


def run(
    suite: Annotated[Names, typer.Option("-s", "--suite", help="a suite by name, or a YAML file")] = None,
    all_suites: Annotated[bool, typer.Option("--all", help="every leaderboard suite")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="the suite `quick`: minutes on a laptop")] = False,
    method: Annotated[Names, typer.Option("-m", "--method", help="only these, or new to the suite")] = None,
    dataset: Annotated[Names, typer.Option("-d", "--dataset", help="only these, or new to the suite")] = None,
    partition: Annotated[Names, typer.Option("-p", "--partition", help="only these partitions")] = None,
    clients: given.Clients = None,
    split: given.Splits = None,
    backbone: Annotated[Names, typer.Option("-b", "--backbone", help="only these; a+b: mixed")] = None,
    seeds: given.Seeds = None,
    set_: given.Settings = None,
    jobs: given.Jobs = None,
    threads: given.Threads = 1,
    timeout: given.Timeout = 3600,
    memory_limit: given.Memory = None,
    rerun: given.Rerun = None,
    missing_rows: given.MissingRows = False,
    embeddings: given.Embeddings = False,
    dry_run: given.DryRun = False,
    results: given.Results = Path("results"),
    submitter: given.Submitter = "",
    plugin: given.Plugins = None,
) -> int:
    """Run cells of the benchmark; what is done already is not run again.

    -m, -d, -p, -k, -b, --split and --suite may be repeated or take a comma list. Without a suite, the leaderboard's
    cells for the given methods and datasets are run. Changed settings are filed under the suite `custom`.
    """
    from ..runner.job import Job, Options, Request, Store

    request = Request(
        suites=given.names(suite), all_suites=all_suites, quick=quick, methods=given.names(method),
        datasets=given.names(dataset), partitions=given.names(partition), clients=given.client_numbers(clients),
        splits=given.names(split), backbones=given.names(backbone), seeds=given.parse_seeds(seeds),
        settings=tuple(set_ or ()),
    )  # fmt: skip
    options = Options(jobs, threads, timeout, memory_limit, submitter, tuple(plugin or ()), embeddings)
    return carry_out(Job(request, Store(results), options, given.names(rerun), missing_rows), dry_run)


def carry_out(job: Job, dry_run: bool) -> int:
    """Plan a job, tell the plan and, unless that is all that is wanted, run it. Returns the exit code."""
    from .progress import Display

    console, plan = plain_console(), job.plan()
    _tell_plan(plan, console)
    if dry_run:
        for line in outline(plan.todo):
            console.print(line, soft_wrap=True)
        return 0
    if not plan.todo:
        return 1 if plan.counts()["failed"] else 0
    left = job.load(plan, complain)
    workers, threads = job.options.workers(len(left.todo)), job.options.threads
    console.print(f"{workers} worker{'s' * (workers > 1)}, {threads} thread{'s' * (threads > 1)} each")
    begun = time.monotonic()
    with _terminated_as_interrupted():
        summary = job.run(left, Display(console))
    minutes, seconds = divmod(round(time.monotonic() - begun), 60)
    parts = ", ".join(f"{number} {status}" for status, number in summary.counts().most_common())
    places = ", ".join(str(job.store.root / suite) for suite in sorted({item.suite for item in left.todo}))
    end = f"{parts} in {minutes}:{seconds:02d}; rows in {places}; next: fglbench report"
    console.print(end, soft_wrap=True)
    complete = summary.ok and len(left.items) == len(plan.items)
    return 0 if complete and not plan.counts()["failed"] else 1


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM stops a run as Ctrl-C does: workers end, what is finished is kept."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell_plan(plan: Plan, console: Console) -> None:
    count, stale, total = plan.counts(), plan.stale(), len(plan.items)
    words = {"todo": "to run", "done": "done", "skipped": "skipped", "failed": "failed"}
    states = ", ".join(f"{count[state]} {word}" for state, word in words.items())
    console.print(f"{total} cell{'s' * (total != 1)}: {states}")
    for line in why(plan):
        console.print(f"  {line}", soft_wrap=True)
    if count["failed"]:
        console.print("  failed cells are run again with --rerun failed")
    if stale:
        console.print(f"  {stale} done with other source code of the method than now: run again with --rerun stale")


def outline(items: list[Item]) -> list[str]:
    """One line for all seeds of a cell: "  leaderboard: cora louvain x10 gcn fedavg, seeds 0 1 2".

    Settings that differ in parameters only share one too: "  sweep-fgssl: ... fgssl (19 settings), seeds 0 1 2".
    """
    seeds: dict[tuple[str, str], list[int]] = {}
    for item in items:
        seeds.setdefault((item.suite, str(item.cell).rsplit(" seed ", 1)[0]), []).append(item.cell.seed)
    lines = []
    for (suite, cell), found in seeds.items():
        several = max(Counter(found).values())
        settings = f" ({several} settings)" if several > 1 else ""
        lines.append(f"  {suite}: {cell}{settings}, seeds {' '.join(map(str, dict.fromkeys(found)))}")
    return lines
