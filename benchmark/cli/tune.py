"""`fglbench tune`: choose settings on validation, with equal budgets. `fglbench recommend`: choose a method too."""

from __future__ import annotations

import shlex
from collections.abc import Sequence, Sized
from contextlib import closing
from dataclasses import asdict
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Option

from ...registry import UserError
from ..store.row_file import SHIPPED, WRITTEN
from . import common as given
from .common import answer, complain, plain_console, plain_table, print_json

if TYPE_CHECKING:
    from ..recommend.evidence import Evidence, Facts
    from ..tune.session import Study, Tuner, Wanted


DEFAULT = "leaderboard"


def tune(
    suite: Annotated[
        str, given.naming("suite", "-s", "--suite", metavar="SUITE", help="a suite by name, or a YAML file")
    ] = "",
    method: given.Methods = None, dataset: given.Datasets = None,
    trials: Annotated[
        int | None, Option("--trials", min=1, help="settings per method and dataset [16]")
    ] = None,
    seeds: Annotated[
        str | None, Option("--seeds", help="from 100 on: one, a list (100,101) or a range [the suite's]")
    ] = None,
    rounds: Annotated[int | None, Option("--rounds", min=1, help="rounds of a full trial [the suite's]")] = None,
    jobs: given.Jobs = None, threads: given.Threads = 1, timeout: given.Timeout = 3600,
    data: given.Data = None, metric: given.Metric = None, set_: given.Settings = None,
    memory_limit: given.Memory = None, device: given.Device = "cpu",
    backend: given.Backends = "processes", address: given.Address = None,
    rerun: given.Rerun = None, dry_run: given.DryRun = False,
    results: Annotated[
        Path | None, Option("--results", metavar="DIR", help="the results folder [results; with --data: runs]")
    ] = None,
    out: Annotated[
        Path | None, Option("--out", metavar="FILE", help="file for the settings [the one that the suite reads]")
    ] = None,
    report: Annotated[bool, Option("--report", help="run nothing; write a page and a figure")] = False,
    submitter: given.Submitter = "",
    json: given.Json = False, plugin: given.PluginNames = None,
) -> int:  # fmt: skip
    """Choose settings of a suite's methods by validation, with equal trials and rounds for all.

    Each trial is a row in RESULTS/tuning. After an interruption the same command continues. The chosen settings go to
    the file that `params: tuned` of the suite reads. Exit code 1 if a method has no setting at the end.
    """
    from ...datasets.own_data import metric_setting
    from ..suites.suite import load_suite

    if find_spec("optuna") is None:
        raise UserError("tune needs Optuna: pip install 'fglbench[tune]'")
    from ..tune.session import Tuner, Wanted, own_settings

    if not suite and data is None:
        raise UserError("say what to tune: -s SUITE, or --data FOLDER for a graph of your own")
    suite = suite or DEFAULT
    numbers = None if seeds is None else given.parse_seeds(f"{seeds}," if seeds.isdigit() else seeds)
    plugins = given.apart(plugin)
    data = given.own_dataset(data, method=given.names(method))
    results = results or Path(SHIPPED if data is None else WRITTEN)
    place = out or (load_suite(suite).tuned_file if data is None else own_settings(results, data, metric))
    if report:
        from ..tune.account import write

        with answer(json) as said:
            said["page"] = write(results, suite, place)
            typer.echo(f"wrote {said['page']}")
        return 0
    options = given.options(device, backend, address=address, jobs=jobs, threads=threads, timeout=timeout,
                            memory_limit=memory_limit, submitter=submitter, plugins=plugins)  # fmt: skip
    settings = (*(set_ or ()), *metric_setting(metric, data))
    wanted = Wanted(suite, given.names(method), given.names(dataset), trials, numbers, rounds, data, settings)
    with answer(json) as said:
        return _carry_out(wanted, Tuner(results, place, options, given.names(rerun)), dry_run, said)


def _carry_out(wanted: Wanted, tuner: Tuner, dry_run: bool, said: dict[str, Any]) -> int:
    """Plan and tune. said: gets the studies, or what they chose. Returns the exit code."""
    from ..runner.supervisor import open_backend
    from ..runner.system import as_interrupts
    from ..suites.tuned import check_writable
    from ..tune.session import studies

    tuner.options.check()
    by_dataset = studies(wanted)
    planned = [study for group in by_dataset.values() for study in group]
    said["studies"] = _tell_cost(planned)
    if dry_run:
        _tell_hours(tuner, wanted.suite, planned)
        return 0
    check_writable(tuner.out)
    # The backend is opened once for all rungs; if it is unavailable, the error is one line.
    with as_interrupts(), closing(open_backend(tuner.options, tuner.store)):
        said["chosen"] = [chosen for group in by_dataset.values() for chosen in _tuned(tuner, group)]
    said |= {"settings": tuner.out} | ({"next": _next(wanted, tuner)} if said["chosen"] else {})
    fix = f"next: {said['next']}" if said["chosen"] else "the same command resumes"
    typer.echo(f"{len(said['chosen'])} of {len(planned)} settings in {tuner.out}; {fix}")
    return int(len(said["chosen"]) < len(planned))


def _next(wanted: Wanted, tuner: Tuner) -> str:
    """The command that runs what was tuned with the chosen settings."""
    from ...datasets.own_data import folder_of
    from ..suites.suite import load_suite

    own, suite = wanted.own_dataset, load_suite(wanted.suite)
    words = ["-s", wanted.suite] if own is None or wanted.suite != DEFAULT else []
    words += [] if own is None else ["--data", str(folder_of(own))]
    words += ["-m", ",".join(wanted.methods)] if wanted.methods else []
    words += ["-d", ",".join(wanted.datasets)] if wanted.datasets else []
    for text in wanted.settings:
        metric = text.removeprefix("dataset.metric=")
        words += ["--set", text] if metric == text else ["--metric", metric]
    theirs = tuner.out == suite.tuned_file and suite.tuned_methods  # which the suite reads for its tuned methods
    if own is not None or not theirs or not {*wanted.methods} <= theirs:
        words += ["--tuned", str(tuner.out)]
    words += [] if own is None and tuner.results == Path(SHIPPED) else ["--results", str(tuner.results)]
    words += [word for plugin in tuner.options.plugins for word in ("--plugin", plugin)]
    return shlex.join(["fglbench", "run", *words])


def _tuned(tuner: Tuner, group: list[Study]) -> list[dict[str, Any]]:
    """The settings that the studies of a dataset chose. If it cannot be loaded, the error is printed."""
    from .progress import Display

    try:
        chosen = tuner.run(group, complain, lambda: Display(plain_console(), "val"))
    except UserError as error:
        complain(str(error))
        return []
    for choice in chosen:
        default = "failed" if choice.default is None else f"{abs(choice.default):.4f}"
        reached = f"validation {abs(choice.val):.4f} (the suite's own {default})"
        typer.echo(f"{choice.study}: trial {choice.trial}, {reached}: {choice}")
    return [choice.model_dump() for choice in chosen]


def _tell_cost(studies: list[Study]) -> list[dict[str, Any]]:
    """Print settings, trials, runs and rounds of each study. Returns the same as data."""
    table = plain_table(
        "method", "dataset", "own settings", "trials per rung", "rounds per rung", "runs", "rounds", numeric=True
    )
    for study in studies:
        rungs = (" ".join(map(str, numbers)) for numbers in (study.sizes, study.rungs))
        numbers = map(str, (study.design.own_settings, *rungs, study.size, study.rounds))
        table.add_row(study.cell.method.name, study.cell.dataset.name, *numbers)
    plain_console().print(table)
    cells, rounds = sum(study.size for study in studies), sum(study.rounds for study in studies)
    typer.echo(f"{count_studies(studies)}: {cells} runs, {rounds} rounds")
    return [
        {"study": study.id, "settings": study.design.own_settings, "trials_per_rung": study.sizes,
         "rounds_per_rung": study.rungs, "runs": study.size, "rounds": study.rounds} for study in studies
    ]  # fmt: skip


def count_studies(studies: Sized) -> str:
    return f"{len(studies)} stud{'y' if len(studies) == 1 else 'ies'}"


def _tell_hours(tuner: Tuner, name: str, studies: list[Study]) -> None:
    """Print the estimated cost of the studies, of what is left, and of the suite with the chosen settings."""
    from ..runner.job import Costs, Store, told
    from ..suites.suite import load_suite

    if rows := [*Store(tuner.results).rows(), *tuner.store.rows()]:
        costs, suite = Costs(rows), load_suite(name).at_own_settings()
        methods, datasets = ({getattr(study.cell, kind).name for study in studies} for kind in ("method", "dataset"))
        scored = [cell for cell in suite.cells() if cell.method.name in methods and cell.dataset.name in datasets]
        typer.echo(told(costs.of(planned for study in studies for planned in study.planned())))
        left = tuner.left(studies)
        cells = sum(number for runs in left for _, number in runs)
        typer.echo(f"left: {count_studies(left)}, {cells} runs: {told(costs.of(chain.from_iterable(left)))}")
        if scored:
            cost = told(costs.of((cell, 1) for cell in scored))
            typer.echo(f"{len(scored)} runs of the suite with the chosen settings: {cost}")


def _end_dry_run(facts: Facts, evidence: Evidence, json: bool) -> None:
    if json:
        print_json({"properties": facts.properties, "evidence": evidence.as_data()})


METHODS = ("local", "fedavg", "ditto")  # always tried: a model per site, one shared model, and a compromise
FOLDER = "runs/recommend-{}"


def _of_clients(settings: Sequence[str] | None) -> tuple[str, ...]:
    """The values of `--set`. UserError for one that is of neither the split nor the partition."""
    from ..suites.request import parse_setting

    for text in settings or ():
        if parse_setting(text).section not in ("split", "partition"):
            raise UserError(f"--set {text!r:.60}: only split.NAME=VALUE and partition.NAME=VALUE; the rest is tuned")
    return tuple(settings or ())


def recommend(
    data: given.Data = None,
    metric: given.Metric = None,
    budget: Annotated[str, Option("--budget", metavar="TIME", help="time limit: 90s, 10m, 1.5h")] = "10m",
    method: Annotated[
        given.Names, Option("-m", "--method", help="to try besides local, fedavg, ditto [from the leaderboard]")
    ] = None,
    partition: given.Partitions = None, clients: given.Clients = None, split: given.Splits = None,
    setting: Annotated[
        given.Names, Option("--set", metavar="KEY=VALUE", help="a parameter of the split or partition: split.train=0.6")
    ] = None,
    seeds: Annotated[int | None, Option("--seeds", min=3, help="runs of each method [as many as fit]")] = None,
    jobs: given.Jobs = None, threads: given.Threads = 1, memory_limit: given.Memory = None,
    device: given.Device = "cpu",
    results: Annotated[
        Path | None, Option("--results", metavar="DIR", help="the results folder [runs/recommend-NAME]")
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="only properties and the leaderboard's advice")] = False,
    json: given.Json = False, plugin: given.PluginNames = None,
) -> None:  # fmt: skip
    """Recommend a method for your own graph: tune a few methods equally on your clients.

    Prints the properties of the data, results of the leaderboard on similar data, and the results of your runs. The
    answer is also written to RECOMMENDATION.md in the results folder. After an interruption the same command continues.
    """
    named = {"method": given.names(method), "split": given.names(split), "partition": given.names(partition)}
    plugins = given.apart(plugin)
    given.check_names(named)  # after the imports below nothing is checked
    from ..recommend.answer import answer_lines, as_data, results_of, table_lines
    from ..recommend.evidence import evidence_for, facts_of
    from ..recommend.session import Asked, carry_out, plan_of, seconds_of
    from ..runner.system import as_interrupts
    from .progress import Display

    if data is None:
        raise UserError("give your graph: --data FOLDER (docs/own-data.md)")
    cut = named["split"], named["partition"], given.client_numbers(clients), _of_clients(setting)
    seconds = seconds_of(budget)
    data = given.own_dataset(data)
    assert data is not None
    say = (lambda line: typer.echo(line, err=True)) if json else typer.echo
    metric, results = metric or "accuracy", results or Path(FOLDER.format(data.partition(":")[2]))
    options = given.options(device, jobs=jobs, threads=threads, timeout=seconds, memory_limit=memory_limit,
                            plugins=plugins)  # fmt: skip
    first = Asked(data, metric, seconds, METHODS, results, options, *cut, seeds)
    facts = facts_of(next(iter(first.cells().values())))
    evidence = evidence_for(facts.properties, metric)
    told = [*facts.lines(), "", *evidence.lines()]
    say("\n".join(told))
    if dry_run:
        return _end_dry_run(facts, evidence, json)
    likely = named["method"] or tuple(name for name in evidence.candidates() if name not in METHODS)
    asked = Asked(data, metric, first.budget, (*METHODS, *likely), results, options, *cut, seeds)
    with as_interrupts():
        cells = asked.cells()
        plan = plan_of(asked, cells, complain)
        tried = (
            f"{len(plan.methods)} methods ({', '.join(plan.methods)}), {plan.trials} settings each, "
            f"{plan.rounds} rounds, {plan.seeds} seeds: about {plan.seconds / 60:.1f} min"
        )
        say(f"\nTrying on your own clients: {tried}")
        rows = carry_out(asked, plan, cells, complain, lambda: Display(plain_console(stderr=True), "val"))
    by_method = results_of(rows, asked.store)
    table, answer = table_lines(by_method, metric, len(facts.sites)), answer_lines(by_method, metric, facts.sites)
    page = ["# Recommendation", "", *told, "", f"Tried on your own clients: {tried}.", "", *table, "", *answer]
    paragraphs = [page[0], "", *(f"    {line}" if line else "" for line in page[2:])]  # the table as on the terminal
    (results / "RECOMMENDATION.md").write_text("\n".join(paragraphs) + "\n", encoding="utf-8")
    if json:
        print_json({"properties": facts.properties, "plan": asdict(plan), **as_data(by_method, facts.sites)})
        return
    for line in ["", *table, "", *answer, "", f"written to {results / 'RECOMMENDATION.md'}; tables and figures: "
                 f"fglbench report --results {results}"]:  # fmt: skip
        say(line)
