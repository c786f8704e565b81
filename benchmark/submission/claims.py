"""Rows against their suite: its protocol, all of its seeds, nothing twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

from ...registry import UserError
from ..suites.cell import Cell
from ..suites.selection import CUSTOM, Request, parted
from ..suites.suitefile import load_suite, suite_names
from .inbox import Findings, Line, grouped

CUSTOM_FIX = "submit rows that were run as a suite says: fglbench run -s SUITE -m METHOD"


def check(lines: Sequence[Line], fresh: set[Line], findings: Findings) -> None:
    """Findings about rows and their suites.

    fresh: lines that are submitted now. What is missing of the others is a warning, for a results folder grows while it
    is filled; and a later row of theirs may supersede an earlier one.
    """
    _duplicates(lines, fresh, findings)
    for (suite, method), own in grouped(lines, lambda line: (line.row.suite, line.row.method)).items():
        if suite != CUSTOM and suite in suite_names():
            with suppress(UserError):  # an unknown method: the row's own check says so
                _against_suite(suite, method, own, fresh, findings)
            continue
        what = f"unknown suite {suite!r} (known: {', '.join(suite_names())})"
        for line in own:
            if suite != CUSTOM:
                findings.add(line.place, what, CUSTOM_FIX, warning=line not in fresh)
            elif line in fresh:
                findings.add(line.place, "a row with changed settings (suite 'custom') is on no board", CUSTOM_FIX)


def _duplicates(lines: Sequence[Line], fresh: set[Line], findings: Findings) -> None:
    seen: dict[tuple[str, str], Line] = {}
    for line in lines:
        before = seen.get((line.row.suite, line.row.key))
        if before is not None and line.text == before.text:
            findings.add(line.place, f"the same row as in line {before.number}", "remove one of them")
        elif before is not None and line in fresh and before in fresh and before.row.status == line.row.status == "ok":
            what = f"a second result for the cell of line {before.number} (key {line.row.key})"
            findings.add(line.place, what, "submit one result a cell; `fglbench submit` packs the last")
        seen[line.row.suite, line.row.key] = line


def _against_suite(suite: str, method: str, own: Sequence[Line], fresh: set[Line], findings: Findings) -> None:
    claimed = expected(suite, method)
    present: dict[str, dict[int, Line]] = {}
    for line in own:
        if line.cell and line.cell.seedless in claimed:
            present.setdefault(line.cell.seedless, {})[line.cell.seed] = line
            told = next(iter(claimed[line.cell.seedless].values())).tuning
            if line in fresh and line.row.tuning != told:
                what = f"tuning is {line.row.tuning!r:.60}; of this cell it is {told!r:.60}"
                findings.add(line.place, what, "run the cell with the settings that the suite refers to")
        elif line.cell:
            what = f"not a cell of suite {suite!r}: {departure(line.cell, claimed.values())}"
            findings.add(line.place, what, CUSTOM_FIX, warning=line not in fresh)
    lacking: dict[tuple[bool, tuple[int, ...]], list[Line]] = {}
    for place, lines in present.items():
        missing = tuple(sorted(set(claimed[place]) - set(lines)))
        if missing:
            # a paper's table or a sweep may have its first seeds only, as by `fglbench reproduce --seeds n`
            begun = missing[0] > max(lines) and not load_suite(suite).leaderboard
            wrong = not begun and not fresh.isdisjoint(lines.values())
            lacking.setdefault((wrong, missing), []).append(next(iter(lines.values())))
        for seed in sorted(set(lines) - set(claimed[place])):
            what = f"seed {seed} of {lines[seed].row.dataset}, {method} is not a seed of suite {suite!r}"
            fix = "leave it out: on a board every method has the same seeds"
            findings.add(lines[seed].place, what, fix, warning=lines[seed] not in fresh)
    for (wrong, missing), first in lacking.items():
        datasets = ",".join(dict.fromkeys(line.row.dataset for line in first))
        what = f"suite {suite!r} has more seeds of {method} on {datasets}; missing: {', '.join(map(str, missing))}"
        fix = f"run them: fglbench run -s {suite} -m {method} -d {datasets}"
        findings.add(first[0].place, what, fix, warning=not wrong)


@cache
def expected(suite: str, method: str) -> dict[str, dict[int, Cell]]:
    """The cells of a method on a suite: cell without seed -> seed -> cell. A method that it lacks runs on all of it."""
    found: dict[str, dict[int, Cell]] = {}
    for cell in by_method(suite).get(method) or _cells(Request(suites=(suite,), methods=(method,))):
        found.setdefault(cell.seedless, {})[cell.seed] = cell
    return found


@cache
def by_method(suite: str) -> dict[str, list[Cell]]:
    """The cells of a suite by method; none where one of them is wrong, which is then told of that method alone."""
    found: dict[str, list[Cell]] = {}
    with suppress(UserError):
        for cell in _cells(Request(suites=(suite,))):
            found.setdefault(cell.method.name, []).append(cell)
    return found


def _cells(request: Request) -> list[Cell]:
    return [cell for _, cell in parted(request)[0]]


def departure(cell: Cell, claimed: Iterable[dict[int, Cell]]) -> str:
    """In what a cell differs from the nearest of a suite's cells."""
    cells = [next(iter(seeds.values())) for seeds in claimed]
    near = [other for other in cells if other.dataset.name == cell.dataset.name]
    if not near:
        return f"it has no dataset {cell.dataset.name!r}"
    found = min((_differences(cell, other) for other in near), key=len)
    return "; ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def _differences(cell: Cell, other: Cell) -> list[str]:
    ours, theirs = (_flat({**each.identity, "seed": None}) for each in (cell, other))
    return [
        f"{key} is {ours.get(key, 'absent')!r:.60}, the suite has {theirs.get(key, 'absent')!r:.60}"
        for key in sorted(ours.keys() | theirs.keys())
        if ours.get(key) != theirs.get(key)
    ]


def _flat(tree: Any, path: str = "") -> dict[str, Any]:
    """{'training.rounds': 100, 'backbones.0.name': 'gcn', ...}."""
    if not isinstance(tree, dict | list):
        return {path: tree}
    items = tree.items() if isinstance(tree, dict) else enumerate(tree)
    found: dict[str, Any] = {}
    for key, value in items:
        found |= _flat(value, path if key == "params" and path else f"{path}.{key}".removeprefix("."))
    return found
