"""`fglbench tune`: choose every method's settings on validation, each with the same budget."""

from __future__ import annotations

import shlex
from contextlib import closing
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ...registry import UserError
from ..store.places import SHIPPED, WRITTEN
from . import options as given
from .options import completes
from .output import answer, complain, plain_console, plain_table

if TYPE_CHECKING:
    from ..tune.session import Tuner, Wanted
    from ..tune.study import Study


Tuned = Annotated[
    str,
    typer.Option("-s", "--suite", metavar="SUITE", help="by name, or a YAML file", autocompletion=completes("suite")),
]


def tune(
    suite: Tuned = "",
    method: given.Methods = None, dataset: given.Datasets = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, help="settings per method and dataset [8, or 16 for large spaces]")
    ] = None,
    seeds: Annotated[
        str | None, typer.Option("--seeds", help="100 and up: one, a list (100,101) or a range [the suite's]")
    ] = None,
    rounds: Annotated[int | None, typer.Option("--rounds", min=1, help="of a full trial [the suite's]")] = None,
    jobs: given.Jobs = None, threads: given.Threads = 1, timeout: given.Timeout = 3600,
    data: given.Data = None, metric: given.Metric = None, set_: given.Settings = None,
    memory_limit: given.Memory = None, device: given.Device = "cpu",
    backend: given.Backends = "processes", address: given.Address = None,
    rerun: given.Rerun = None, dry_run: given.DryRun = False,
    results: Annotated[
        Path | None, typer.Option("--results", metavar="DIR", help="the results folder [results; with --data: runs]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="where settings go [where the suite looks for them]")
    ] = None,
    report: Annotated[bool, typer.Option("--report", help="run nothing; a page and a figure of what is tuned")] = False,
    submitter: given.Submitter = "",
    json: given.Json = False, plugin: given.PluginNames = None,
) -> int:  # fmt: skip
    """Choose the settings of a suite's methods on validation, the same number of trials and rounds for each.

    Each trial is a row in RESULTS/tuning; once interrupted, the same command continues. What is chosen goes to the file
    that `params: tuned` of the suite reads. Exit code 1 if some method has none in the end.
    """
    from ...datasets.own_data import metric_setting
    from ..runner.gpus import resolved
    from ..runner.job import Options
    from ..suites.suitefile import load_suite

    if find_spec("optuna") is None:
        raise UserError("tune needs Optuna: pip install 'fglbench[tune]'")
    from ..tune.session import Tuner, Wanted, own_settings

    if not suite and data is None:
        raise UserError("say what to tune: -s SUITE, or --data FOLDER for a graph of your own")
    suite = suite or "leaderboard"
    numbers = None if seeds is None else given.parse_seeds(f"{seeds}," if seeds.isdigit() else seeds)
    plugins = given.apart(plugin)
    data = given.own_dataset(data, method=given.names(method))
    results = results or Path(SHIPPED if data is None else WRITTEN)
    place = out or (load_suite(suite).tuned_file if data is None else own_settings(results, data, metric))
    if report:
        with answer(json) as said:
            return _report(results, suite, place, said)
    where = backend, address, resolved(device, backend)
    options = Options(jobs, threads, timeout, memory_limit, submitter, plugins, False, *where)
    settings = (*(set_ or ()), *metric_setting(metric, data))
    wanted = Wanted(suite, given.names(method), given.names(dataset), trials, numbers, rounds, data, settings)
    with answer(json) as said:
        return _carry_out(wanted, Tuner(results, place, options, given.names(rerun)), dry_run, said)


def _carry_out(wanted: Wanted, tuner: Tuner, dry_run: bool, said: dict[str, Any]) -> int:
    """Plan and tune. said: gets the studies, or what they chose. Returns the exit code."""
    from ..runner.backend import open_backend
    from ..runner.supervisor import check_options
    from ..runner.system import as_interrupts
    from ..suites.tuned import check_writable
    from ..tune.session import studies

    check_options(tuner.options)
    by_dataset = studies(wanted)
    every = [study for group in by_dataset.values() for study in group]
    said["studies"] = _tell_cost(every)
    if dry_run:
        _tell_hours(tuner, wanted.suite, every)
        return 0
    check_writable(tuner.out)
    # Before anything runs, and until all has: rungs share a cluster, and an unavailable one is one line.
    with as_interrupts(), closing(open_backend(tuner.options, tuner.store)):
        said["chosen"] = [chosen for group in by_dataset.values() for chosen in _tuned(tuner, group)]
    said |= {"settings": tuner.out, "next": _next(wanted, tuner)}
    typer.echo(f"{len(said['chosen'])} of {len(every)} settings in {tuner.out}; next: {said['next']}")
    return int(len(said["chosen"]) < len(every))


def _next(wanted: Wanted, tuner: Tuner) -> str:
    """The command that runs what was chosen."""
    if wanted.own_dataset is None:
        return f"fglbench run -s {wanted.suite}"
    from ...datasets.own_data import folder_of

    metric = "".join(
        f" --metric {text.partition('=')[2]}" for text in wanted.settings if text.startswith("dataset.metric=")
    )
    where = [shlex.quote(str(path)) for path in (folder_of(wanted.own_dataset), tuner.out, tuner.results)]
    return f"fglbench run --data {where[0]}{metric} --tuned {where[1]} --results {where[2]}"


def _report(results: Path, suite: str, settings: Path, said: dict[str, Any]) -> int:
    from ..tune.account import write

    said["page"] = write(results, suite, settings)
    typer.echo(f"wrote {said['page']}")
    return 0


def _tuned(tuner: Tuner, group: list[Study]) -> list[dict[str, Any]]:
    """The settings that studies of a dataset chose. What cannot be loaded is complained of; the others go on."""
    from .progress import Display

    try:
        chosen = tuner.run(group, complain, lambda: Display(plain_console(), "val"))
    except UserError as error:
        complain(str(error))
        return []
    for choice in chosen:
        default = "failed" if choice.default is None else f"{choice.default:.4f}"
        typer.echo(
            f"{choice.study}: trial {choice.trial}, validation {choice.val:.4f} (the suite's own {default}): {choice}"
        )
    return [choice.model_dump() for choice in chosen]


def _tell_cost(studies: list[Study]) -> list[dict[str, Any]]:
    """Print what each study runs: settings, trials, runs, rounds; the same as data."""
    table = plain_table(
        "method", "dataset", "own settings", "trials per rung", "rounds per rung", "runs", "rounds", numeric=True
    )
    for study in studies:
        sizes, rungs = (" ".join(map(str, numbers)) for numbers in (study.sizes, study.rungs))
        cell = study.cell
        table.add_row(
            cell.method.name,
            cell.dataset.name,
            str(study.design.own_settings),
            sizes,
            rungs,
            str(study.size),
            str(study.rounds),
        )
    plain_console().print(table)
    cells, rounds = (sum(column) for column in zip(*((study.size, study.rounds) for study in studies), strict=True))
    typer.echo(f"{len(studies)} studies: {cells} runs, {rounds} rounds")
    return [
        {"study": study.id, "settings": study.design.own_settings, "trials_per_rung": study.sizes,
         "rounds_per_rung": study.rungs, "runs": study.size, "rounds": study.rounds} for study in studies
    ]  # fmt: skip


def _tell_hours(tuner: Tuner, name: str, studies: list[Study]) -> None:
    """What they cost, what is left of it and the suite at what they choose, by the rows here and of earlier studies."""
    from ..runner.cost_estimate import Costs, told
    from ..runner.job import Store
    from ..suites.suitefile import load_suite

    if rows := [*Store(tuner.results).rows(), *tuner.store.rows()]:
        costs, suite = Costs(rows), load_suite(name).at_own_settings()
        methods, datasets = ({getattr(study.cell, kind).name for study in studies} for kind in ("method", "dataset"))
        scored = [cell for cell in suite.cells() if cell.method.name in methods and cell.dataset.name in datasets]
        typer.echo(told(costs.of(planned for study in studies for planned in study.planned())))
        left = tuner.left(studies)
        cells = sum(number for runs in left for _, number in runs)
        typer.echo(f"left: {len(left)} studies, {cells} runs: {told(costs.of(chain.from_iterable(left)))}")
        typer.echo(f"{len(scored)} runs of the suite at what is chosen: {told(costs.of((cell, 1) for cell in scored))}")
