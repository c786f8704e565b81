"""What there is for each task: a page of every entrant's mean ± std and cost, and the same figures as CSV."""

from __future__ import annotations

import pandas as pd

from .board import MEASURES
from .standings import Standings
from .tables import order
from .templating import document
from .text import csv_text


def task_markdown(standings: Standings, task: str) -> str:
    """The page of one task."""
    return document("task.md", standings=standings, board=standings.board, task=task)


def task_csv(standings: Standings, task: str) -> str:
    """The same as CSV: means over seeds as fractions, bytes, seconds; six significant digits."""
    lines = standings.board.summary.xs(task, level="task_label").loc[order(standings.board, task)]
    best, equal = standings.leaders[task]
    frame = pd.DataFrame({"method": [csv_text(name) for name in lines.index]}, index=lines.index)
    frame[["n", "score", "score_std"]] = lines[["n", "score", "score_std"]]
    frame["standing"] = ["best" if n in best else "equal" if n in equal else "" for n in lines.index]
    frame[MEASURES[1:]] = lines[MEASURES[1:]]
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")
