"""`fglbench check`: the contract, on one method, dataset, partition, split or backbone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..contract.shown import in_words
from .completion import completes
from .options import Parameters, Plugins

if TYPE_CHECKING:
    from collections.abc import Iterator

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

    One line a check: ok, failed with what is wrong, or skipped with the reason. In the end, for a method, what was
    shown and what cannot be. Exit code 1 if a check fails.
    """
    from ...registry import did_you_mean
    from ..suites.plugins import REGISTRIES, installed
    from ..suites.settings import parse_setting

    params = {setting.name: setting.value for setting in map(parse_setting, set_ or ())}
    known = {name: kind for kind, one in reversed(REGISTRIES.items()) for name in (*one.names(), *installed(one))}
    kind = known.get(name, "dataset" if ":" in name else None)  # datasets made on demand, as tu:NAME
    if kind is None:
        raise did_you_mean(name, known, "method, dataset, partition, split or backbone")
    begun, words = time.monotonic(), list[str]()
    spec = REGISTRIES[kind].build(name, params)
    if kind == "method":
        verdicts, words = _method(spec, real)
    else:
        verdicts = _tell(_contract(kind)(spec))
    failed, total = list(verdicts.values()).count("failed"), len(verdicts)
    seconds = f"{time.monotonic() - begun:.0f} s"
    if failed:
        typer.echo(f"{name}: {failed} of {total} checks failed ({seconds})")
    else:
        typer.echo(f"{name} holds to the contract ({total} checks, {seconds})")
    for line in words:
        typer.echo(line)
    return int(failed > 0)


def _contract(kind: str) -> Any:
    """What yields the verdicts on something of a kind."""
    from ..contract import backbone_checks, cutting_checks, dataset_checks

    return {
        "dataset": dataset_checks.results, "partition": cutting_checks.partition_results,
        "split": cutting_checks.split_results, "backbone": backbone_checks.results,
    }[kind]  # fmt: skip


def _method(method: Method, real: bool | None) -> tuple[dict[str, str], list[str]]:
    """Verdicts on a method by check, and in words what they show."""
    from ..contract import method_checks

    trial, where = _real(real, method.task)
    verdicts = _tell(method_checks.results(method))
    if trial is not None:
        verdicts |= _tell(method_checks.results_on_real(method, trial))
    return verdicts, [*in_words(verdicts, where)]


def _tell(results: Iterator[tuple[str, str, str]]) -> dict[str, str]:
    """Verdicts by check, each said when it is known."""
    verdicts = {}
    for what, verdict, reason in results:
        verdicts[what] = verdict
        typer.echo(f"{what.replace('_', ' '):{WIDTH}}  {verdict}{f': {reason}' if reason else ''}")
    return verdicts


def _real(wanted: bool | None, task: str) -> tuple[Trial | None, str]:
    """A real dataset to check on, or None; and what to say of it. UserError where one is wanted and cannot be had."""
    from ...registry import UserError
    from ..contract.trial import REAL, real_trial

    if wanted is False or task != "node":
        return None, ""
    try:
        trial = real_trial(near=wanted is None)
    except UserError:
        if wanted:
            raise
        return None, f" ({REAL} is not at hand: --real fetches it)"
    return trial, f" and on {REAL} ({trial.federation.whole.source})"
