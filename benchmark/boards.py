"""The order in which the boards of the suites stand in the report."""

from __future__ import annotations

import math
import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "suites"


@cache
def _orders() -> dict[str, int]:
    """The `order` of every suite that has one. Only this key is looked for: a report needs no engine."""
    found = {}
    for path in FOLDER.glob("*.yaml"):
        if line := re.search(r"^order: *(\d+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found[path.stem] = int(line[1])
    return found


def is_board(suite: str) -> bool:
    """Whether a suite is one of the benchmark's boards."""
    return suite in _orders()


def board_order(suite: str) -> tuple[float, str]:
    """What suites are sorted by: the `order` of their file, then those without one by name, `quick` at the end."""
    return (math.inf, "") if suite == "quick" else (_orders().get(suite, 1e9), suite)
