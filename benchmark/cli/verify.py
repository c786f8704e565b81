"""`fglbench verify`: run a sample of rows again."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from . import options as given
from .options import Names, names
from .output import complain, plain_console
from .validate import PathArgument

if TYPE_CHECKING:
    from ..submission.rerun import Comparison, Verification


def verify(
    path: PathArgument,
    sample: Annotated[int, typer.Option("--sample", min=1, metavar="N", help="how many rows")] = 3,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="of the draw [random, and shown]")] = None,
    method: Annotated[Names, typer.Option("-m", "--method", help="only rows of these")] = None,
    suite: given.Suites = None,
    dataset: Annotated[Names, typer.Option("-d", "--dataset", help="only rows on these")] = None,
    jobs: given.Jobs = None,
    timeout: given.Timeout = 3600,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="DIR", help="maintainers: write the verdicts to DIR/verified.csv")
    ] = None,
    by: Annotated[str, typer.Option("--by", envvar="FGLBENCH_SUBMITTER", help="who verifies, for --record")] = "",
    plugin: given.Plugins = None,
) -> int:
    """Run a random sample of the rows of PATH again, with the code that is here, and compare. Exit code 1 if one fails.

    On the same type of machine figures must be equal to float32 rounding; elsewhere within 3 deviations over seeds.
    """
    from ..runner.job import Options, Store
    from ..store import provenance, verified
    from ..submission import checks, rerun
    from .progress import Display

    options = Options(jobs=jobs, timeout=timeout, plugins=tuple(plugin or ()))
    if record is not None:
        rerun.may_record(record, by, provenance.git_state()[1])
    only = {"method": names(method), "suite": names(suite), "dataset": names(dataset)}
    seed = secrets.randbelow(10**6) if seed is None else seed  # not to be known beforehand
    with checks.opened(path) as (root, _):
        drawn = rerun.draw(Store(root), only, sample, seed, str(path))
        run = rerun.run_again(Store(root), drawn, options, complain, Display(plain_console(stderr=True)))
    _tell(run, seed)
    if record is not None:
        rerun.record(run, record, by)
        typer.echo(f"recorded in {record / verified.FILE}; next: fglbench report --results {record}")
    return 0 if run.passed else 1


def _tell(run: Verification, seed: int) -> None:
    """All rows, what is wrong with each, and with them together."""
    from ...report.text import plain

    typer.echo(_table(run.found))
    for each in run.found:
        for problem in each.problems:
            typer.echo(f"{each.theirs.key}: {plain(problem)}")
    if run.whole is not None:
        mean, bar = run.whole
        word = "within" if run.sound else "NOT within"
        typer.echo(f"mean difference of scores from another type of machine: {mean:+.4f}, {word} {bar:.4f}")
    typer.echo(f"{sum(each.passed for each in run.found)} of {len(run.found)} rows passed (drawn with --seed {seed})")


def _table(found: Sequence[Comparison]) -> str:
    """theirs, ours and the difference of every row, one line a row."""
    from tabulate import tabulate

    from ...report.text import plain

    rows = []
    for each in found:
        row, ours = each.theirs, each.ours
        bytes_ = [None if one is None else (one.upload_bytes or 0) + (one.download_bytes or 0) for one in (row, ours)]
        rows.append([
            row.key,
            plain(f"{row.suite}: {row.method}, {row.dataset}, seed {row.seed}", 60),
            _figure(row.score), _figure(ours.score if ours else None), _figure(each.difference("score"), "+.6f"),
            _figure(each.difference("val"), "+.6f"), _figure(each.difference("macro_f1"), "+.6f"),
            f"{row.best_round}, {ours.best_round if ours else '-'}",
            "equal" if bytes_[0] == bytes_[1] else f"{bytes_[0]}, {bytes_[1] or '-'}",
            f"{each.bar:.2g}", "passed" if each.passed else "FAILED",
        ])  # fmt: skip
    headers = ["key", "row", "theirs", "ours", "diff", "val diff", "F1 diff", "best round", "bytes", "bar", "verdict"]
    return tabulate(rows, headers, tablefmt="plain", disable_numparse=True)


def _figure(value: float | None, form: str = ".6f") -> str:
    return "-" if value is None else format(value, form)
