"""Text for markdown, CSV, figures and file names, and tables before they are written (columns, lines, typed cells).

All that comes from rows is data: nothing in it may act as markup.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

from tabulate import tabulate

from ..metrics import FALLING

ABSENT = "\N{EN DASH}"
_MARKUP = re.compile(r"([\\`*_{}\[\]|~#!$])")


def plain(value: object, limit: int = 200) -> str:
    """Return `value` on one line, without control, format and bidirectional characters, cut to `limit` characters."""
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in str(value))
    text = " ".join("".join(c for c in text if not unicodedata.category(c).startswith("C")).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def literal(text: str) -> str:
    """`text` of one line for GitHub markdown: no markup, no HTML, no automatic link or mention, no table break."""
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _MARKUP.sub(r"\\\1", text)
    return re.sub(r"www\.", "www&#46;", text.replace("://", ":&#47;/"), flags=re.IGNORECASE).replace("@", "&#64;")


def md(value: object, limit: int = 200) -> str:
    """`value` as `plain` shows it, literally in GitHub markdown."""
    return literal(plain(value, limit))


def csv_text(value: object) -> str:
    """`value` for a CSV cell; a leading character that a spreadsheet would take for a formula is quoted away."""
    text = plain(value, 1000)
    return "'" + text if text[:1] in ("=", "+", "-", "@") else text


def slug(label: str) -> str:
    """A safe file name for `label`. Lower-case letters, digits, '.', '_', '-'; a hash keeps changed names distinct."""
    safe = re.sub(r"[^a-z0-9._-]+", "-", label.lower()).strip("-.")
    if safe and safe == label and len(safe) <= 80:
        return safe
    digest = hashlib.sha256(label.encode()).hexdigest()[:6]
    return f"{safe[:80]}-{digest}" if safe else digest


def markdown_table(rows: Sequence[Sequence[str]], headers: Sequence[str], align: str) -> str:
    """A markdown table; `align` has one letter per column: l, r or c."""
    names = {"l": "left", "r": "right", "c": "center"}
    columns = [names[letter] for letter in align]
    return tabulate(rows, headers=list(headers), tablefmt="pipe", disable_numparse=True, colalign=columns)


def finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def number(value: float | None, digits: int = 2) -> str:
    """`value` with fixed `digits`, or a dash."""
    return f"{value:.{digits}f}" if value is not None and math.isfinite(value) else ABSENT


def percent(value: float | None, digits: int = 2) -> str:
    return number(None if value is None else 100 * value, digits)


def score_text(value: float | None, digits: int = 2) -> str:
    """A score in percent; an error, which is held negative so that higher is better, in its own unit."""
    return number(-value, 3) if finite(value) and value < 0 else percent(value, digits)  # type: ignore[operator]


def unit(metric: str) -> str:
    """What a heading adds to a metric: nothing to an error, which is in its own unit."""
    return metric if FALLING in metric else f"{metric}, %"


def points(value: float | None, digits: int = 1) -> str:
    """A difference of fractions in percentage points, with its sign: '+1.2'; what rounds to zero has none: '0.0'."""
    if value is None or not math.isfinite(value):
        return ABSENT
    rounded = round(100 * value, digits)
    return f"{rounded:+.{digits}f}" if rounded else f"{0:.{digits}f}"


def mean_std(mean: float, std: float, digits: int = 2) -> str:
    """'81.20 ± 0.53' in percent from fractions; without the ± where there is one seed only. Errors as `score_text`."""
    spread = number(std, 3) if mean < 0 else percent(std, digits)
    told = score_text(mean, digits)
    return f"{told} ± {spread}" if finite(std) else told


def data_size(count: float | None) -> str:
    """Bytes with an SI unit and three figures: 950 B, 1.2 kB, 34 MB."""
    if count is None or not math.isfinite(count):
        return ABSENT
    for unit in ("B", "kB", "MB", "GB"):
        if abs(count) < 999.5 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or abs(count) >= 99.95 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


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


def number_cell(value: float, show: Callable[[float], str]) -> Cell:
    """The cell of a figure, which sorts by it; last if it is not known."""
    return Cell(show(value), float(value) if finite(value) else None)


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
