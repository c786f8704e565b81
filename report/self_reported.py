"""The list of self-reported results: what others say of their methods, without rank, beside our own runs."""

from __future__ import annotations

from pathlib import Path

from ..benchmark.store.self_reported import SelfReported, self_reported
from .text import markdown_table, md, percent, plain, points

HEADERS = ["suite", "dataset", "method", "submitter", "reported score", "our run", "reported - ours"]
HEAD = """Rows that others have submitted, as they report them. They have no rank: a method ranks by the maintainers'
own run of its code (`fglbench adopt`), whose score is beside it once there is one (percent; seeds in brackets).
"""


def section(results: Path) -> str:
    """The section of the leaderboard file; empty without submissions."""
    rows = [[md(word) for word in line] for line in lines(results)]
    table = markdown_table(rows, HEADERS, "llllrrr")
    return f"\n## Self-reported results\n\n{HEAD}\n{table}\n" if rows else ""


def lines(results: Path) -> list[list[str]]:
    """A line of plain words for each self-reported experiment, in the order of HEADERS."""
    return [_line(each) for each in self_reported(results)]


def _line(each: SelfReported) -> list[str]:
    row = each.row
    data = f"{row.dataset}, {row.partition} x{row.clients}, {row.backbone}"
    theirs, ours = f"{percent(each.theirs)} ({each.seeds})", f"{percent(each.ours)} ({each.our_seeds})"
    gap = points(each.difference)
    words = (plain(word, 200) for word in (row.suite, data, row.method, row.submitter))
    return [*words, theirs, ours if each.our_seeds else "-", gap]
