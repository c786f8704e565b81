"""A sheet as a CSV file that lies in the page itself, as a link which any browser saves."""

from __future__ import annotations

import csv
import io
from urllib.parse import quote

from ..sheet import Sheet, SheetCell, SheetColumn
from ..text import csv_text

HARMLESS = "/,;:()+*=!$@?[]{}|~-_."  # in a data URI within quotation marks


def data_uri(text: str) -> str:
    """A CSV file as a data URI."""
    return f"data:text/csv;charset=utf-8,{quote(text, safe=HARMLESS)}"


def file_name(sheet: Sheet) -> str:
    return sheet.id.replace(":", "-") + ".csv"


def sheet_csv(sheet: Sheet) -> str:
    """The columns as they are shown; one whose text says more than a number has a column with the number before it."""
    heads, lines = [], [[] for _ in sheet.lines]  # type: tuple[list[str], list[list[str]]]
    for place, column in enumerate(sheet.columns):
        cells = [line.cells[place] for line in sheet.lines]
        numbers = [isinstance(cell.value, int | float) for cell in cells]
        if any(numbers):
            heads.append(_title(column))
            for line, cell, known in zip(lines, cells, numbers, strict=True):
                line.append(f"{cell.value:.6g}" if known else "")
        if not any(numbers) or not all(map(_bare, cells)):
            heads.append(f"{_title(column)}, as shown" if any(numbers) else _title(column))
            for line, cell in zip(lines, cells, strict=True):
                line.append(csv_text("".join(span.text for span in cell.spans)))
    found = io.StringIO()
    csv.writer(found, lineterminator="\n").writerows([heads, *lines])
    return found.getvalue()


def _title(column: SheetColumn) -> str:
    return csv_text(f"{column.title}, {column.note}" if column.note else column.title)


def _bare(cell: SheetCell) -> bool:
    """Whether the text is a number and nothing else."""
    try:
        float("".join(span.text for span in cell.spans) or "nan")
    except ValueError:
        return False
    return True
