"""Whether what a paper claims shows in our rows: "A beats B", judged from paired seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from ..papers import Paper, Printed, Table
from ..statistics import Difference, paired_difference
from .match import Ours

Judgement = Literal["holds", "does not hold", "cannot be told", "not run", "not claimed"]
MIN_SEEDS = 3

RULE = (
    'A claim "A beats B" is judged from the seeds that both have, A - B seed by seed, since equal seeds mean equal'
    " clients, splits and initial draws. It **holds** when the 95% t interval of the mean difference lies above 0,"
    " **does not hold** when it lies at or below 0, and **cannot be told** otherwise or with fewer than"
    f" {MIN_SEEDS} seeds. Each claim is judged by itself: of twenty true ties one is expected to be called wrongly."
    " Where the paper's own figures do not have A above B, there is nothing to judge (*not claimed*)."
)


@dataclass(frozen=True)
class Judged:
    """A claim in one column. figures: what the paper prints for A and B. difference: ours, in [0, 1]; n seeds."""

    better: str
    worse: str
    figures: tuple[Printed, Printed]
    verdict: Judgement
    difference: Difference | None = None
    n: int = 0


def judge(first: Mapping[int, float], second: Mapping[int, float]) -> tuple[Judgement, Difference | None, int]:
    """The verdict on "first beats second", the paired difference and the number of pairs, from scores by seed."""
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return "not run", None, 0
    difference = paired_difference([first[s] for s in seeds], [second[s] for s in seeds])
    if len(seeds) < MIN_SEEDS:
        return "cannot be told", difference, len(seeds)
    if difference.low > 0:
        return "holds", difference, len(seeds)
    return ("does not hold" if difference.high <= 0 else "cannot be told"), difference, len(seeds)


def judged(paper: Paper, table: Table, ours: Mapping[Printed, Ours]) -> list[Judged]:
    """Every claim of a table in every column that has both sides; means over other columns are no columns here."""
    (axis,) = table.rows
    single = [figure for figure in ours if len(paper.components(table, figure)) == 1]
    place = {(figure.place[axis], _rest(figure, axis, table)): figure for figure in single}
    found = []
    for claim in table.claims:
        for figure in single:
            inside = all(figure.place[other] in values for other, values in claim.where.items())
            if figure.place[axis] != claim.better or not inside:
                continue
            for worse in claim.worse:
                other = place.get((worse, _rest(figure, axis, table)))
                if other is not None:
                    found.append(_judged(claim.better, worse, figure, other, ours))
    return found


def _rest(figure: Printed, axis: str, table: Table) -> tuple[str, ...]:
    """The column of a figure."""
    return tuple(figure.place[other] for other in table.columns if other != axis)


def _judged(better: str, worse: str, a: Printed, b: Printed, ours: Mapping[Printed, Ours]) -> Judged:
    if a.mean is None or b.mean is None or a.mean <= b.mean:
        return Judged(better, worse, (a, b), "not claimed")
    verdict, difference, n = judge(ours[a].seeds, ours[b].seeds)
    return Judged(better, worse, (a, b), verdict, difference, n)
