"""`fglbench profile`: where the time of a round goes, as ratios within one run."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from tabulate import tabulate

from ...registry import UserError
from ..store.provenance import environment, now

if TYPE_CHECKING:
    from ..profile.speed import Case, MethodTiming, Timing

T = TypeVar("T")
CASES = ("cora:10", "cora:20", "cora:100", "pubmed:10")
HEAD = """# Speed

Made by `{command}` on {machine}, {threads} threads, {when}.

A round of FedAvg with GCN-64 (local epochs E = {epochs}, every client's validation and test scored) against E epochs of
a centralised GCN-64 on the uncut graph in plain PyTorch (CSR features and adjacency, torch's dropout, torch's Adam, no
evaluation). All columns of a row were measured in alternation in one process: medians of {rounds} rounds, quartiles in
brackets. The ratios are what counts; the milliseconds belong to the machine.
"""


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
    found: list[Case] = []
    for dataset, clients in wanted:
        typer.echo(f"measuring {dataset} with {clients} clients ...", err=True)
        found.append(_apart(measure_case, dataset, clients, rounds, threads, epochs))
    parts = [_ratios(found), _parts(found), _memory(found)] if found else []
    if all_methods:
        typer.echo("measuring all methods on cora with 10 clients ...", err=True)
        parts.append(_methods(_apart(measure_methods, "cora", 10, rounds, threads, epochs)))
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


def _table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    return tabulate(rows, headers, tablefmt="github", disable_numparse=True) + "\n"


def _ratios(cases: list[Case]) -> str:
    rows = []
    for c in cases:
        base = c.timings["centralised"].median
        cohort, ones = c.timings["cohort"], c.timings["cohorts of one"]
        uncut = c.timings.get("one uncut cohort")
        cut = "1 cohort" if len(c.cohort_sizes) == 1 else f"{len(c.cohort_sizes)} cohorts of {max(c.cohort_sizes)}"
        rows.append([
            c.dataset, c.clients, cut, _ms(cohort), _ms(c.timings["centralised"]), f"{cohort.median / base:.2f}x",
            _ms(ones), f"{ones.median / cohort.median:.1f}x", _ms(uncut) if uncut else "",
            _ms(c.timings["global, same engine"]),
        ])  # fmt: skip
    headers = ["dataset", "clients", "cut into", "round, ms", "centralised E epochs, ms", "round / centralised",
               "cohorts of one, ms", "one by one / cohort", "uncut, ms", "centralised in our engine, ms"]  # fmt: skip
    return "## A round\n\n" + _table(headers, rows)


def _ms(t: Timing) -> str:
    return f"{t.median:.1f} [{t.low:.1f}, {t.high:.1f}]"


def _parts(cases: list[Case]) -> str:
    names = [*dict.fromkeys(name for c in cases for name in c.shares if name != "other"), "other"]
    rows = []
    for c in cases:
        total, shares = sum(c.shares.values()), [c.shares.get(name, 0) for name in names]
        rows.append([c.dataset, c.clients, *(f"{share:.2f} ({share / total:.0%})" for share in shares)])
    return "## Where the time goes, ms a round (share)\n\n" + _table(["dataset", "clients", *names], rows)


def _memory(cases: list[Case]) -> str:
    rows = [
        [c.dataset, c.clients, f"{c.floor[0] / 2**20:.0f}", f"{c.floor[1]:.1f}",
         f"{c.timings['cohort'].median / c.floor[1]:.1f}x", "" if c.peak is None else f"{c.peak:.0f}"]
        for c in cases
    ]  # fmt: skip
    text = (
        "## Memory\n\nThe floor is what parameters, gradients and Adam's moments of all clients must move in a round "
        "if nothing stays in the\ncache (counted in bytes, at the copy bandwidth measured here); peak is "
        "the whole process, data and\nlibraries included.\n\n"
    )
    return text + _table(["dataset", "clients", "floor, MiB a round", "floor, ms", "round / floor", "peak, MiB"], rows)


def _methods(timings: list[MethodTiming]) -> str:
    rows = [
        [t.method, t.phase, f"{t.timing.median:.1f}", f"{t.timing.median / t.fedavg.median:.2f}x", t.largest]
        for t in timings
    ]
    text = (
        "## Every method, Cora, 10 clients\n\nEach method alternates with FedAvg in the same process; phases that "
        "prepare another were timed as they ran.\n\n"
    )
    return text + _table(["method", "phase", "ms a round", "relative to FedAvg", "largest parts"], rows)
