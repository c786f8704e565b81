"""Sheets as tables of GitHub markdown."""

from __future__ import annotations

from urllib.parse import quote

from .sheet import Sheet, SheetColumn, Span
from .text import literal, table

STYLES = {"": "{}", "strong": "**{}**", "em": "*{}*", "break": "{}<br>"}
ALIGN = {"place": "r", "method": "l", "number": "r", "word": "l", "text": "l"}


def markdown(sheet: Sheet) -> str:
    """A sheet with references in italics; what it sorts by and marks is not shown."""
    rows = []
    for line in sheet.lines:
        cells = [list(cell.spans) for cell in line.cells]
        for column, spans in zip(sheet.columns, cells, strict=True):
            if column.kind == "method" and line.standing in ("reference", "over budget"):
                spans[0] = Span(spans[0].text, "em")
        rows.append(["".join(map(_set, spans)) for spans in cells])
    align = "".join("c" if column.centred else ALIGN[column.kind] for column in sheet.columns)
    return table(rows, [_heading(column) for column in sheet.columns], align)


def _set(span: Span) -> str:
    if span.style == "code":  # in which nothing is escaped
        return f"`{span.text.replace('`', '')}`"
    return STYLES[span.style].format(literal(span.text))


def _heading(column: SheetColumn) -> str:
    text = column.brief or column.title
    text = text if column.kind == "place" else literal(text)  # a lone # is no markup
    return (f"[{text}]({quote(column.link)})" if column.link else text) + (f", {column.note}" if column.note else "")
