"""A table before it is written: columns, lines, and cells of typed content. Each writer escapes and marks it its own
way: `markdown` for GitHub, `html/` for the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple


class Span(NamedTuple):
    """Text that is set in one way; "break" ends a line."""

    text: str
    style: Literal["", "strong", "em", "code", "break"] = ""


class Interval(NamedTuple):
    """A mean rank between bounds (NaN without them), and the last rank that there is."""

    mean: float
    low: float
    high: float
    last: int


@dataclass(frozen=True)
class SheetCell:
    """text: what is shown. value: what to sort by, None last. mark: what the text itself need not say."""

    text: str | tuple[Span, ...]
    value: float | str | None = None
    mark: Literal["", "best", "equal", "absent", "partial"] = ""
    interval: Interval | None = None

    @property
    def spans(self) -> tuple[Span, ...]:
        return (Span(self.text),) if isinstance(self.text, str) else self.text


@dataclass(frozen=True)
class SheetColumn:
    """What stands in a column: `cell` makes it from what a line is about.

    falling: the first click sorts the highest up. best: the best of the ranked lines is marked. brief: the title in
    markdown, if it is another. note: what else the heading says. link: what it leads to among the report's files.
    groups: by what the column can be chosen.
    """

    title: str
    cell: Callable[[Any], SheetCell]
    kind: Literal["place", "method", "number", "word", "text"] = "number"
    falling: bool = False
    best: bool = False
    centred: bool = False
    brief: str = ""
    note: str = ""
    link: str = ""
    groups: tuple[str, ...] = ()


@dataclass(frozen=True)
class SheetLine:
    """What a line is about: an entrant with its method and its standing."""

    cells: list[SheetCell]
    entrant: str = ""
    method: str = ""
    standing: str = ""


@dataclass(frozen=True)
class Sheet:
    id: str
    caption: str
    columns: Sequence[SheetColumn]
    lines: list[SheetLine]
    tagged: bool = False  # whether incomplete methods say so

    @property
    def titles(self) -> list[str]:
        return [column.title for column in self.columns]

    def only(self, titles: Sequence[str]) -> Sheet:
        """The same with these columns, in this order."""
        places = [self.titles.index(title) for title in titles]
        lines = [replace(line, cells=[line.cells[place] for place in places]) for line in self.lines]
        return replace(self, columns=[self.columns[place] for place in places], lines=lines)
