"""Judge the claims of a paper ("A beats B") by paired seeds of our rows; see templates/reproduction.md for the rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Literal

import pandas as pd

from ..papers import Paper, Place, Printed, Reading, Table, tables
from ..statistics import Difference, paired_difference
from ..text import ABSENT, csv_text, spans
from .match import Ours, SuiteRows, compare, difference

Ruling = Literal["supported", "contradicted", "inconclusive", "not run", "not claimed"]
VERDICTS = ("supported", "contradicted", "inconclusive")
Size = Literal["less", "agrees", "more", ""]
MIN_SEEDS = 3


@dataclass(frozen=True)
class JudgedClaim:
    """A claim in one column. figures: the published values of A and B. difference: ours, a fraction, of n seeds."""

    figures: tuple[Printed, Printed]
    verdict: Ruling
    difference: Difference | None = None
    n: int = 0

    @property
    def gain(self) -> float:
        """The published gain, a fraction; NaN if a figure is missing."""
        a, b = (figure.mean for figure in self.figures)
        return (a - b) / self.figures[0].scale if a is not None and b is not None else math.nan

    @property
    def size(self) -> Size:
        """Whether our interval is below the published gain, contains it or is above it; "" for few seeds."""
        if self.difference is None or self.n < MIN_SEEDS:
            return ""
        low, high = self.difference.low, self.difference.high
        return "less" if high < self.gain else "more" if low > self.gain else "agrees"


def ruling(difference: Difference) -> Ruling:
    """The verdict on "first beats second" from the interval of first minus second."""
    return "supported" if difference.low > 0 else "contradicted" if difference.high < 0 else "inconclusive"


def counts(claims: Iterable[JudgedClaim]) -> tuple[int, ...]:
    """The numbers of claims supported, contradicted and inconclusive."""
    verdicts: list[str] = [claim.verdict for claim in claims]
    return tuple(map(verdicts.count, VERDICTS))


def judge(first: Mapping[int, float], second: Mapping[int, float]) -> tuple[Ruling, Difference | None, int]:
    """The verdict on "first beats second", the paired difference and the number of pairs, from scores by seed."""
    seeds = sorted(first.keys() & second.keys())
    if not seeds:
        return "not run", None, 0
    difference = paired_difference([first[s] for s in seeds], [second[s] for s in seeds])
    return ruling(difference) if len(seeds) >= MIN_SEEDS else "inconclusive", difference, len(seeds)


def judged(paper: Paper, table: Table, ours: Mapping[Printed, Ours]) -> list[JudgedClaim]:
    """Judge every claim of a table in every column that has both methods, except in means over other columns."""
    single = [figure for figure in ours if not paper.is_mean(table, figure)]
    place = {(table.line(figure), table.column(figure)): figure for figure in single}
    claims = []
    for claim in table.claims:
        for figure in single:
            inside = all(figure.place[axis] in values for axis, values in claim.where.items())
            if table.line(figure) == claim.better and inside:
                others = (place.get((worse, table.column(figure))) for worse in claim.worse)
                claims += [_judged(figure, other, ours) for other in others if other is not None]
    return claims


def _judged(a: Printed, b: Printed, ours: Mapping[Printed, Ours]) -> JudgedClaim:
    if a.mean is None or b.mean is None or a.mean <= b.mean:
        return JudgedClaim((a, b), "not claimed")
    return JudgedClaim((a, b), *judge(ours[a].seeds, ours[b].seeds))


@dataclass(frozen=True, eq=False)
class View:
    """A table under one reading of its protocol, compared with our rows."""

    paper: Paper
    table: Table
    reading: Reading
    figures: Sequence[Printed]
    ours: dict[Printed, Ours]
    claims: list[JudgedClaim] = field(repr=False)
    affected: frozenset[Printed] = frozenset()  # figures that the reading changes; the others are as under the base

    @property
    def ran(self) -> bool:
        """Whether there is a row of a figure that the reading concerns."""
        with_rows = (figure for figure in self.affected if self.ours[figure].n)
        return any(map(self.reading.concerns, chain(*(self.paper.meanings(self.table, each) for each in with_rows))))

    @property
    def cells(self) -> list[Ours]:
        """Our value of each affected figure that is no mean over others."""
        single = (figure for figure in self.figures if not self.paper.is_mean(self.table, figure))
        return [self.ours[figure] for figure in single if figure in self.affected]

    @property
    def affected_claims(self) -> list[JudgedClaim]:
        """The claims about an affected figure; the others have the results of the base."""
        return [claim for claim in self.claims if self.affected & {*claim.figures}]

    @property
    def gap(self) -> float:
        """The median of ours - published over the affected figures, in percentage points; NaN without any."""
        pairs = ((figure, ours) for figure, ours in self.ours.items() if figure in self.affected)
        gaps = [100 / figure.scale * difference(figure, ours) for figure, ours in pairs]
        return float(pd.Series(gaps, dtype=float).median())

    @property
    def columns(self) -> list[Place]:
        """Columns in the order of the table, without figures that apply to all columns."""
        places = dict.fromkeys(self.table.column(figure) for figure in self.figures if not self._everywhere(figure))
        first = list(dict.fromkeys(place[0] for place in places))
        return sorted(places, key=lambda place: first.index(place[0]))

    @property
    def blocks(self) -> list[list[Place]]:
        wanted = self.table.blocks or [[place[0] for place in self.columns]]
        return [[place for place in self.columns if place[0] in block] for block in wanted]

    @property
    def lines(self) -> list[str]:
        return list(dict.fromkeys(self.table.line(figure) for figure in self.figures))

    def figure(self, line: str, column: Place) -> Printed | None:
        """The figure of a line and column, if there is one."""
        wanted = dict(zip(self.table.columns, column, strict=True))
        for figure in (figure for figure in self.figures if self.table.line(figure) == line):
            free = self.table.everywhere if self._everywhere(figure) else {}
            if figure.place | wanted | free == figure.place:
                return figure
        return None

    def _everywhere(self, figure: Printed) -> bool:
        return bool(self.table.everywhere) and figure.place | self.table.everywhere == figure.place

    def heading(self, column: Place) -> str:
        """The words of the paper for a column, as plain text."""
        return ", ".join(self.paper.label(self.table, a, v) for a, v in zip(self.table.columns, column, strict=True))

    def row_label(self, line: str) -> str:
        """The words of the paper for a line, as plain text."""
        return self.paper.label(self.table, self.table.rows[0], line)


def views(suite: str, rows: SuiteRows) -> Iterator[View]:
    """The table of a suite under each reading, the base first."""
    paper, table = tables()[suite]
    base, *others = paper.readings_of(table)
    figures = paper.figures(table)
    words = {figure: paper.meanings(table, figure) for figure in figures}
    ours = {figure: compare(paper, table, base, figure, rows) for figure in figures}
    yield View(paper, table, base, figures, ours, judged(paper, table, ours), frozenset(figures))
    for reading in others:
        affected = [figure for figure in figures if any(reading.changes(base, each) for each in words[figure])]
        changed = ours | {figure: compare(paper, table, reading, figure, rows) for figure in affected}
        yield View(paper, table, reading, figures, changed, judged(paper, table, changed), frozenset(affected))


def csv(views: Sequence[View]) -> str:
    """One line per printed figure, and per other reading that changes it and was run; in the unit of the paper."""
    frame = pd.DataFrame([
        {
            **{axis: csv_text(value) for axis, value in figure.place.items()},
            "reading": csv_text(view.reading.id),
            "paper_mean": figure.mean,
            "paper_std": figure.std,
            "mean": figure.scale * ours.mean,
            "std": figure.scale * ours.std,
            "difference": difference(figure, ours),
            "n": ours.n,
            "seeds": spans(ours.seeds).replace(ABSENT, "-"),
            "chosen": csv_text(ours.chosen),
        }
        for view in views
        for figure, ours in view.ours.items()
        if figure in view.affected and (view is views[0] or ours.n)
    ])  # fmt: skip
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")
