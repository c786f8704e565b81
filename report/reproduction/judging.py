"""Whether what a paper claims shows in our rows: "A beats B", judged from paired seeds (templates/reproduction.md
says by which rule)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..papers import Paper, Printed, Table
from ..statistics import Difference, paired_difference
from .match import Ours

Ruling = Literal["holds", "does not hold", "cannot be told", "not run", "not claimed"]
Size = Literal["less", "agrees", "more", ""]
MIN_SEEDS = 3


@dataclass(frozen=True)
class Judged:
    """A claim in one column. figures: what the paper prints for A and B. difference: ours, in [0, 1]; n seeds."""

    figures: tuple[Printed, Printed]
    verdict: Ruling
    difference: Difference | None = None
    n: int = 0

    @property
    def gain(self) -> float:
        """What the paper prints, in [0, 1]; NaN where a figure is missing."""
        a, b = (figure.mean for figure in self.figures)
        return (a - b) / self.figures[0].scale if a is not None and b is not None else math.nan

    @property
    def size(self) -> Size:
        """Ours against the paper's gain: the interval lies below it, contains it or lies above it; "" for few seeds."""
        if self.difference is None or self.n < MIN_SEEDS:
            return ""
        low, high = self.difference.low, self.difference.high
        return "less" if high < self.gain else "more" if low > self.gain else "agrees"


def judge(first: Mapping[int, float], second: Mapping[int, float]) -> tuple[Ruling, Difference | None, int]:
    """The verdict on "first beats second", the paired difference and the number of pairs, from scores by seed."""
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return "not run", None, 0
    difference = paired_difference([first[s] for s in seeds], [second[s] for s in seeds])
    told: Ruling = "holds" if difference.low > 0 else "does not hold" if difference.high <= 0 else "cannot be told"
    return told if len(seeds) >= MIN_SEEDS else "cannot be told", difference, len(seeds)


def judged(paper: Paper, table: Table, ours: Mapping[Printed, Ours]) -> list[Judged]:
    """Every claim of a table in every column that has both sides; means over other columns are no columns here."""
    single = [figure for figure in ours if not paper.is_mean(table, figure)]
    place = {(table.line(figure), table.column(figure)): figure for figure in single}
    found = []
    for claim in table.claims:
        for figure in single:
            inside = all(figure.place[axis] in values for axis, values in claim.where.items())
            if table.line(figure) == claim.better and inside:
                others = (place.get((worse, table.column(figure))) for worse in claim.worse)
                found += [_judged(figure, other, ours) for other in others if other is not None]
    return found


def _judged(a: Printed, b: Printed, ours: Mapping[Printed, Ours]) -> Judged:
    if a.mean is None or b.mean is None or a.mean <= b.mean:
        return Judged((a, b), "not claimed")
    return Judged((a, b), *judge(ours[a].seeds, ours[b].seeds))
