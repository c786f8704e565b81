"""`fglbench verify`: run a sample of rows again."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from ...registry import UserError
from .options import Plugins, names
from .validate import PathArgument

if TYPE_CHECKING:
    from ..store.schema import Row
    from ..submission.rerun import Comparison

THREADS = 1  # a worker, as the benchmark's own runs


def verify(
    path: PathArgument,
    sample: Annotated[int, typer.Option("--sample", min=1, metavar="N", help="how many rows")] = 3,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="of the draw [random, and shown]")] = None,
    method: Annotated[list[str] | None, typer.Option("-m", "--method", help="only rows of these")] = None,
    suite: Annotated[list[str] | None, typer.Option("-s", "--suite", help="only rows of these suites")] = None,
    dataset: Annotated[list[str] | None, typer.Option("-d", "--dataset", help="only rows on these")] = None,
    jobs: Annotated[int | None, typer.Option("-j", "--jobs", min=1, help="worker processes (one a core)")] = None,
    timeout: Annotated[float, typer.Option(min=0, help="seconds a cell may take; 0: any")] = 3600,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="DIR", help="maintainers: write the verdicts to DIR/verified.csv")
    ] = None,
    by: Annotated[str, typer.Option("--by", envvar="FGLBENCH_SUBMITTER", help="who verifies, for --record")] = "",
    plugin: Plugins = None,
) -> int:
    """Run a random sample of the rows of PATH again, with the code that is here, and compare. Exit code 1 if one fails.

    On the same type of machine figures must be equal to float32 rounding; elsewhere within 3 deviations over seeds.
    """
    from ...report.text import plain
    from ..plugins import absolute, load_plugins
    from ..store import Store, verified
    from ..store.provenance import environment, git_state, now
    from ..submission import checks, rerun as again

    plugins = absolute(plugin or ())
    load_plugins(plugins)
    sha, dirty = git_state()
    if record is not None:
        _may_record(record, by, dirty)
    only = {"method": names(method), "suite": names(suite), "dataset": names(dataset)}
    digest, about = environment(THREADS)
    with checks.opened(path) as (root, _):
        theirs = Store(root)
        rows = theirs.rows(latest_only=True)
        chosen = [row for row in rows if all(getattr(row, column) in some for column, some in only.items() if some)]
        if not chosen:
            raise UserError(f"no rows under {str(path)!r}" + (" for these options" if any(only.values()) else ""))
        seed = secrets.randbelow(10**6) if seed is None else seed  # not to be known beforehand
        drawn = again.sample(chosen, sample, seed)
        spread = again.deviations(rows)
        machines = {row.environment: theirs.environment(row.environment) for row in drawn}
    made = _run(drawn, jobs, timeout, plugins)
    found = []
    for row in drawn:
        exact = again.same_machine(about, machines[row.environment])
        ours = made.get((row.suite, row.key))
        found.append(again.compare(row, ours, spread.get(again.place(row), {}), exact=exact))
    typer.echo(_table(found))
    for each in found:
        for problem in each.problems:
            typer.echo(f"{each.theirs.key}: {plain(problem)}")
    whole = again.together(found, spread)
    sound = whole is None or abs(whole[0]) <= whole[1]
    if whole is not None:
        word = "within" if sound else "NOT within"
        typer.echo(f"mean difference of scores from another type of machine: {whole[0]:+.4f}, {word} {whole[1]:.4f}")
    typer.echo(f"{sum(each.passed for each in found)} of {len(found)} rows passed (drawn with --seed {seed})")
    if record is not None:
        stamp = {"date": now(), "git_sha": sha, "environment": digest, "by": by}
        verdicts = [again.verdict(each, whole=sound, **stamp) for each in found]
        verified.add(record, [each for each in verdicts if each is not None])
        Store(record).write_environment(digest, about)
        typer.echo(f"recorded in {record / verified.FILE}; next: fglbench report --results {record}")
    return 0 if sound and all(each.passed for each in found) else 1


def _may_record(results: Path, by: str, dirty: bool | None) -> None:
    if not results.is_dir():
        raise UserError(f"no results folder at {str(results)!r}; --record takes the one whose rows are verified")
    if not by:
        raise UserError("--record needs --by NAME (or FGLBENCH_SUBMITTER): who verifies")
    if dirty is not False:
        raise UserError("--record needs a clean checkout, so that the commit says what code ran; commit first")


Made = dict[tuple[str, str], "Row"]


def _run(drawn: Sequence[Row], jobs: int | None, timeout: float, plugins: tuple[str, ...]) -> Made:
    """The rows made now, by suite and key, in a results folder that is thrown away."""
    from ..runner.plan import make_plan, with_data
    from ..runner.supervisor import Options, run_plan
    from ..store import Store
    from ..suites.cell import Cell
    from .progress import Display

    with tempfile.TemporaryDirectory() as folder:
        store = Store(folder)
        plan, missing = with_data(make_plan([(row.suite, Cell.of(row)) for row in drawn], store))
        for dataset in missing:
            typer.echo(f"fglbench: {dataset}", err=True)
        if not plan.todo:
            raise UserError("nothing could be run again: none of the datasets could be loaded (see above)")
        options = Options(jobs=jobs, threads=THREADS, timeout=timeout or None, plugins=plugins)
        with Display(plan.todo, Console(highlight=False, markup=False, stderr=True)) as display:
            return run_plan(plan, store, options, display).rows


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
