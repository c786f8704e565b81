"""The table of what crosses the wire: what each method's clients upload, as `benchmark/contract/crossing.py` found it.

It is checked in, so that a report can say it and needs no method for it.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

FILE = Path(__file__).with_suffix(".csv")


@cache
def stored() -> dict[str, str]:
    """What the file says that methods upload: "models", "prototypes, classes held", "nothing"."""
    with FILE.open(newline="", encoding="utf-8") as stream:
        return {row["method"]: row["uploads"] for row in csv.DictReader(stream)}
