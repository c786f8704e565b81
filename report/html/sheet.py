"""A table as the template wants it: columns, lines, and cells with what is shown and what is sorted by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from markupsafe import Markup

from ..text import finite

Kind = Literal["place", "method", "number", "text"]
PLOT_WIDTH = 96  # pixels of the small plot of a rank's interval


@dataclass(frozen=True)
class Column:
    title: str
    kind: Kind = "number"
    falling: bool = False  # the first click sorts the highest up
    note: str = ""


@dataclass(frozen=True)
class Cell:
    """shown: text, or HTML of our own. value: what to sort by, None last. mark: best, equal, absent, partial or ''."""

    shown: str | Markup
    value: float | str | None = None
    mark: str = ""
    plot: dict[str, float] | None = None


@dataclass(frozen=True)
class Line:
    """What a row of a table is about: an entrant with its method, its standing, and what its score is."""

    entrant: str
    method: str
    standing: str
    scored: str
    cells: list[Cell]


@dataclass(frozen=True)
class Sheet:
    id: str
    caption: str
    columns: list[Column]
    lines: list[Line]
    tagged: bool = False  # whether incomplete methods say so


def interval(mean: float, low: float, high: float, last: int) -> dict[str, float]:
    """Where to draw a mean rank and its interval between rank 1 and the last, in pixels from the left."""
    ends = {"low": low, "high": high, "mean": mean}
    step = (PLOT_WIDTH - 8) / max(last - 1, 1)
    return {name: round(4 + step * (rank - 1), 1) for name, rank in ends.items() if finite(rank)}
