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

    @classmethod
    def of(cls, paper: Paper, table: Table, reading: Reading, figures: Sequence[Printed], rows: SuiteRows) -> View:
        ours = {figure: compare(paper, table, reading, figure, rows) for figure in figures}
        return cls(paper, table, reading, figures, ours, judged(paper, table, ours))

    @property
    def cells(self) -> list[Ours]:
        """What we have for each figure that is no mean over others."""
        return [ours for figure, ours in self.ours.items() if not self.paper.is_mean(self.table, figure)]

    @property
    def gap(self) -> float:
        """The median difference of ours and the paper's, in points of percent; NaN without any."""
        gaps = [100 / figure.scale * difference(figure, ours) for figure, ours in self.ours.items()]
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
    """One line a printed figure and reading: the paper's figure and ours in its unit."""
    frame = pd.DataFrame([
        {
            **{axis: csv_text(value) for axis, value in figure.place.items()},
            "reading": csv_text(view.reading.name),
            "paper_mean": figure.mean,
            "paper_std": figure.std,
            **dict(zip(("mean", "std"), unit_values(figure, ours), strict=True)),
            "difference": difference(figure, ours),
            "n": ours.n,
            "seeds": spans(ours.seeds).replace(ABSENT, "-"),
        }
        for view in views
        for figure, ours in view.ours.items()
    ])  # fmt: skip
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")
