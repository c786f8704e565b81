"""A table of a paper and our rows, seen cell by cell: what stands in which line and column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from ..papers import Paper, Place, Printed, Reading, Table
from ..text import ABSENT, csv_text, md, spans
from .judging import Judged, judged
from .match import Ours, SuiteRows, compare, difference, unit_values


@dataclass(frozen=True, eq=False)
class View:
    """A table under one reading of its protocol, compared with our rows."""

    paper: Paper
    table: Table
    reading: Reading
    figures: Sequence[Printed]
    ours: dict[Printed, Ours]
    claims: list[Judged] = field(repr=False)
    own: frozenset[Printed] = frozenset()  # figures that the reading changes; of the others it has the base's

    @classmethod
    def base(cls, paper: Paper, table: Table, figures: Sequence[Printed], rows: SuiteRows) -> View:
        """Under the first reading."""
        reading = paper.readings_of(table)[0]
        ours = {figure: compare(paper, table, reading, figure, rows) for figure in figures}
        return cls(paper, table, reading, figures, ours, judged(paper, table, ours), frozenset(figures))

    def under(self, reading: Reading, rows: SuiteRows) -> View:
        """The same table under another reading than this, the base."""
        own = frozenset(figure for figure in self.figures if self._changes(reading, figure))
        changed = {figure: compare(self.paper, self.table, reading, figure, rows) for figure in own}
        ours = self.ours | changed
        claims = judged(self.paper, self.table, ours)
        return View(self.paper, self.table, reading, self.figures, ours, claims, own)

    def _changes(self, reading: Reading, figure: Printed) -> bool:
        return any(reading.changes(self.reading, own) for own in self.paper.meanings(self.table, figure))

    @property
    def ran(self) -> bool:
        """Whether there is a row of a figure that the reading is about."""
        about = (
            figure for figure in self.own if any(map(self.reading.concerns, self.paper.meanings(self.table, figure)))
        )
        return any(self.ours[figure].n for figure in about)

    @property
    def cells(self) -> list[Ours]:
        """What we have for each figure that is the reading's own and no mean over others."""
        return [self.ours[figure] for figure in self.figures if figure in self.own and not self._mean(figure)]

    @property
    def own_claims(self) -> list[Judged]:
        """The claims about a figure that is the reading's own."""
        return [one for one in self.claims if self.own & {*one.figures}]

    def _mean(self, figure: Printed) -> bool:
        return self.paper.is_mean(self.table, figure)

    @property
    def gap(self) -> float:
        """The median difference of ours and the paper's, in points of percent; NaN without any."""
        own = ((figure, ours) for figure, ours in self.ours.items() if figure in self.own)
        gaps = [100 / figure.scale * difference(figure, ours) for figure, ours in own]
        return float(pd.Series(gaps, dtype=float).median())

    @property
    def columns(self) -> list[Place]:
        """Columns in the order of the table, without those that hold for all."""
        found = dict.fromkeys(self.table.column(figure) for figure in self.figures if not self._everywhere(figure))
        first = list(dict.fromkeys(place[0] for place in found))
        return sorted(found, key=lambda place: first.index(place[0]))

    @property
    def blocks(self) -> list[list[Place]]:
        wanted = self.table.blocks or [[place[0] for place in self.columns]]
        return [[place for place in self.columns if place[0] in block] for block in wanted]

    @property
    def lines(self) -> list[str]:
        return list(dict.fromkeys(self.table.line(figure) for figure in self.figures))

    def figure(self, line: str, column: Place) -> Printed | None:
        """What the paper prints in a line and column, if anything."""
        own = (figure for figure in self.figures if self.table.line(figure) == line)
        return next((figure for figure in own if self._stands_in(figure, column)), None)

    def _everywhere(self, figure: Printed) -> bool:
        return bool(self.table.everywhere) and all(figure.place[a] == v for a, v in self.table.everywhere.items())

    def _stands_in(self, figure: Printed, column: Place) -> bool:
        free = self.table.everywhere if self._everywhere(figure) else {}
        pairs = zip(self.table.columns, self.table.column(figure), column, strict=True)
        return all(own == wanted or axis in free for axis, own, wanted in pairs)

    def heading(self, column: Place) -> str:
        named = [self.paper.label(self.table, a, v) for a, v in zip(self.table.columns, column, strict=True)]
        return md(", ".join(named))

    def row_label(self, line: str) -> str:
        return md(self.paper.label(self.table, self.table.rows[0], line))


def csv(views: Sequence[View]) -> str:
    """One line a printed figure, and one for each further reading that changes it and was run; in the paper's unit."""
    frame = pd.DataFrame([
        {
            **{axis: csv_text(value) for axis, value in figure.place.items()},
            "reading": csv_text(view.reading.id),
            "paper_mean": figure.mean,
            "paper_std": figure.std,
            **dict(zip(("mean", "std"), unit_values(figure, ours), strict=True)),
            "difference": difference(figure, ours),
            "n": ours.n,
            "seeds": spans(ours.seeds).replace(ABSENT, "-"),
            "chosen": csv_text(ours.chosen),
        }
        for view in views
        for figure, ours in view.ours.items()
        if figure in view.own and (view is views[0] or ours.n)
    ])  # fmt: skip
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")
