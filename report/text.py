"""Text for markdown, CSV, figures and file names, and tables before they are written (columns, lines, typed cells).

Text from rows is data: nothing in it may act as markup.
"""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeGuard
from urllib.parse import quote

import pandas as pd
from tabulate import tabulate

from ..metrics import FALLING
from .statistics import DECIMALS, Difference, Posterior

ABSENT = "\N{EN DASH}"
_MARKUP = re.compile(r"([\\`*_{}\[\]|~#!$])")


def plain(value: object, limit: int = 200) -> str:
    """Return `value` on one line, without control, format and bidirectional characters, cut to `limit` characters."""
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in str(value))
    text = " ".join("".join(c for c in text if not unicodedata.category(c).startswith("C")).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def literal(text: str) -> str:
    """Escape one line for GitHub markdown: no markup, no HTML, no automatic link or mention, no table break."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _MARKUP.sub(r"\\\1", text)
    return re.sub(r"www\.", "www&#46;", text.replace("://", ":&#47;/"), flags=re.IGNORECASE).replace("@", "&#64;")


def md(value: object, limit: int = 200) -> str:
    """`plain`, then `literal`."""
    return literal(plain(value, limit))


def csv_text(value: object) -> str:
    """`value` for a CSV cell; a leading quote keeps a spreadsheet from reading it as a formula."""
    text = plain(value, 1000)
    return "'" + text if text[:1] in ("=", "+", "-", "@") else text


def slug(label: str) -> str:
    """A safe file name for `label`: lower-case letters, digits, '.', '_', '-'. A hash keeps changed names distinct."""
    safe = re.sub(r"[^a-z0-9._-]+", "-", label.lower()).strip("-.")
    if safe and safe == label and len(safe) <= 80:
        return safe
    digest = hashlib.sha256(label.encode()).hexdigest()[:6]
    return f"{safe[:80]}-{digest}" if safe else digest


def markdown_table(rows: Sequence[Sequence[str]], headers: Sequence[str], align: str) -> str:
    """A markdown table; `align` has one letter per column: l or r."""
    columns = ["right" if letter == "r" else "left" for letter in align]
    return tabulate(rows, headers=list(headers), tablefmt="pipe", disable_numparse=True, colalign=columns)


def finite(value: float | None) -> TypeGuard[float]:
    return value is not None and math.isfinite(value)


def number(value: float | None, digits: int = 2) -> str:
    """`value` with fixed `digits`, or a dash."""
    return f"{value:.{digits}f}" if finite(value) else ABSENT


def percent(value: float | None, digits: int = 2) -> str:
    return number(None if value is None else 100 * value, digits)


def score_text(value: float | None, digits: int = 2) -> str:
    """A score in percent; an error, which is stored as a negative number, in its unit."""
    return number(-value, 3) if finite(value) and value < 0 else percent(value, digits)


def unit(metric: str) -> str:
    """The metric with its unit: %, except for errors."""
    return metric if FALLING in metric else f"{metric}, %"


def gap_unit(metric: str) -> str:
    """The unit of differences for a heading next to the metric: none next to percent, points next to an error."""
    return ", points of 0.01" if FALLING in metric else ""


def points(value: float | None, digits: int = 1) -> str:
    """A difference of fractions in percentage points with its sign: '+1.2'; zero has no sign: '0.0'."""
    if not finite(value):
        return ABSENT
    rounded = round(100 * value, digits)
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"


def with_bounds(gap: Difference | Posterior) -> str:
    """A difference in points with its 95% interval: '+1.8 (+1.2 to +2.4)'."""
    return f"{points(gap.mean)} ({points(gap.low)} to {points(gap.high)})"


def mean_std(mean: float, std: float, digits: int = 2) -> str:
    """'81.20 ± 0.53' in percent from fractions, errors as in `score_text`; without ± if std is NaN (one seed)."""
    spread = number(std, 3) if mean < 0 else percent(std, digits)
    text = score_text(mean, digits)
    return f"{text} ± {spread}" if finite(std) else text


def data_size(count: float | None) -> str:
    """Bytes with an SI unit and two or three digits: 950 B, 1.2 kB, 34.0 MB, 120 MB."""
    if not finite(count):
        return ABSENT
    units = ["B", "kB", "MB", "GB"]
    while abs(count) >= 999.5 and units[1:]:
        count /= 1000
        del units[0]
    return f"{count:.0f} {units[0]}" if units[0] == "B" or abs(count) >= 99.95 else f"{count:.1f} {units[0]}"


def p_value(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"


def spans(numbers: Iterable[int]) -> str:
    """'0-2, 5' with an en dash for [0, 1, 2, 5]."""
    runs: list[list[int]] = []
    for value in sorted(set(numbers)):
        if runs and value == runs[-1][1] + 1:
            runs[-1][1] = value
        else:
            runs.append([value, value])
    return ", ".join(str(a) if a == b else f"{a}{ABSENT if b > a + 1 else ', '}{b}" for a, b in runs)


def count(number_of: int, noun: str) -> str:
    """'1 dataset', '3 datasets'."""
    return f"{number_of} {noun}{'' if number_of == 1 else 's'}"


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


@dataclass(frozen=True)
class Column:
    """A column of a table: `cell` makes its cell from the subject of a line.

    falling: the highest value is best, and the first click sorts it up. best: the best ranked line is marked. brief:
    another title in markdown. note: shown after the title. link: target of the title, a file of the report. groups: by
    which a reader can choose the column.
    """

    title: str
    cell: Callable[[Any], Cell]
    kind: Literal["method", "number", "word", "text"] = "number"
    falling: bool = False
    best: bool = False
    brief: str = ""
    note: str = ""
    link: str = ""
    groups: tuple[str, ...] = ()


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
