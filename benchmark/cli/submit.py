"""`fglbench submit` packs a method's rows; `fglbench adopt` runs a submitted method again, and these rows rank."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as given
from .options import Json, Plugins, ReadResults, Suites, completes, found_folder, names
from .output import answer, plain_console
from .run import carry_out, outline
from .validate import as_data, default_base, tell

if TYPE_CHECKING:
    from ..store import Store
    from ..submission.submit import Metadata

Text = str | None
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="where to [METHOD-submission]")]
Packed = Annotated[
    str, typer.Argument(metavar="METHOD", help="the method whose rows are packed", autocompletion=completes("method"))
]
Meta = Annotated[Path | None, typer.Option("--meta", metavar="FILE", help="a YAML or JSON file with what follows")]


def submit(
    name: Packed,
    out: Out = None,
    suite: Suites = None,
    results: ReadResults = None,
    meta: Meta = None,
    tuned: given.TunedFile = None,
    paper: Annotated[Text, typer.Option(metavar="TEXT", help="citation or address; 'unpublished' if none")] = None,
    code: Annotated[Text, typer.Option(metavar="TEXT", help="address of the code that made the rows")] = None,
    licence: Annotated[Text, typer.Option(metavar="TEXT", help="of the code: MIT, Apache-2.0, ...")] = None,
    hardware: Annotated[Text, typer.Option(metavar="TEXT", help="processor, cores, memory")] = None,
    contact: Annotated[Text, typer.Option(metavar="TEXT", help="e-mail, address or @name")] = None,
    notes: Annotated[Text, typer.Option(metavar="TEXT", help="anything else")] = None,
    json: Json = False,
    plugin: Plugins = None,
) -> None:
    """Pack a method's rows, their curves and environments and the metadata; only what validates is written.

    Paper, code, licence, hardware and contact are required, by option or in the file; an option wins over the file.
    """
    from ..store import Store
    from ..submission import submit as pack

    typed = {"paper": paper, "code": code, "licence": licence, "hardware": hardware, "contact": contact, "notes": notes}
    fields = (pack.read_fields(meta) if meta else {}) | {key: value for key, value in typed.items() if value}
    about = pack.metadata(fields | {"method": name})
    with answer(json) as said:
        said |= packed(Store(found_folder(results)), about, out or Path(f"{name}-submission"), names(suite), tuned)
        if not said["valid"]:
            raise typer.Exit(1)


def packed(store: Store, about: Metadata, out: Path, suites: tuple[str, ...], tuned: Path | None) -> dict[str, Any]:
    """Write a submission of a method's rows if it validates, and say so; the verdict as data.

    tuned: the settings that its rows have, where these are not the suite's; by default those that `fglbench compete`
    left beside the rows. UserError as the functions of `submission.submit`.
    """
    from ..store.places import safe_name
    from ..submission import submit as pack
    from ..submission.validate import validate

    rows = pack.rows_to_submit(store, about.method, suites)
    left = store.root / f"{safe_name(about.method)}.tuned.yaml"
    settings = tuned or (left if left.is_file() else None)
    with suppress(typer.Exit), pack.placed(out) as folder:
        pack.write(store, rows, about, folder, settings)
        base = default_base()
        validation = validate(folder, str(out), base, submission=True)
        tell(validation.summary, base)
        if not validation.ok:
            raise typer.Exit(1)
    typer.echo(f"wrote {out}; next: fglbench validate {out}" if validation.ok else "nothing was written")
    return as_data(validation.summary)


def adopt(
    name: Annotated[str, typer.Argument(metavar="METHOD", help="a method with a submission, whose code is merged")],
    jobs: given.Jobs = None, threads: given.Threads = 1, timeout: given.Timeout = 3600,
    memory_limit: given.Memory = None, device: given.Device = "cpu",
    backend: given.Backends = "processes", address: given.Address = None,
    rerun: given.Rerun = None, dry_run: given.DryRun = False,
    results: given.Results = Path("results"), submitter: given.Submitter = "fglbench", json: Json = False,
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
    from ..submission.listing import SETTINGS
    from ..suites.suitefile import load_suite, suite_names

    reported = submission_folder(results, name)
    if not reported.is_dir():
        raise did_you_mean(name, [store.root.name for store in submission_stores(results)], "submission of method")
    METHODS.cls(name)  # merged, or UserError
    rows = Store(reported, columns=False).rows(latest_only=True)
    suites = tuple(sorted({row.suite for row in rows} & set(suite_names())))
    if not suites:
        raise UserError(f"no row under {str(reported)!r} is of a suite of the benchmark: {', '.join(suite_names())}")
    for suite in suites if (settings := reported / SETTINGS).is_file() else ():
        if not load_suite(suite).lists(name):
            raise UserError(
                f"{settings} has tuned settings: put them into {load_suite(suite).tuned_file}, and name the method in "
                f"the file of suite {suite!r} as {{name: {name}, params: tuned}}"
            )
    how = Options(jobs, threads, timeout, memory_limit, submitter, backend=backend, address=address)
    options = replace(how, device=resolved(device, backend))
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
    """Print each reported score beside ours; the same as data."""
    from ...report.text import plain
    from ..store.self_reported import self_reported

    differences = []
    for each in self_reported(results):
        if each.row.method == name and each.difference is not None and each.ours is not None:
            where = plain(f"{each.row.suite}: {each.row.dataset} {each.row.partition} x{each.row.clients}", 100)
            seeds = f"{each.our_seeds} seed{'s' * (each.our_seeds != 1)}"
            typer.echo(f"{where}: reported {each.theirs:.4f}, ours {each.ours:.4f} ({each.difference:+.4f}, {seeds})")
            differences.append({"task": where, "reported": each.theirs, "ours": each.ours, "our_seeds": each.our_seeds})
    return differences
