"""`fglbench compete`: from the file of a method to its place on the tuned board."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from ...registry import UserError, did_you_mean
from ..store import Store
from ..store.row_file import safe_name
from ..suites.catalogue import BOARDS, published_tasks
from . import common as given
from .common import answer, complain, plain_console
from .run import ask
from .submit import Meta, packed
from .tune import count_studies

if TYPE_CHECKING:
    from ..compete import Standing
    from ..runner.job import Options
    from ..store.schema import Row
    from ..suites.cell import Cell
    from ..tune.session import Study, Tuner

BASELINE, BASELINES = "fedavg", ("fedavg", "local")
BOARD = BOARDS[0]
QUICK_TRIALS, QUICK_ROUNDS, QUICK_SEEDS = 3, 40, "2"


def compete(
    file: Annotated[Path, Argument(metavar="FILE", help="the Python file of your method")],
    method: Annotated[str | None, Option("-m", "--method", help="the method, if the file has several")] = None,
    quick: Annotated[bool, Option("--quick", help="a preview: 3 datasets, 40 rounds, 2 seeds")] = False,
    dataset: Annotated[
        given.Names, given.naming("dataset", "-d", "--dataset", metavar="DATASET[,...]", help="only these of the board")
    ] = None,
    trials: Annotated[int | None, Option("--trials", min=2, help="settings per dataset [the board's]")] = None,
    rounds: Annotated[int | None, Option("--rounds", min=3, help="rounds of a run [the board's]")] = None,
    seeds: given.Seeds = None,
    jobs: given.Jobs = None, threads: given.Threads = 1, timeout: given.Timeout = 3600,
    memory_limit: given.Memory = None, device: given.Device = "cpu", dry_run: given.DryRun = False,
    yes: given.Yes = False,
    meta: Meta = None,
    results: Annotated[
        Path | None, Option("--results", metavar="DIR", help="the results folder [runs/compete-METHOD]")
    ] = None,
    json: given.Json = False,
) -> int:  # fmt: skip
    """Check a method, tune it with the board's budget, run it on the board's tasks and print its place.

    The cost is printed first. After an interruption the same command continues. With --quick, or with other datasets,
    rounds or trials, the place is a preview: the published methods had the full budget. With --meta the rows are packed
    for a pull request, as by `fglbench submit`, into RESULTS/METHOD-submission.
    """
    from ..runner.system import as_interrupts
    from ..submission.submit import METADATA, metadata, read_fields
    from ..suites.select import CUSTOM
    from ..tune.session import Tuner, Wanted, studies
    from .new_and_check import check

    name, plugins = _method_of(file, method)
    results = results or Path("runs") / f"compete-{safe_name(name)}"
    options = given.options(device, jobs=jobs, threads=threads, timeout=timeout, memory_limit=memory_limit,
                            plugins=plugins)  # fmt: skip
    datasets = _datasets(given.names(dataset), quick)
    preview = quick or bool(dataset or trials or rounds or seeds)
    if meta and preview:
        raise UserError("--meta packs rows of the board: leave out --quick, -d, --trials, --rounds and --seeds")
    about = metadata(read_fields(meta) | {"method": name}) if meta else None
    if quick:
        trials, rounds, seeds = trials or QUICK_TRIALS, rounds or QUICK_ROUNDS, seeds or QUICK_SEEDS
    by_dataset = studies(Wanted(BOARD, (name,), datasets, trials, None, rounds))
    planned = [study for group in by_dataset.values() for study in group]
    scored = _cells(name, datasets, rounds, given.parse_seeds(seeds))
    if taken := {cell.seed for cell in scored} & {seed for study in planned for seed in study.seeds}:
        raise UserError(f"--seeds: the settings are chosen on seed {min(taken)}, so it cannot be scored; leave it out")
    with answer(json) as said, as_interrupts():
        said |= {"method": name, "studies": len(planned), "runs": len(scored)}
        said["core_hours"] = hours = _tell_cost(planned, scored, options)
        if dry_run:
            return 0
        ask(hours, yes)
        if check(name, plugin=[*plugins], real=False):
            raise UserError(f"{name} fails the contract (see above): fix it, then the same command resumes")
        tuner = Tuner(results, results / f"{safe_name(name)}.tuned.yaml", options)
        complete = _answer(name, scored, _rows(by_dataset, scored, tuner, CUSTOM if preview else BOARD), preview, said)
        said |= {"results": results, "settings": tuner.out}
        typer.echo(f"rows in {results}, settings in {tuner.out}")
        if not complete:
            return 1
        if about is None:
            typer.echo(
                "next: the same command without --quick, -d, --trials, --rounds and --seeds"
                if preview
                else "next, for one pull request with the method, its settings and rows: "
                f"fglbench submit {name} --results {results}"
            )
            return 0
        out = results / f"{safe_name(name)}-submission"
        if (out / METADATA).is_file():  # an earlier submission of this command
            shutil.rmtree(out)
        said["submission"] = packed(Store(results), about, out, (BOARD,), tuner.out)
    return int(not said["submission"]["valid"])


def _datasets(wanted: tuple[str, ...], quick: bool) -> tuple[str, ...]:
    """The wanted datasets, by default those of the board. UserError for one that the board lacks."""
    from ..compete import QUICK

    board = dict.fromkeys(task.dataset for task in published_tasks(BOARD))
    for name in wanted:
        if name not in board:
            raise did_you_mean(name, board, f"dataset of the board {BOARD}")
    return wanted or (QUICK if quick else tuple(board))


def _answer(name: str, scored: list[Cell], rows: list[Row], preview: bool, said: dict[str, Any]) -> bool:
    """Print the place and add it to the answer. Returns whether every run has a score; UserError if no dataset has
    all."""
    from ..compete import standing

    missing = _missing(scored, rows)
    place = standing([row for row in rows if row.dataset not in missing], name)
    listed = "; ".join(f"{dataset}: {why}" for dataset, why in missing.items())
    if place is None:
        raise UserError(f"no dataset of the board has a score of every run: {listed}")
    _tell_place(place, name, preview)
    if missing:
        typer.echo(f"  incomplete, so the board would list {name} without a rank: {listed}")
    against = {other: gap._asdict() for other, gap in place.against.items()}
    said |= {**asdict(place), "against": against, "preview": preview, "missing": missing}
    return not missing


def _missing(scored: list[Cell], rows: list[Row]) -> dict[str, str]:
    """Dataset -> how many of its runs have no score and why, for the datasets with such a run."""
    done = {(row.dataset, row.seed) for row in rows if row.status == "ok" and row.score is not None}
    without = Counter(cell.dataset.name for cell in scored if (cell.dataset.name, cell.seed) not in done)
    total = Counter(cell.dataset.name for cell in scored)
    why = {row.dataset: row.error for row in rows if row.error}
    return {
        dataset: f"{n} of {total[dataset]} runs without a score ({why.get(dataset, 'all trials of the tuning failed')})"
        for dataset, n in without.items()
    }


def _rows(by_dataset: Mapping[str, list[Study]], scored: list[Cell], tuner: Tuner, suite: str) -> list[Row]:
    """Tune, and run the cells of the board with the chosen settings. suite: of the rows."""
    from ..runner.job import Job, Store
    from ..suites.select import at_settings
    from ..suites.tuned import read_tuned
    from .progress import Display

    for group in by_dataset.values():
        tuner.run(group, complain, lambda: Display(plain_console(), "val"))
    cells = at_settings(scored, read_tuned(tuner.out))
    job = Job([(suite, cell) for cell in cells], Store(tuner.results), tuner.options)
    return job.carry_out(complain, Display(plain_console()))


def _method_of(file: Path, wanted: str | None) -> tuple[str, tuple[str, ...]]:
    """The method of a file, and the file as plug-in if it is not in the package. UserError unless it registers exactly
    one method, or the wanted one."""
    from ...methods import METHODS
    from ..store.provenance import source_of
    from .new_and_check import METHODS_FOLDER

    if not file.is_file():
        raise UserError(f"no file {str(file)!r}; fglbench new method NAME writes one")
    plugins = () if METHODS_FOLDER in file.resolve().parents else tuple(given.apart([str(file)]))
    path = Path(plugins[0]) if plugins else file.resolve()
    registered = [name for name in METHODS.names() if source_of(METHODS.cls(name))[0] == path]
    if wanted is not None and wanted not in registered:
        raise UserError(f"{file} registers {', '.join(registered) or 'no method'}, not {wanted!r:.60}")
    if wanted is None and len(registered) != 1:
        raise UserError(f"{file} registers {', '.join(registered) or 'no method'}; give one with -m" if registered else
                        f"{file} registers no method: @fglbench.register(NAME) on a class does")  # fmt: skip
    return wanted or registered[0], plugins


def _cells(name: str, datasets: tuple[str, ...], rounds: int | None, seeds: tuple[int, ...]) -> list[Cell]:
    from ..suites.select import Request, parted  # not `select`, which warns about settings that are not tuned
    from ..suites.tuned import with_rounds

    cells, _ = parted(Request(suites=(BOARD,), methods=(name,), datasets=datasets, seeds=seeds))
    return [with_rounds(cell, rounds) if rounds else cell for _, cell in cells]


def _tell_cost(each: list[Study], scored: list[Cell], options: Options) -> float:
    """Print the cost, with the seconds per round of FedAvg. Returns core-hours."""
    from ..runner.job import amount, published_costs, span_of
    from ..suites.cell import Choice

    def as_fedavg(cell: Cell) -> Cell:
        return cell.model_copy(update={"method": Choice(name=BASELINE)})

    tuning = published_costs().of((as_fedavg(cell), times) for study in each for cell, times in study.planned())
    runs = published_costs().of((as_fedavg(cell), 1) for cell in scored)
    hours = tuning.hours + runs.hours
    workers = options.workers(len(scored))
    typer.echo(
        f"{count_studies(each)} ({sum(study.size for study in each)} runs) and {len(scored)} scored runs: about "
        f"{amount(hours)}, {span_of(hours / workers)} on {workers} worker{'s' * (workers > 1)}, if a round costs "
        "what FedAvg's costs (by published timings)"
    )
    if missing := {*tuning.unknown, *runs.unknown}:
        typer.echo(f"not in this: {', '.join(sorted(missing))}, of which there is no timing")
    return hours


def _tell_place(place: Standing, name: str, preview: bool) -> None:
    from ...report.text import with_bounds

    typer.echo(f"\n{name}: {place}")
    for other in BASELINES:
        if (gap := place.against.get(other)) is not None:
            typer.echo(f"  against {other}: {with_bounds(gap, ' points')}")
    typer.echo(f"  datasets: {', '.join(place.datasets)}")
    if preview:
        typer.echo(
            "  This is a preview: the published methods had the board's full budget, and their scores are means over "
            "all its seeds. Run it without --quick."
        )
