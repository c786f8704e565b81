"""`fglbench check`: the contract, on one method or dataset."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from .options import Parameters, Plugins

if TYPE_CHECKING:
    from collections.abc import Iterator


def check(
    name: Annotated[str, typer.Argument(metavar="NAME", help="a method or a dataset")],
    set_: Parameters = None,
    plugin: Plugins = None,
) -> int:
    """Run the contract on a method or dataset: in the tree, in a --plugin, or of an installed package.

    One line a check: ok, failed with what is wrong, or skipped with the reason. Exit code 1 if one fails.
    """
    from ...datasets import DATASETS
    from ...methods import METHODS
    from ...registry import did_you_mean
    from ..contract import dataset_checks, method_checks
    from ..suites.plugins import installed
    from ..suites.settings import parse_setting

    params = {setting.name: setting.value for setting in map(parse_setting, set_ or ())}
    methods, datasets = ({*one.names(), *installed(one)} for one in (METHODS, DATASETS))
    results: Iterator[tuple[str, str, str]]
    if name in methods:
        results = method_checks.results(METHODS.build(name, params))
    elif name in datasets or ":" in name:
        results = dataset_checks.results(DATASETS.build(name, params))
    else:
        raise did_you_mean(name, methods | datasets, "method or dataset")
    judgements, begun = [], time.monotonic()
    width = max(map(len, [*method_checks.CHECKS, *dataset_checks.CHECKS]))
    for what, judgement, reason in results:
        judgements.append(judgement)
        typer.echo(f"{what.replace('_', ' '):{width}}  {judgement}{f': {reason}' if reason else ''}")
    failed, total, seconds = judgements.count("failed"), len(judgements), f"{time.monotonic() - begun:.0f} s"
    if failed:
        typer.echo(f"{name}: {failed} of {total} checks failed ({seconds})")
    else:
        typer.echo(f"{name} holds to the contract ({total} checks, {seconds})")
    return int(failed > 0)
