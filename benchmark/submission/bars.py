"""How far a row may lie above its second run: by a spread that its submitter does not make, and on one side only.

Elsewhere, the order of summation differs in the last bits; over the rounds such a difference may grow until single
test nodes change sides, or another round is the best. A new seed changes partition, split and initialisation as well,
so the deviation over seeds, s, bounds what rounding can do. s of a cell is the smaller of two that are ours: that of
our own runs of all its seeds, and the median of those of other methods' standing rows on the same task. It is never
more than CAP. Hence the bars, for every figure that is a share:

* a row: theirs - ours <= 2.5 s, or the floor of the column (0.01; macro-F1 0.03, one node of a rare class moves it);
* all n rows together: mean(theirs - ours) of scores <= sqrt(sum s^2) / n, or 0.005 if that is more. Rounding moves one
  row in fifteen, so this is four deviations of what it does to a mean; a small gain on every row shows;
* curves: the mean over rounds of theirs - ours, by the bar of the row;
* clients: the mean of |theirs - ours| over clients, by the bar of the row and 0.05;
* bytes, rounds and other counts: equal. A round's bytes within 2% where our own run shows that they vary with what is
  computed; another best round, and what follows from it, is a note.

A row that lies below its second run does not fail: a note says so.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from annotated_types import Le

from ...metrics import METRICS, Metrics
from ..store.columnfile import Stored
from ..store.schema import Row

DEVIATIONS, CAP, FLOOR, TOGETHER, CLIENTS, TRAFFIC = 2.5, 0.02, 0.01, 0.005, 0.05, 0.02
SHARES = [name for name, info in Metrics.model_fields.items() if any(isinstance(each, Le) for each in info.metadata)]
STEPS = ["optimiser_steps", "model_steps", "budget_steps"]
COUNTS = [*(name for name, column in METRICS.items() if column.exact), *STEPS]
Spread = Mapping[str, float]  # of a cell's figures over seeds
Task = tuple[Any, ...]


@dataclass(frozen=True)
class Run:
    """A row and its side file."""

    row: Row
    stored: Stored | None = None


@dataclass(frozen=True)
class Comparison:
    """A row run again. bar: how far its score may lie above ours. problems: what does not agree; none: it passes."""

    theirs: Row
    ours: Row | None
    bar: float
    spread: float
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.problems

    def difference(self, figure: str) -> float | None:
        """Ours minus theirs, where both exist."""
        ours, theirs = (getattr(row, figure, None) for row in (self.ours, self.theirs))
        return None if ours is None or theirs is None else float(ours - theirs)


def task(row: Row) -> Task:
    """What methods are compared on: a suite's dataset, cut in one way."""
    columns = "suite dataset dataset_params partition partition_params clients split split_params backbone"
    return tuple(getattr(row, name) for name in columns.split())


def deviations(rows: Iterable[Row]) -> Spread:
    """The deviation over rows, which differ by their seed, of each figure that two of them have."""
    values: dict[str, list[float]] = defaultdict(list)
    for row in {row.seed: row for row in rows if row.status == "ok"}.values():
        for figure in SHARES:
            if (value := getattr(row, figure)) is not None:
                values[figure].append(value)
    return {figure: float(np.std(found, ddof=1)) for figure, found in values.items() if len(found) > 1}


def spreads(rows: Iterable[Row]) -> dict[Task, list[tuple[str, Spread]]]:
    """For each task the methods on it, with their deviations over seeds."""
    cells: dict[tuple[Task, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        cells[task(row), row.method, row.method_params].append(row)
    found: dict[Task, list[tuple[str, Spread]]] = defaultdict(list)
    for (where, method, _), own in cells.items():
        found[where].append((method, deviations(own)))
    return found


def usual(known: Mapping[Task, Sequence[tuple[str, Spread]]], where: Task, method: str) -> Spread:
    """Of each figure the median of the deviations that all methods on a task have, but this one."""
    others = [spread for name, spread in known.get(where, ()) if name != method]
    values = {figure: [each[figure] for each in others if figure in each] for figure in SHARES}
    return {figure: float(np.median(found)) for figure, found in values.items() if found}


def smaller(ours: Spread, others: Spread) -> Spread:
    """Of each figure the smaller of two deviations, at most CAP."""
    return {name: min(ours.get(name, CAP), others.get(name, CAP), CAP) for name in {*ours, *others}}


def compare(theirs: Run, ours: Run | None, spread: Spread, version: str | None = None) -> Comparison:
    """Hold a row against its second run. version: the one that the row's stands for, if not its own."""
    bars = {name: max(DEVIATIONS * spread.get(name, 0.0), METRICS[name].floor or FLOOR) for name in SHARES}
    row, again = theirs.row, None if ours is None else ours.row
    problems, notes = list[str](), list[str]()
    if ours is None or again is None:
        problems.append("not run: its data cannot be had")
    elif row.status != "ok" or again.status != "ok":
        problems += _unscored(row, again)
    else:
        wanted = row.model_copy(update={"method_version": version or row.method_version})
        problems += [*_others(again, wanted), *_above(again, row, bars)]
        notes += _notes(again, row)
        if theirs.stored is not None and ours.stored is not None:
            problems += _side(ours.stored, theirs.stored, bars)
    return Comparison(row, again, bars["score"], spread.get("score", 0.0), tuple(problems), tuple(notes))


def _unscored(theirs: Row, ours: Row) -> Iterator[str]:
    if ours.status != "ok" and theirs.status == "ok":
        yield f"{ours.status}: {ours.error}"
    elif ours.status == "ok":
        yield f"{theirs.status} ({theirs.error:.60}), but here it has a score of {ours.score:.4f}"


def _others(ours: Row, theirs: Row) -> Iterator[str]:
    """What must be equal in two runs and is not. Where another round was the best, so are counts up to it."""
    moved = ours.best_round != theirs.best_round
    counts = [name for name in COUNTS if theirs.has(name) and ours.rounds == theirs.rounds]
    if moved:
        counts = [name for name in counts if name in STEPS or METRICS[name].at == "last"]
    counts = [name for name in counts if not name.startswith(("upload", "download"))]  # round by round, in their curves
    for name in ("dataset_fingerprint", "partition_hash", *counts, "method_version"):
        if getattr(ours, name) != getattr(theirs, name):
            yield f"another {name.replace('_', ' ')}"


def _above(ours: Row, theirs: Row, bars: Mapping[str, float]) -> Iterator[str]:
    """Figures that lie too far above ours, or that one of the two has alone."""
    for figure in filter(theirs.has, bars):
        one, other = getattr(ours, figure), getattr(theirs, figure)
        if one != other and (one is None or other is None or not other - one <= bars[figure]):  # also for NaN
            yield f"{figure} is more than {bars[figure]:.2g} above ours"


def _notes(ours: Row, theirs: Row) -> Iterator[str]:
    if (ours.score or 0) > (theirs.score or 0) + FLOOR:
        yield f"the score lies {(ours.score or 0) - (theirs.score or 0):.4f} below ours"
    if ours.best_round != theirs.best_round:
        yield f"another best round, {ours.best_round} for {theirs.best_round}"


def _side(ours: Stored, theirs: Stored, bars: Mapping[str, float]) -> Iterator[str]:
    """Where the curves or the clients of two runs are not of the same cell."""
    one, other = ours["history"], theirs["history"]
    common = min(len(one["round"]), len(other["round"]))
    for name in ("score", "val"):
        gains = [b - a for a, b in zip(one[name], other[name], strict=False) if a is not None and b is not None]
        if gains and not sum(gains) / len(gains) <= bars[name]:
            yield f"the curve of {name} is more than {bars[name]:.2g} above ours"
    for way in ("upload_bytes", "download_bytes"):
        steps = {b - a for a, b in zip(one[way], one[way][1:], strict=False)}
        mine, said = one[way][common - 1], other[way][common - 1]
        if mine != said and (len(steps) < 3 or not math.isclose(mine, said, rel_tol=TRAFFIC)):
            yield f"{way} of {common} rounds: {said:g}, and {mine:g} here"
    if "label_counts" in theirs and ours.get("label_counts") != theirs["label_counts"]:
        yield "other label counts"
    for name in sorted(set(ours.get("per_client", ())) | set(theirs.get("per_client", ()))):
        yield from _clients(name, ours["per_client"].get(name), theirs.get("per_client", {}).get(name), bars["score"])


def _clients(name: str, ours: list[Any] | None, theirs: list[Any] | None, bar: float) -> Iterator[str]:
    if ours is None or theirs is None:
        if theirs is not None or name in ("score", "val"):
            yield f"{name} of the clients is there once only"
        return
    if len(ours) != len(theirs) or [v is None for v in ours] != [v is None for v in theirs]:
        yield f"{name} of other clients"
        return
    apart = [abs(a - b) for a, b in zip(ours, theirs, strict=True) if a is not None]
    if apart and not sum(apart) / len(apart) <= bar + CLIENTS:
        yield f"{name} of the clients is {sum(apart) / len(apart):.3f} from ours"


def together(found: Sequence[Comparison]) -> tuple[float, float] | None:
    """(mean of ours - theirs, the bar below 0) over the rows with both scores; None without."""
    known = [(value, each.spread) for each in found if (value := each.difference("score")) is not None]
    if not known:
        return None
    mean = sum(value for value, _ in known) / len(known)
    return mean, max(math.sqrt(sum(spread**2 for _, spread in known)) / len(known), TOGETHER)
