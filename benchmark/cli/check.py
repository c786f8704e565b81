"""`fglbench check`: the contract, on one method, dataset, partition, split or backbone."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .options import Json, Parameters, PluginNames, completes
from .output import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    plugin: PluginNames = None,
    real: Real = None,
    json: Json = False,
) -> int:
    """Run the contract on a method, dataset, partition, split or backbone: in the tree, in a --plugin, or installed.

    One line per check: ok, failed with the problem, or skipped with the reason. Exit code 1 if a check fails. What is
    not of the package is imported, and checked, in a process of its own.
    """
    from ..submission.verify import in_child
    from ..suites.plugins import REGISTRIES
    from ..suites.request import parse_setting

    params = {setting.name: setting.value for setting in map(parse_setting, set_ or ())}
    here = not plugin and any(name in registry.names() for registry in REGISTRIES.values())
    begun, verdicts, checks = time.monotonic(), list[str](), list[dict[str, str]]()
    results = verdicts_on(name, params, real) if here else in_child(verdicts_on, plugin or (), name, params, real)
    for what, verdict, reason in results:
        verdicts.append(verdict)
        checks.append({"check": what, "verdict": verdict, "reason": reason})
        if not json:
            typer.echo(f"{what.replace('_', ' '):{WIDTH}}  {verdict}{f': {reason}' if reason else ''}")
    failed, seconds = verdicts.count("failed"), f"{time.monotonic() - begun:.0f} s"
    if json:
        print_json({"name": name, "passed": not failed, "checks": checks})
    elif failed:
        typer.echo(f"{name}: {failed} of {len(verdicts)} checks failed ({seconds})")
    else:
        typer.echo(f"{name} passes the contract ({len(verdicts)} checks, {seconds})")
    return int(failed > 0)


def verdicts_on(name: str, params: dict[str, Any], real: bool | None) -> Iterator[tuple[str, str, str]]:
    """(check, verdict, reason) one by one, of methods on a real dataset too. real: None: if one is at hand."""
    from ...registry import UserError, did_you_mean
    from ..contract import method_checks, part_checks
    from ..contract.trial import REAL, real_trial
    from ..suites.plugins import REGISTRIES, installed

    known = {name: kind for kind, one in reversed(REGISTRIES.items()) for name in (*one.names(), *installed(one))}
    kind = known.get(name, "dataset" if ":" in name else None)  # datasets made on demand, as tu:NAME
    if kind is None:
        raise did_you_mean(name, known, "method, dataset, partition, split or backbone")
    spec = REGISTRIES[kind].build(name, params)
    if kind != "method":
        yield from part_checks.results(kind, spec)
        return
    trial = None
    if real is not False and "node" in spec.tasks:
        try:
            trial = real_trial(near=real is None)
        except UserError:
            if real:
                raise
            yield f"on {REAL}", "skipped", "it is not at hand: --real fetches it"
    yield from method_checks.results(spec)
    if trial is not None:
        yield from method_checks.results_on_real(spec, trial)
