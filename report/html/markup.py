"""The cells of a sheet as HTML, which the templates put into tables."""

from __future__ import annotations

from markupsafe import Markup, escape

from ..sheet import Interval, SheetCell, Span
from ..text import finite

PLOT_WIDTH = 96  # pixels of the small plot of a rank's interval
STYLES = {"": "{}", "strong": "<strong>{}</strong>", "em": "<em>{}</em>", "code": "<code>{}</code>", "break": "{}<br>"}


def shown(cell: SheetCell) -> Markup:
    """The text of a cell."""
    return Markup("").join(map(_set, cell.spans))


def _set(span: Span) -> Markup:
    return Markup(STYLES[span.style]).format(escape(span.text))


def pixels(interval: Interval) -> dict[str, float]:
    """Where to draw a mean rank and its interval between rank 1 and the last, in pixels from the left."""
    step = (PLOT_WIDTH - 8) / max(interval.last - 1, 1)
    ends = {"low": interval.low, "high": interval.high, "mean": interval.mean}
    return {name: round(4 + step * (rank - 1), 1) for name, rank in ends.items() if finite(rank)}
