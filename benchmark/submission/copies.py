"""Rows against each other: no two runs have the same curves, and all that share a partition share its label counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any

from . import coincidence
from .inbox import Findings, Line, grouped
from .sides import Side

TELLING = 10  # different values of a curve, from which on two runs do not have it by chance
FIX = "run the cell again: two runs never have the same"
VERIFY = "`fglbench verify` tells whether it was run"
CURVES = "the curves"


def check(sides: Mapping[Line, Side], fresh: set[Line], claimed: set[Line], findings: Findings) -> None:
    """Findings about fresh rows whose side files say what those of another cell say.

    A cell may stand in several suites; and two settings that come to the same may, in different suites. Of curves that
    are the same for a reason that is known it is a warning, about claimed rows: they cannot show that a run took place.
    """
    first: dict[Hashable, Line] = {}
    for line in sorted(sides, key=lambda line: line in fresh):  # those that stand come first
        for what, course in _courses(line, sides[line]):
            other = first.setdefault(course, line)
            if other.row.key == line.row.key or line not in fresh:
                continue
            known = _reason(line, other) if what == CURVES else ""
            if not known or line in claimed:
                row = other.row
                told = f"has {what} of {row.method} on {row.dataset}, seed {row.seed}"
                told += f", as it may where {known}" if known else ""
                findings.add(line.place, told, VERIFY if known else FIX, warning=bool(known))
    _label_counts(sides, fresh, findings)


def _reason(line: Line, other: Line) -> str:
    """Why two rows may have the same curves; empty where they may not."""
    if line.row.val is None:
        return "clusterings of few graphs are compared"
    single = all(own.row.optimiser_steps == own.row.rounds for own in (line, other))
    return coincidence.reason(line.cell, other.cell, single) if line.cell and other.cell else ""


def _courses(line: Line, side: Side) -> Iterator[tuple[str, Hashable]]:
    """What no two runs have in common, in words and as values."""
    row, seconds = line.row, side.values("history.seconds")
    if row.status == "ok" and len(seconds) > 1:
        yield "to the digit the times", ("seconds", seconds.tobytes())
        val, score = side.values("history.val"), side.values("history.score")
        if len(set(zip(val.tolist(), score.tolist(), strict=True))) >= TELLING:
            yield CURVES, (row.suite, row.dataset, val.tobytes(), score.tobytes())


def _label_counts(sides: Mapping[Line, Side], fresh: set[Line], findings: Findings) -> None:
    """Clients of one partition hold the same labels, whoever trains on them."""
    alike: dict[str, list[tuple[Line, Hashable]]] = defaultdict(list)
    for line, side in sides.items():
        held = side.counts
        if held.size and line.row.partition_hash:
            alike[line.row.partition_hash].append((line, (held.shape, held.tobytes())))
    for rows in alike.values():
        standing = [counts for line, counts in rows if line not in fresh] or [counts for _, counts in rows]
        (usual, _), *_ = Counter(standing).most_common(1)
        for line, counts in rows:
            if counts != usual:
                findings.add(
                    line.place, "has other label counts than others on its partition", FIX, warning=line not in fresh
                )


def figures(lines: Sequence[Line], fresh: set[Line], findings: Findings) -> None:
    """Warnings for a method that has the same figures with every seed of a cell, or the same as another method."""
    scored = [line for line in lines if line.row.score is not None and line.row.task == "node" and line.cell]
    for own in grouped(scored, lambda line: (line.row.suite, line.cell and line.cell.seedless)).values():
        told = {line: _figures(line) for line in {line.row.key: line for line in own}.values()}
        if len(told) > 1 and len(set(told.values())) == 1 and fresh & set(told):
            what = f"the same figures with all {len(told)} seeds"
            findings.add(next(iter(fresh & set(told))).place, what, "look at the curves", warning=True)


def _figures(line: Line) -> tuple[Any, ...]:
    row = line.row
    return row.score, row.val, row.macro_f1, row.best_round


def mixed(lines: Sequence[Line], fresh: set[Line]) -> Iterator[tuple[Line, str]]:
    """New rows without a score whose other seeds have one, or that another run of their cell stands beside."""
    for own in grouped(lines, lambda line: (line.row.suite, line.cell.seedless if line.cell else "")).values():
        ok = {line.row.seed for line in own if line.row.status == "ok"}
        for line in own:
            if line in fresh and line.row.status != "ok":
                if line.row.seed in ok:
                    yield line, f"{line.row.status}, and run once more with a score"
                elif ok or line.row.status != "skipped":
                    yield line, f"{line.row.status}{' although other seeds have a score' if ok else ''}"
