"""`fglbench profile`: where the time of a round goes, as ratios within one run."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from tabulate import tabulate

from ...registry import UserError
from ..store.provenance import environment, now

if TYPE_CHECKING:
    from ..profile.speed import Line

T = TypeVar("T")
CASES = ("cora:10", "cora:20", "cora:100", "pubmed:10")
HEAD = """# Speed

Made by `{command}` on {machine}, {threads} threads, {when}.

A round of FedAvg with GCN-64 (local epochs E = {epochs}, every client's validation and test scored) against E epochs of
a centralised GCN-64 on the uncut graph in plain PyTorch (CSR features and adjacency, torch's dropout, torch's Adam, no
evaluation). All columns of a row were measured in alternation in one process: medians of {rounds} rounds, quartiles in
brackets. The ratios are what counts; the milliseconds belong to the machine.
"""
FLOOR = """\
The floor is what parameters, gradients and Adam's moments of all clients must move in a round if nothing stays in the
cache (counted in bytes, at the copy bandwidth measured here); peak is the whole process, data and
libraries included.

"""
ALTERNATION = """\
Each method alternates with FedAvg in the same process; phases that prepare another were timed as they ran.

"""
TABLES = (("A round", ""), ("Where the time goes, ms a round (share)", ""), ("Memory", FLOOR))  # of measure_case


def profile(
    case: Annotated[list[str] | None, typer.Option("--case", help="DATASET:CLIENTS, as often as you like")] = None,
    rounds: Annotated[int, typer.Option(min=2, help="measured rounds of each kind, after 3 to warm up")] = 21,
    epochs: Annotated[int, typer.Option(min=1, help="local epochs E a round")] = 3,
    threads: Annotated[int, typer.Option(min=1, help="threads of the measuring process")] = os.cpu_count() or 1,
    all_methods: Annotated[
        bool, typer.Option("--all-methods", help="every method beside FedAvg on Cora, 10 clients")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="also write the tables to this Markdown file")] = None,
) -> None:
    """Measure rounds of a cohort, of cohorts of one and of centralised training, side by side."""
    from ..profile.speed import measure_case, measure_methods

    wanted = [_parse(text) for text in (case or (() if all_methods else CASES))]
    found = []
    for dataset, clients in wanted:
        typer.echo(f"measuring {dataset} with {clients} clients ...", err=True)
        found.append(_apart(measure_case, dataset, clients, rounds, threads, epochs))
    parts = [_table(*table, lines) for table, lines in zip(TABLES, zip(*found, strict=True), strict=False)]
    if all_methods:
        typer.echo("measuring all methods on cora with 10 clients ...", err=True)
        lines = _apart(measure_methods, "cora", 10, rounds, threads, epochs)
        parts.append(_table("Every method, Cora, 10 clients", ALTERNATION, lines))
    here = environment(threads)[1]
    flags = [f"--case {dataset}:{clients}" for dataset, clients in wanted] + ["--all-methods"] * all_methods
    command = " ".join(["fglbench profile", *flags, f"--rounds {rounds}", f"--epochs {epochs}"])
    machine = f"{here['cpu'] or here['machine']}, {here['cores']} cores"
    about = {"machine": machine, "threads": threads, "when": now()[:10], "epochs": epochs, "rounds": rounds}
    text = "\n".join([HEAD.format(command=command, **about), *parts])
    typer.echo(text)
    if output is not None:
        try:
            output.write_text(text)
        except OSError as error:
            raise UserError(f"cannot write {output}: {error.strerror}; choose another --output") from None


def _parse(text: str) -> tuple[str, int]:
    name, _, clients = text.rpartition(":")
    if not clients.isdigit() or int(clients) < 1:
        raise UserError(f"--case {text!r} is not DATASET:CLIENTS, for example cora:10")
    from ...datasets import DATASETS

    DATASETS.cls(name)
    return name, int(clients)


def _apart(work: Callable[..., T], *args: object) -> T:
    """Each case in a fresh process: its peak memory is its own, and no case warms the caches of the next."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *args).result()


def _table(title: str, about: str, lines: Iterable[Line]) -> str:
    """A section with one table; parts of a round that some case has not are 0 there, and the rest comes last."""
    import pandas as pd

    frame = pd.DataFrame(lines).fillna("0.00 (0%)")
    if "other" in frame:
        frame["other"] = frame.pop("other")
    text = tabulate(frame, "keys", tablefmt="github", disable_numparse=True, showindex=False)
    return f"## {title}\n\n{about}{text}\n"
