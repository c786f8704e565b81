"""Tables before they are written as markdown or as a page: columns, lines and typed cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import pandas as pd

from .statistics import DECIMALS, Posterior
from .text import ABSENT, finite, literal, markdown_table, number, with_bounds


class Span(NamedTuple):
    """Text in one style; "break" ends the line, "link" links to `target`."""

    text: str
    style: Literal["", "strong", "em", "code", "break", "link"] = ""
    target: str = ""


class Interval(NamedTuple):
    """A mean rank, its bounds (NaN without them), and the last rank of the board."""

    mean: float
    low: float
    high: float
    last: int


@dataclass(frozen=True)
class Cell:
    """text: shown. value: sorted by, None last. mark: its style. interval: drawn next to the text on the page."""

    text: str | tuple[Span, ...]
    value: float | str | None = None
    mark: Literal["", "best", "equal", "absent", "partial"] = ""
    interval: Interval | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        return (Span(self.text),) if isinstance(self.text, str) else self.text


NOTHING = Cell(ABSENT, mark="absent")


def number_cell(value: float, show: Callable[[float], str]) -> Cell:
    """A cell with a number, sorted by it; NaN is last."""
    return Cell(show(value), float(value) if finite(value) else None)


def numbers_by_name(values: pd.Series, show: Callable[[float], str] = number) -> Callable[[Any], Cell]:
    """The `cell` of a column whose subjects are names in the index of `values`; NaN for other names."""
    return lambda name: number_cell(values.get(str(name), math.nan), show)


def cells_by_name(cells: Mapping[str, Cell]) -> Callable[[Any], Cell]:
    """The `cell` of a column whose subjects are names; nothing for a name without a cell."""
    return lambda name: cells.get(str(name), NOTHING)


def name_or_dash(text: str) -> Cell:
    """A cell of words; a dash, sorted last, without any."""
    return Cell(text or ABSENT, text or None)


def difference_cell(posterior: Posterior | None) -> Cell:
    """A difference in points with its interval and verdict: '+1.8 (+1.2 to +2.4) better'."""
    if posterior is None or not finite(posterior.mean):
        return NOTHING
    return Cell(f"{with_bounds(posterior)} {posterior.verdict}", posterior.mean)


@dataclass(frozen=True)
class Column:
    """A column of a table: `cell` makes its cell from the subject of a line.

    falling: the highest value is best, and the first click sorts it up. best: the best ranked line is marked. brief:
    another title in markdown. note: shown after the title. link: target of the title, a file of the report.
    """

    title: str
    cell: Callable[[Any], Cell]
    kind: Literal["method", "number", "word", "text"] = "number"
    falling: bool = False
    best: bool = False
    brief: str = ""
    note: str = ""
    link: str = ""


@dataclass(frozen=True)
class Line:
    """One line of a table; for an entry also its name, method and status."""

    cells: list[Cell]
    entrant: str = ""
    method: str = ""
    status: str = ""


@dataclass(frozen=True)
class Table:
    id: str
    caption: str
    columns: Sequence[Column]
    lines: list[Line]
    tagged: bool = False  # whether incomplete methods are marked

    @classmethod
    def of(
        cls,
        id: str,
        caption: str,
        columns: Sequence[Column],
        subjects: Iterable[Any],
        entry: Callable[[Any], tuple[str, str, str]] = lambda subject: ("", "", ""),
    ) -> Table:
        """Make one line per subject. entry: the name, method and status of a subject that is an entry.

        In the columns with `best` the best ranked line is marked.
        """
        lines = [Line([column.cell(subject) for column in columns], *entry(subject)) for subject in subjects]
        ranked = [line.cells for line in lines if line.status == "ranked"]
        for place in [place for place, column in enumerate(columns) if column.best and ranked]:
            values = [round(float(cells[place].value or 0), DECIMALS) for cells in ranked]
            best = max(values) if columns[place].falling else min(values)
            for cells, value in zip(ranked, values, strict=True):
                cells[place] = replace(cells[place], mark="best" if value == best else "")
        return cls(id, caption, columns, lines)

    @property
    def titles(self) -> list[str]:
        return [column.title for column in self.columns]


STYLES = {"": "{}", "strong": "**{}**", "em": "*{}*", "break": "{}<br>"}


def to_markdown(table: Table) -> str:
    """A table as markdown, with references in italics; sort values and marks are not shown."""
    rows = []
    for line in table.lines:
        cells = [list(cell.spans) for cell in line.cells]
        for column, spans in zip(table.columns, cells, strict=True):
            if column.kind == "method" and line.status in ("reference", "over budget"):
                spans[0] = Span(spans[0].text, "em")
        rows.append(["".join(map(_span_markdown, spans)) for spans in cells])
    align = "".join("r" if column.kind == "number" else "l" for column in table.columns)
    return markdown_table(rows, [_heading(column) for column in table.columns], align)


def _span_markdown(span: Span) -> str:
    if span.style == "code":  # nothing is escaped in code
        return f"`{span.text.replace('`', '')}`"
    if span.style == "link":
        return f"[{literal(span.text)}]({quote(span.target, safe=':/')})"
    return STYLES[span.style].format(literal(span.text))


def _heading(column: Column) -> str:
    text = literal(column.brief or column.title)
    return (f"[{text}]({quote(column.link)})" if column.link else text) + (f", {column.note}" if column.note else "")
