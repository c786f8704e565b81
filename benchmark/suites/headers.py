"""The boards of the report: their order and their titles."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parent


class _Place(NamedTuple):
    order: int
    title: str


@cache
def _places() -> dict[str, _Place]:
    """`order` and `title` of every suite with an order. Only these keys are looked for: a report needs no engine."""
    found = {}
    for path in FOLDER.glob("*.yaml"):
        text = path.read_text(encoding="utf-8")
        if order := re.search(r"^order: *(\d+)", text, re.MULTILINE):
            title = re.search(r'^title: *"(.+)"', text, re.MULTILINE)
            found[path.stem] = _Place(int(order[1]), title[1] if title else path.stem)
    return found


def is_board(suite: str) -> bool:
    """Whether a suite is one of the benchmark's boards."""
    return suite in _places()


def board_order(suite: str) -> tuple[float, str]:
    """What suites are sorted by: the `order` of their file, then those without one by name, `quick` at the end."""
    place = _places().get(suite)
    return (math.inf, "") if suite == "quick" else (place.order if place else 1e9, suite)


def board_title(suite: str) -> str:
    """What a board is called; a suite without a title is called by its name."""
    return _places()[suite].title if is_board(suite) else suite
