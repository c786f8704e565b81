"""A table before it is written (columns, lines, typed cells), and its form as markdown and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from .text import csv_text, literal, markdown_table


class Span(NamedTuple):
    """Text that is set in one way; "break" ends a line, and "link" leads to the target."""

    text: str
    style: Literal["", "strong", "em", "code", "break", "link"] = ""
    target: str = ""


class Interval(NamedTuple):
    """A mean rank between bounds (NaN without them), and the last rank that there is."""

    mean: float
    low: float
    high: float
    last: int


@dataclass(frozen=True)
class Cell:
    """text: what is shown. value: what to sort by, None last. mark: what the text itself need not say."""

    text: str | tuple[Span, ...]
    value: float | str | None = None
    mark: Literal["", "best", "equal", "absent", "partial"] = ""
    interval: Interval | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        return (Span(self.text),) if isinstance(self.text, str) else self.text


@dataclass(frozen=True)
class Column:
    """The content of a column: `cell` makes it from what a line is about.

    falling: the first click sorts the highest up. best: the best of the ranked lines is marked. brief: the title in
    markdown, if it is another. note: what else the heading says. link: what it leads to among the report's files.
    groups: by what the column can be chosen.
    """

    title: str
    cell: Callable[[Any], Cell]
    kind: Literal["place", "method", "number", "word", "text"] = "number"
    falling: bool = False
    best: bool = False
    centred: bool = False
    brief: str = ""
    note: str = ""
    link: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class Line:
    """One line of a table; of an entry, its name, method and status as well."""

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
    tagged: bool = False  # whether incomplete methods say so

    @property
    def titles(self) -> list[str]:
        return [column.title for column in self.columns]

    def only(self, titles: Sequence[str]) -> Table:
        """The same with these columns, in this order."""
        places = [self.titles.index(title) for title in titles]
        lines = [replace(line, cells=[line.cells[place] for place in places]) for line in self.lines]
        return replace(self, columns=[self.columns[place] for place in places], lines=lines)


STYLES = {"": "{}", "strong": "**{}**", "em": "*{}*", "break": "{}<br>"}
ALIGN = {"place": "r", "method": "l", "number": "r", "word": "l", "text": "l"}


def to_markdown(table: Table) -> str:
    """A table with references in italics; what it sorts by and marks is not shown."""
    rows = []
    for line in table.lines:
        cells = [list(cell.spans) for cell in line.cells]
        for column, spans in zip(table.columns, cells, strict=True):
            if column.kind == "method" and line.status in ("reference", "over budget"):
                spans[0] = Span(spans[0].text, "em")
        rows.append(["".join(map(_set, spans)) for spans in cells])
    align = "".join("c" if column.centred else ALIGN[column.kind] for column in table.columns)
    return markdown_table(rows, [_heading(column) for column in table.columns], align)


def _set(span: Span) -> str:
    if span.style == "code":  # in which nothing is escaped
        return f"`{span.text.replace('`', '')}`"
    if span.style == "link":
        return f"[{literal(span.text)}]({quote(span.target, safe=':/')})"
    return STYLES[span.style].format(literal(span.text))


def _heading(column: Column) -> str:
    text = column.brief or column.title
    text = text if column.kind == "place" else literal(text)  # a lone # is no markup
    return (f"[{text}]({quote(column.link)})" if column.link else text) + (f", {column.note}" if column.note else "")


HARMLESS = "/,;:()+*=!$@?[]{}|~-_."  # in a data URI within quotation marks


def data_uri(text: str) -> str:
    """A CSV file as a data URI."""
    return f"data:text/csv;charset=utf-8,{quote(text, safe=HARMLESS)}"


def file_name(table: Table) -> str:
    return table.id.replace(":", "-") + ".csv"


def to_csv(table: Table) -> str:
    """The columns as they are shown; one whose text says more than a number has a column with the number before it."""
    heads: list[str] = []
    lines: list[list[str]] = [[] for _ in table.lines]
    for place, column in enumerate(table.columns):
        cells = [line.cells[place] for line in table.lines]
        numbers = [isinstance(cell.value, int | float) for cell in cells]
        if any(numbers):
            heads.append(_title(column))
            for line, cell, known in zip(lines, cells, numbers, strict=True):
                line.append(f"{cell.value:.6g}" if known else "")
        if not any(numbers) or not all(map(_bare, cells)):
            heads.append(f"{_title(column)}, as shown" if any(numbers) else _title(column))
            for line, cell in zip(lines, cells, strict=True):
                line.append(csv_text("".join(span.text for span in cell.spans)))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([heads, *lines])
    return text.getvalue()


def _title(column: Column) -> str:
    return csv_text(f"{column.title}, {column.note}" if column.note else column.title)


def _bare(cell: Cell) -> bool:
    """Whether the text is a number and nothing else."""
    try:
        float("".join(span.text for span in cell.spans) or "nan")
    except ValueError:
        return False
    return True
