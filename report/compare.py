"""Two methods side by side on the boards of a results folder: for programs, and as text for a terminal."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

from ..registry import UserError, did_you_mean
from . import text
from .build import load_boards
from .duel import Duel, compare
from .templating import document
from .text import ABSENT, percent, plain, table


def duels(first: str, second: str, suite: str | None, results: Path) -> list[Duel]:
    """The duels of two methods on every board of a results folder where both have rows, or on one of them.

    Raises UserError for an unknown suite or method, one method twice, and two that never met.
    """
    boards = {board.suite: board for board in load_boards(results)}
    if suite is not None and suite not in boards:
        raise did_you_mean(suite, boards, "suite with results")
    chosen = [board for name, board in boards.items() if suite in (None, name)]
    known = set().union(*(board.entrants for board in chosen))
    for name in (first, second):
        if name not in known:
            raise did_you_mean(name, known, "method with results")
    if first == second:
        raise UserError(f"{first!r} cannot be compared with itself; name two methods")
    met = (compare(board, first, second) for board in chosen if {first, second} <= set(board.entrants))
    found = list(filter(None, met))
    if not found:
        raise UserError(f"{first!r} and {second!r} have no dataset and seed in common; run both on the same suite")
    return found


def as_data(duel: Duel) -> dict[str, Any]:
    """A duel for programs: scores and differences as fractions; None where there is no interval or p."""
    tasks = duel.tasks.astype(object).where(duel.tasks.notna(), None)
    interval = [value if math.isfinite(value) else None for value in (duel.low, duel.high)]
    return {
        "suite": duel.suite, "first": duel.first, "second": duel.second, "tasks": tasks.to_dict("records"),
        "datasets": duel.datasets.to_dict(), "mean": duel.mean, "interval": interval, "verdict": duel.verdict,
    }  # fmt: skip


def shown(duel: Duel) -> str:
    """The duel as text for a terminal, differences in percentage points."""
    points = partial(text.points, digits=2)
    rows = [
        [
            plain(line["task"], 40), str(line["n"]), percent(line["first"]), percent(line["second"]),
            points(line["difference"]), f"{points(line['low'])} to {points(line['high'])}" if line["n"] > 1 else ABSENT,
        ]
        for line in duel.tasks.to_dict("records")
    ]  # fmt: skip
    headers = ["task", "seeds", plain(duel.first, 24), plain(duel.second, 24), "difference", "95% interval"]
    rounded = duel.datasets.round(12)
    signs = {"higher": (rounded > 0).sum(), "equal": (rounded == 0).sum(), "lower": (rounded < 0).sum()}
    return document("duel.txt", duel=duel, table=table(rows, headers, "lrrrrr"), points=points, **signs)
