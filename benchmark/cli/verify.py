"""`fglbench verify`: run a sample of rows again."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as given
from .completion import completes
from .options import Names, names
from .output import complain, plain_console
from .validate import PathArgument

if TYPE_CHECKING:
    from ..store.schema import Row
    from ..submission.bars import Comparison
    from ..submission.rerun import Verification

RESULTS = Path("results")
Record = Annotated[
    Path | None, typer.Option("--record", metavar="DIR", help="maintainers: write the verdicts to DIR/verified.csv")
]
OfMethods = Annotated[
    Names, typer.Option("-m", "--method", help="only rows of these", autocompletion=completes("method"))
]
OnDatasets = Annotated[
    Names, typer.Option("-d", "--dataset", help="only rows on these", autocompletion=completes("dataset"))
]
EQUAL = 1e-6  # rounding of float32 in a mean over clients


def verify(
    path: PathArgument,
    sample: Annotated[int, typer.Option("--sample", min=1, metavar="N", help="how many cells, all seeds of each")] = 3,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="of the draw [from the commit of PATH]")] = None,
    method: OfMethods = None, suite: given.Suites = None, dataset: OnDatasets = None,
    jobs: given.Jobs = None, timeout: given.Timeout = 3600, device: given.Device = "cpu",
    backend: given.Backends = "processes", address: given.Address = None,
    record: Record = None,
    by: Annotated[str, typer.Option("--by", envvar="FGLBENCH_SUBMITTER", help="who verifies, for --record")] = "",
    base: Annotated[Path, typer.Option("--base", metavar="DIR", help="results with the other methods' rows")] = RESULTS,
    contract: Annotated[bool, typer.Option("--contract/--no-contract", help="check the methods as well")] = True,
    plugin: given.Plugins = None,
) -> int:  # fmt: skip
    """Run a random sample of the rows of PATH again, with the code that is here, and compare. Exit code 1 if one fails.

    All seeds of a drawn cell are run, cells that lack a score first. A figure may lie above ours by no more than seeds
    do: ours and those of other methods, never those of PATH. Their methods must hold to the contract as well.
    """
    from ..runner.gpus import resolved
    from ..runner.job import Options, Store
    from ..store import provenance, verified
    from ..submission import checks, rerun
    from .progress import Display

    how = Options(jobs=jobs, timeout=timeout, plugins=tuple(plugin or ()), backend=backend, address=address)
    options = replace(how, device=resolved(device, backend))
    if record is not None:
        rerun.may_record(record, by, provenance.git_state()[1])
    only = {"method": names(method), "suite": names(suite), "dataset": names(dataset)}
    number, origin = rerun.seed_of(path) if seed is None else (seed, "the command")
    others = Store(base) if base.is_dir() else None
    with checks.opened(path) as (root, _):
        drawn = rerun.draw(Store(root), only, sample, number, str(path))
        run = rerun.run_again(Store(root), drawn, options, complain, Display(plain_console(stderr=True)), others)
    _tell(run, f"drawn with --seed {number}, from {origin}")
    if record is not None:
        rerun.record(run, record, by)
        typer.echo(f"recorded in {record / verified.FILE}; next: fglbench report --results {record}")
    broken = [each for each in _methods(drawn) if contract and not _holds(*each)]
    return 0 if run.passed and not broken else 1


def _methods(rows: Sequence[Row]) -> list[tuple[str, dict[str, Any], set[str]]]:
    """The methods of rows, each with its parameters, and the tasks that it has them for."""
    tasks = defaultdict[tuple[str, str], set[str]](set)
    for row in rows:
        tasks[row.method, row.method_params].add(row.task)
    return [(name, json.loads(params), own) for (name, params), own in sorted(tasks.items())]


def _holds(name: str, params: dict[str, Any], tasks: set[str]) -> bool:
    """Whether a method holds to the contract, on real data as well; a line for each check that it fails."""
    from ..contract import method_checks

    wrong = method_checks.check_method(name, params, real=True, tasks=tasks)
    for check, reason in wrong.items():
        typer.echo(f"{name}: {check.replace('_', ' ')}: {reason}")
    typer.echo(f"{name} {'does NOT hold' if wrong else 'holds'} to the contract")
    return not wrong


def _tell(run: Verification, how: str) -> None:
    """All rows, what is wrong with each, and with them together."""
    from ...report.text import plain

    typer.echo(_table(run.found))
    for each in run.found:
        for problem in each.problems:
            typer.echo(f"{each.theirs.key}: {plain(problem)}")
        for note in each.notes:
            typer.echo(f"{each.theirs.key}: note: {plain(note)}")
    if run.whole is not None:
        mean, bar = run.whole
        word = "within" if run.sound else "NOT within"
        typer.echo(f"mean of ours - theirs: {mean:+.4f}, {word} {-bar:.4f}")
    equal = sum(abs(each.difference("score") or 0) <= EQUAL for each in run.found if each.ours)
    typer.echo(f"{equal} of {len(run.found)} scores are equal to rounding, which tells of the same type of machine")
    typer.echo(f"{sum(each.passed for each in run.found)} of {len(run.found)} rows passed ({how})")


def _table(found: Sequence[Comparison]) -> str:
    """theirs, ours and the difference of every row, one line a row."""
    from tabulate import tabulate

    from ...report.text import plain

    rows = []
    for each in found:
        row, ours = each.theirs, each.ours
        rows.append([
            row.key,
            plain(f"{row.suite}: {row.method}, {row.dataset}, seed {row.seed}", 60),
            _figure(row.score), _figure(ours.score if ours else None), _figure(each.difference("score"), "+.6f"),
            _figure(each.difference("val"), "+.6f"), _figure(each.difference("macro_f1"), "+.6f"),
            f"{row.best_round or '-'}, {(ours.best_round if ours else None) or '-'}",
            f"{each.bar:.2g}", "passed" if each.passed else "FAILED",
        ])  # fmt: skip
    headers = ["key", "row", "theirs", "ours", "diff", "val diff", "F1 diff", "best round", "bar", "verdict"]
    return tabulate(rows, headers, tablefmt="plain", disable_numparse=True)


def _figure(value: float | None, form: str = ".6f") -> str:
    return "-" if value is None else format(value, form)
