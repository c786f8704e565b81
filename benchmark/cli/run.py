"""`fglbench run`: plan, say what is to be done, do it."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from ...registry import UserError
from .options import Plugins, Results, names, numbers, seeds as parse_seeds
from .status import why

if TYPE_CHECKING:
    from ..runner.plan import Item, Plan
    from ..suites.cell import Cell

Names = list[str] | None


def run(
    suite: Annotated[Names, typer.Option("-s", "--suite", help="a suite by name, or a YAML file")] = None,
    all_suites: Annotated[bool, typer.Option("--all", help="every leaderboard suite")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="the suite `quick`: minutes on a laptop")] = False,
    method: Annotated[Names, typer.Option("-m", "--method", help="only these, or new to the suite")] = None,
    dataset: Annotated[Names, typer.Option("-d", "--dataset", help="only these, or new to the suite")] = None,
    partition: Annotated[Names, typer.Option("-p", "--partition", help="only these partitions")] = None,
    clients: Annotated[Names, typer.Option("-k", "--clients", help="only these numbers of clients")] = None,
    split: Annotated[Names, typer.Option("--split", help="only these splits")] = None,
    backbone: Annotated[Names, typer.Option("-b", "--backbone", help="only these; a+b: mixed")] = None,
    seeds: Annotated[str | None, typer.Option("--seeds", help="a count (3), a list (0,4) or a range (3-5)")] = None,
    set_: Annotated[
        Names, typer.Option("--set", metavar="KEY=VALUE", help="training.lr=0.1, method.mu=1, mu=1")
    ] = None,
    jobs: Annotated[int | None, typer.Option("-j", "--jobs", min=1, help="worker processes (one a core)")] = None,
    threads: Annotated[int, typer.Option(min=1, help="threads a worker")] = 1,
    timeout: Annotated[float, typer.Option(min=0, help="seconds a cell may take; 0: any")] = 3600,
    memory_limit: Annotated[float | None, typer.Option(min=0.1, help="GiB a worker may take")] = None,
    rerun: Annotated[Names, typer.Option(help="run again: failed, timeout, oom, skipped, stale or all")] = None,
    missing_rows: Annotated[
        bool, typer.Option("--record-missing", help="a row for each cell whose data cannot be had")
    ] = False,
    embeddings: Annotated[
        bool, typer.Option("--embeddings", help="keep test embeddings, for the report's t-SNE and CKA figures")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="say what would be run, and stop")] = False,
    results: Results = Path("results"),
    submitter: Annotated[str, typer.Option(envvar="FGLBENCH_SUBMITTER", help="your name, for the rows")] = "",
    plugin: Plugins = None,
) -> int:
    """Run cells of the benchmark; what is done already is not run again.

    -m, -d, -p, -k, -b, --split and --suite may be repeated or take a comma list. Without a suite, the leaderboard's
    cells for the given methods and datasets are run. Changed settings are filed under the suite `custom`.
    """
    from ..plugins import absolute, load_plugins
    from ..runner.plan import make_plan, with_data
    from ..runner.supervisor import Options, record_missing, run_plan
    from ..store import Store
    from ..suites.selection import Request, select
    from .progress import Display

    plugins = absolute(plugin or ())
    load_plugins(plugins)
    request = Request(
        suites=names(suite),
        all_suites=all_suites,
        quick=quick,
        methods=names(method),
        datasets=names(dataset),
        partitions=names(partition),
        clients=numbers(clients, "numbers of clients"),
        splits=names(split),
        backbones=names(backbone),
        seeds=parse_seeds(seeds),
        settings=tuple(set_ or ()),
    )
    console = Console(highlight=False, markup=False)
    store = Store(results)
    plan = make_plan(select(request), store, names(rerun), embeddings)
    _tell_plan(plan, console)
    if dry_run:
        for line in outline(plan.todo):
            console.print(line, soft_wrap=True)
        return 0
    if not plan.todo:
        return 1 if plan.counts()["failed"] else 0
    store.prepare(item.suite for item in plan.todo)
    plan, missing = with_data(plan)
    for absent in missing:
        Console(stderr=True, highlight=False, markup=False).print(f"fglbench: {absent}", soft_wrap=True)
    memory = None if memory_limit is None else int(memory_limit * 2**30)
    options = Options(jobs, threads, timeout or None, memory, submitter, plugins, embeddings)
    if missing_rows:
        record_missing(missing, store, options)
    if not plan.todo:
        raise UserError("nothing could be run: none of the datasets could be loaded (see above)")
    workers = options.workers(len(plan.todo))
    console.print(f"{workers} worker{'s' * (workers > 1)}, {threads} thread{'s' * (threads > 1)} each")
    begun = time.monotonic()
    signal.signal(signal.SIGTERM, _interrupt)
    with Display(plan.todo, console) as display:
        summary = run_plan(plan, store, options, display)
    _tell_end(summary.counts(), time.monotonic() - begun, {item.suite for item in plan.todo}, results, console)
    return 0 if summary.ok and not missing and not plan.counts()["failed"] else 1


def _interrupt(*_: Any) -> NoReturn:
    raise KeyboardInterrupt


def _tell_plan(plan: Plan, console: Console) -> None:
    count, stale = plan.counts(), plan.stale()
    words = {"todo": "to run", "done": "done", "skipped": "skipped", "failed": "failed"}
    total = len(plan.items)
    console.print(
        f"{total} cell{'s' * (total != 1)}: {', '.join(f'{count[state]} {word}' for state, word in words.items())}"
    )
    for line in why(plan):
        console.print(f"  {line}", soft_wrap=True)
    if count["failed"]:
        console.print("  failed cells are run again with --rerun failed")
    if stale:
        console.print(f"  {stale} done with other source code of the method than now: run again with --rerun stale")


def _tell_end(count: Any, seconds: float, suites: set[str], results: Path, console: Console) -> None:
    parts = [f"{number} {status}" for status, number in count.most_common()]
    minutes, rest = divmod(round(seconds), 60)
    places = ", ".join(str(results / suite) for suite in sorted(suites))
    what = f"{', '.join(parts)} in {minutes}:{rest:02d}"
    console.print(f"{what}; rows in {places}; next: fglbench report", soft_wrap=True)


def outline(items: list[Item]) -> list[str]:
    """One line for all seeds of a cell: "  leaderboard: cora louvain x10 gcn fedavg, seeds 0 1 2".

    Settings that differ in parameters only share one too: "  sweep-fgssl: ... fgssl (19 settings), seeds 0 1 2".
    """
    seeds: dict[tuple[str, str], list[int]] = {}
    for item in items:
        seeds.setdefault((item.suite, _without_seed(item.cell)), []).append(item.cell.seed)
    lines = []
    for (suite, cell), found in seeds.items():
        several = max(Counter(found).values())
        settings = f" ({several} settings)" if several > 1 else ""
        lines.append(f"  {suite}: {cell}{settings}, seeds {' '.join(map(str, dict.fromkeys(found)))}")
    return lines


def _without_seed(cell: Cell) -> str:
    return str(cell).rsplit(" seed ", 1)[0]
