"""`fglbench verify`: run a sample of rows again."""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options as given
from .options import Names, completes, names
from .output import answer, complain, plain_console
from .validate import PathArgument

if TYPE_CHECKING:
    from ..submission.verify import Comparison

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
    sample: Annotated[int, typer.Option("--sample", min=1, metavar="N", help="experiments, all seeds of each")] = 3,
    seed: Annotated[int | None, typer.Option("--seed", min=0, help="of the draw [any]")] = None,
    method: OfMethods = None, suite: given.Suites = None, dataset: OnDatasets = None,
    jobs: given.Jobs = None, timeout: given.Timeout = 3600, device: given.Device = "cpu",
    backend: given.Backends = "processes", address: given.Address = None,
    record: Record = None,
    by: Annotated[str, typer.Option("--by", envvar="FGLBENCH_SUBMITTER", help="who verifies, for --record")] = "",
    contract: Annotated[bool, typer.Option("--contract/--no-contract", help="check the methods as well")] = True,
    json_: given.Json = False, plugin: given.PluginNames = None,
) -> int:  # fmt: skip
    """Run a random sample of the rows of PATH again, with the code that is here, and compare. Exit code 1 if one fails.

    All seeds of a drawn cell are run. A score may exceed ours by 2.5 times the
    deviation over our seeds, at least 0.01 and at most 0.05. Their methods must hold to the contract as well.
    """
    from ..runner.gpus import resolved
    from ..runner.job import Options, Store
    from ..store import provenance, verified
    from ..submission import verify as again
    from .progress import Display

    how = Options(jobs=jobs, timeout=timeout, backend=backend, address=address)
    options = replace(how, device=resolved(device, backend))
    if record is not None:
        again.may_record(record, by, provenance.git_state()[1])
    only = {"method": names(method), "suite": names(suite), "dataset": names(dataset)}
    number = secrets.randbelow(10**6) if seed is None else seed
    drawn = again.draw(Store(path).existing(), only, sample, number, str(path))
    options = replace(options, plugins=given.apart(plugin))
    comparisons, machines = again.run_again(drawn, options, complain, Display(plain_console(stderr=True)))
    with answer(json_) as said:
        said |= {"seed": number, "rows": _tell(comparisons, f"drawn with --seed {number}"), "contract": {}}
        if record is not None:
            again.record(comparisons, machines, record, by)
            typer.echo(f"recorded in {record / verified.FILE}; next: fglbench report --results {record}")
        methods = sorted({(row.method, row.method_params) for row in drawn}) if contract else []
        for name, params in methods:
            said["contract"].setdefault(name, []).extend(_broken(name, json.loads(params), options.plugins))
    return 0 if all(comparison.passed for comparison in comparisons) and not any(said["contract"].values()) else 1


def _broken(name: str, params: dict[str, Any], plugins: tuple[str, ...]) -> list[str]:
    """The checks of the contract that a method fails, on real data as well, a line for each."""
    from ..submission.verify import in_child
    from .check import verdicts_on

    wrong = list[str]()
    for check, verdict, reason in in_child(verdicts_on, plugins, name, params, True):
        if verdict == "failed":
            wrong.append(f"{check.replace('_', ' ')}: {reason}")
            typer.echo(f"{name}: {wrong[-1]}")
    typer.echo(f"{name} {'does NOT hold' if wrong else 'holds'} to the contract")
    return wrong


def _tell(comparisons: Sequence[Comparison], how: str) -> list[dict[str, Any]]:
    """Print all rows, then what is wrong with each; the same as data."""
    from ...report.text import plain

    typer.echo(_table(comparisons))
    for comparison in comparisons:
        for problem in comparison.problems:
            typer.echo(f"{comparison.theirs.key}: {plain(problem)}")
    equal = sum(abs(comparison.difference("score") or 0) <= EQUAL for comparison in comparisons if comparison.ours)
    typer.echo(f"{equal} of {len(comparisons)} scores are equal to rounding, which tells of the same type of machine")
    typer.echo(f"{sum(comparison.passed for comparison in comparisons)} of {len(comparisons)} rows passed ({how})")
    return list(map(_as_data, comparisons))


def _as_data(comparison: Comparison) -> dict[str, Any]:
    theirs, ours = comparison.theirs, comparison.ours
    return {
        "suite": theirs.suite, "key": theirs.key, "theirs": theirs.score, "ours": ours.score if ours else None,
        "bar": comparison.bar, "problems": comparison.problems,
    }  # fmt: skip


def _table(comparisons: Sequence[Comparison]) -> str:
    """theirs, ours and the difference of every row, one line per row."""
    from tabulate import tabulate

    from ...report.text import plain

    rows = []
    for comparison in comparisons:
        row, ours = comparison.theirs, comparison.ours
        rows.append([
            row.key,
            plain(f"{row.suite}: {row.method}, {row.dataset}, seed {row.seed}", 60),
            _figure(row.score), _figure(ours.score if ours else None), _figure(comparison.difference("score"), "+.6f"),
            _figure(comparison.difference("val"), "+.6f"), _figure(comparison.difference("macro_f1"), "+.6f"),
            f"{row.best_round or '-'}, {(ours.best_round if ours else None) or '-'}",
            f"{comparison.bar:.2g}", "passed" if comparison.passed else "FAILED",
        ])  # fmt: skip
    headers = ["key", "row", "theirs", "ours", "diff", "val diff", "F1 diff", "best round", "bar", "verdict"]
    return tabulate(rows, headers, tablefmt="plain", disable_numparse=True)


def _figure(value: float | None, form: str = ".6f") -> str:
    return "-" if value is None else format(value, form)
