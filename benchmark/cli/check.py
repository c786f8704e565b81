"""`fglbench check`: the contract, on one method, dataset, partition, split or backbone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from .completion import completes
from .options import Parameters, Plugins

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..contract.trial import Trial
    from ..engine import Method

WIDTH = 35  # of the name of a check


Real = Annotated[
    bool | None,
    typer.Option(help="check on a real dataset too, fetching it if need be  [default: where it is at hand]"),
]

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="a method (or dataset, partition, split, backbone)",
        autocompletion=completes("method", "dataset", "partition", "split", "backbone"),
    ),
]


def check(
    name: Name,
    set_: Parameters = None,
    plugin: Plugins = None,
    real: Real = None,
) -> int:
    """Run the contract on a method, dataset, partition, split or backbone: in the tree, in a --plugin, or installed.

    One line per check: ok, failed with the problem, or skipped with the reason. Exit code 1 if a check fails.
    """
    from ...registry import did_you_mean
    from ..contract import part_checks
    from ..suites.plugins import REGISTRIES, installed
    from ..suites.select import parse_setting

    params = {setting.name: setting.value for setting in map(parse_setting, set_ or ())}
    known = {name: kind for kind, one in reversed(REGISTRIES.items()) for name in (*one.names(), *installed(one))}
    kind = known.get(name, "dataset" if ":" in name else None)  # datasets made on demand, as tu:NAME
    if kind is None:
        raise did_you_mean(name, known, "method, dataset, partition, split or backbone")
    begun = time.monotonic()
    spec = REGISTRIES[kind].build(name, params)
    verdicts = _method(spec, real) if kind == "method" else _tell(part_checks.results(kind, spec))
    failed, total = list(verdicts.values()).count("failed"), len(verdicts)
    seconds = f"{time.monotonic() - begun:.0f} s"
    if failed:
        typer.echo(f"{name}: {failed} of {total} checks failed ({seconds})")
    else:
        typer.echo(f"{name} passes the contract ({total} checks, {seconds})")
    return int(failed > 0)


def _method(method: Method, real: bool | None) -> dict[str, str]:
    """Verdicts on a method by check, on generated data and on a real dataset if one is at hand."""
    from ..contract import method_checks

    trial = _real(real, method.tasks)
    verdicts = _tell(method_checks.results(method))
    if trial is not None:
        verdicts |= _tell(method_checks.results_on_real(method, trial))
    return verdicts


def _tell(results: Iterator[tuple[str, str, str]]) -> dict[str, str]:
    """Verdicts by check, each said when it is known."""
    verdicts = {}
    for what, verdict, reason in results:
        verdicts[what] = verdict
        typer.echo(f"{what.replace('_', ' '):{WIDTH}}  {verdict}{f': {reason}' if reason else ''}")
    return verdicts


def _real(wanted: bool | None, tasks: Sequence[str]) -> Trial | None:
    """A real dataset to check on, or None. UserError if one is wanted and is unavailable."""
    from ...registry import UserError
    from ..contract.trial import REAL, real_trial

    if wanted is False or "node" not in tasks:
        return None
    try:
        return real_trial(near=wanted is None)
    except UserError:
        if wanted:
            raise
        typer.echo(f"not checked on {REAL}, which is not at hand: --real fetches it")
        return None
