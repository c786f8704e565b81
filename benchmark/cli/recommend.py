"""`fglbench recommend`: which method for a graph of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ...registry import UserError
from . import options as given
from .output import complain, plain_console, print_json

METHODS = ("local", "fedavg", "ditto")  # always tried: each site alone, one model, and what is between the two
FOLDER = "runs/recommend-{}"


def recommend(
    data: given.Data = None,
    metric: given.Metric = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="how long it takes: 90s, 10m, 1.5h")] = "10m",
    method: Annotated[
        given.Names, typer.Option("-m", "--method", help="beside local, fedavg and ditto [by the leaderboard]")
    ] = None,
    partition: given.Partitions = None, clients: given.Clients = None, split: given.Splits = None,
    seeds: Annotated[int | None, typer.Option("--seeds", min=3, help="runs of each method [as many as fit]")] = None,
    jobs: given.Jobs = None, threads: given.Threads = 1, memory_limit: given.Memory = None,
    device: given.Device = "cpu",
    results: Annotated[
        Path | None, typer.Option("--results", metavar="DIR", help="the results folder [runs/recommend-NAME]")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="only the properties and the leaderboard's part")] = False,
    json: given.Json = False, plugin: given.PluginNames = None,
) -> None:  # fmt: skip
    """Recommend a method for a graph of your own, by a small equal tuning on your own clients.

    Shows the properties of the data, what the leaderboard says about data like that, and what was measured here. The
    answer is also written to RECOMMENDATION.md in the results folder. If it was interrupted, the same command resumes.
    """
    from ..recommend.answer import answer_lines, as_data, results_of, table_lines
    from ..recommend.evidence import evidence_for, facts_of
    from ..recommend.session import Asked, carry_out, plan_of, seconds_of
    from ..runner.gpus import resolved
    from ..runner.job import Options
    from ..runner.system import as_interrupts
    from .progress import Display

    if data is None:
        raise UserError("give your graph: --data FOLDER (docs/own-data.md)")
    cut, seconds = (given.names(split), given.names(partition), given.client_numbers(clients)), seconds_of(budget)
    plugins = given.apart(plugin)
    data = given.own_dataset(data, method=given.names(method), split=cut[0], partition=cut[1])
    assert data is not None
    metric = metric or "accuracy"
    say = (lambda line: typer.echo(line, err=True)) if json else typer.echo
    results = results or Path(FOLDER.format(data.partition(":")[2]))
    options = Options(jobs, threads, seconds, memory_limit, plugins=plugins,
                      device=resolved(device, "processes"))  # fmt: skip
    first = Asked(data, metric, seconds, METHODS, results, options, *cut, seeds)
    facts = facts_of(next(iter(first.cells().values())))
    evidence = evidence_for(facts.properties, metric)
    told = [*facts.lines(), "", *evidence.lines()]
    for line in told:
        say(line)
    if dry_run:
        return
    likely = given.names(method) or tuple(name for name in evidence.candidates() if name not in METHODS)
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
        print_json({"properties": facts.properties, "plan": plan.as_data(), **as_data(by_method, facts.sites)})
        return
    for line in ["", *table, "", *answer, "", f"written to {results / 'RECOMMENDATION.md'}; tables and figures: "
                 f"fglbench report --results {results}"]:  # fmt: skip
        say(line)
