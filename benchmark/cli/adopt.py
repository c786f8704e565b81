"""`fglbench adopt`: the maintainers' own run of a submitted method, whose rows rank."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from . import options as given
from .output import plain_console
from .run import carry_out, outline


def adopt(
    name: Annotated[str, typer.Argument(metavar="METHOD", help="a method with a submission, whose code is merged")],
    jobs: given.Jobs = None, threads: given.Threads = 1, timeout: given.Timeout = 3600,
    memory_limit: given.Memory = None, device: given.Device = "cpu",
    backend: given.Backends = "processes", address: given.Address = None,
    rerun: given.Rerun = None, dry_run: given.DryRun = False,
    results: given.Results = Path("results"), submitter: given.Submitter = "fglbench",
) -> int:  # fmt: skip
    """Run all suites that METHOD's submission has rows of, with the code that is here; these rows rank.

    The cost is said first. Cells that are done are not run again: the same command continues after an interruption. In
    the end the reported scores are shown beside ours.
    """
    from ...methods import METHODS
    from ...registry import UserError, did_you_mean
    from ..runner.cost_estimate import Costs, told
    from ..runner.gpus import resolved
    from ..runner.job import Job, Options, Request, Store
    from ..store.places import submission_folder
    from ..store.self_reported import submission_stores
    from ..suites.suitefile import suite_names

    reported = submission_folder(results, name)
    if not reported.is_dir():
        raise did_you_mean(name, [store.root.name for store in submission_stores(results)], "submission of method")
    METHODS.cls(name)  # merged, or UserError
    rows = Store(reported, columns=False).rows(latest_only=True)
    suites = tuple(sorted({row.suite for row in rows} & set(suite_names())))
    if not suites:
        raise UserError(f"no row under {str(reported)!r} is of a suite of the benchmark: {', '.join(suite_names())}")
    how = Options(jobs, threads, timeout, memory_limit, submitter, backend=backend, address=address)
    options = replace(how, device=resolved(device, backend))
    job = Job(Request(suites=suites, methods=(name,)), Store(results), options, given.names(rerun))
    todo, console = job.plan().todo, plain_console()
    console.print(f"{name}: {len(todo)} cells to run of {', '.join(suites)}", soft_wrap=True)
    if todo:
        cost = Costs([*job.store.rows(), *rows]).of((item.cell, 1) for item in todo)
        console.print(told(cost), soft_wrap=True)
    if dry_run:
        for line in outline(todo):
            console.print(line, soft_wrap=True)
        return 0
    code = carry_out(job, False)
    _tell_differences(results, name)
    return code


def _tell_differences(results: Path, name: str) -> None:
    """Print each reported score beside ours."""
    from ...report.text import plain
    from ..store.self_reported import self_reported

    for each in self_reported(results):
        if each.row.method == name and each.difference is not None and each.ours is not None:
            where = plain(f"{each.row.suite}: {each.row.dataset} {each.row.partition} x{each.row.clients}", 100)
            seeds = f"{each.our_seeds} seed{'s' * (each.our_seeds != 1)}"
            typer.echo(f"{where}: reported {each.theirs:.4f}, ours {each.ours:.4f} ({each.difference:+.4f}, {seeds})")
