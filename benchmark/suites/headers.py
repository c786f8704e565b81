"""The boards of the report: their order and their titles."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

FOLDER = Path(__file__).parent
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with it


@cache
def _boards() -> dict[str, tuple[int, str]]:
    """`order` and `title` of every suite with an order. A report needs nothing else of a file, and no engine."""
    files = {path.stem: yaml.load(path.read_text(encoding="utf-8"), LOADER) for path in FOLDER.glob("*.yaml")}
    return {name: (own["order"], own.get("title") or name) for name, own in files.items() if "order" in own}


def is_board(suite: str) -> bool:
    """Whether a suite is one of the benchmark's boards."""
    return suite in _boards()


def board_order(suite: str) -> tuple[bool, bool, int, str]:
    """What suites are sorted by: the `order` of their file, then those without one by name, `quick` at the end."""
    order, _ = _boards().get(suite, (0, ""))
    return suite == "quick", not is_board(suite), order, suite


def board_title(suite: str) -> str:
    """What a board is called; a suite without a title is called by its name."""
    return _boards()[suite][1] if is_board(suite) else suite
