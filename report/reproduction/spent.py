"""What the rows of a results folder took, suite by suite."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ...benchmark.store.schema import TAKEN_OVER
from ..board import Board
from ..text import md, table as markdown

HOUR = 3600.0


def cost_table(boards: Sequence[Board]) -> str:
    """Rows and processor hours of each suite and of all, dearest first. A row counts where it was run, not where it was
    taken over; one without processor time (older ones, one thread each) with the time that its training took."""
    lines = sorted((_line(board) for board in boards), key=lambda line: (-line[2], line[0]))
    total = ("all", sum(rows for _, rows, _ in lines), sum(hours for *_, hours in lines))
    cells = [[md(suite), str(rows), f"{hours:.1f}"] for suite, rows, hours in (*lines, total)]
    return markdown(cells, ["Suite", "Rows run", "CPU hours"], "lrr")


def _line(board: Board) -> tuple[str, int, float]:
    own = board.rows[~board.rows["notes"].astype(str).str.contains(rf"(?:^|; ){TAKEN_OVER}")]
    cpu, training = (pd.to_numeric(own[clock], errors="coerce") for clock in ("cpu_seconds", "train_seconds"))
    return board.suite, len(own), float(cpu.fillna(training).sum()) / HOUR
