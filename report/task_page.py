"""What there is for each task: a page of every entrant's mean ± std and cost, and the same figures as CSV."""

from __future__ import annotations

import io

import pandas as pd

from . import origins as provenance
from .board import MEASURES
from .gaps import troubles
from .markdown import markdown
from .standings import Standings
from .tables import legend, one_task, order
from .text import csv_text, finite, literal, md, plain


def task_markdown(standings: Standings, task: str) -> str:
    """The page of one task."""
    board = standings.board
    own = board.rows[board.rows["task_label"] == task]
    parts = [
        "<!-- Made by `fglbench report`. Do not edit. -->",
        f"# {md(task)}",
        "",
        f"Suite [{md(board.suite)}](../../LEADERBOARD.md). {provenance.task_sentence(board, task)}",
        "",
        markdown(one_task(standings, task)),
        "",
        f"{legend(board)} *Italics*: reference, not a federated method. Traffic: bytes of all clients, up and down, to"
        " the best round. The same figures with more digits are in the CSV file beside this one.",
        "",
        literal(scored_as(own)),
        "",
    ]
    lines = [f"- {literal(line)}" for line in troubles(own)]
    return "\n".join([*parts, "Runs without a score:", "", *lines, ""] if lines else parts)


def scored_as(rows: pd.DataFrame) -> str:
    """What the score of a task is, with the methods where it is not one thing for all. Plain text."""
    kinds = rows[rows["status"] == "ok"].groupby("score_metric", sort=True)["entrant"].unique()
    names = [f" for {', '.join(map(plain, sorted(own)))}" if len(kinds) > 1 else "" for own in kinds]
    return f"Score: {'; '.join(plain(kind) + who for kind, who in zip(kinds.index, names, strict=True))}."


def task_csv(standings: Standings, task: str) -> str:
    """The same as CSV: means over seeds as fractions, bytes, seconds; six significant digits."""
    lines = standings.board.summary.xs(task, level="task_label").loc[order(standings.board, task)]
    best, equal = standings.leaders[task]
    frame = pd.DataFrame({"method": [csv_text(name) for name in lines.index]}, index=lines.index)
    frame["n"] = lines["n"]
    frame["score"], frame["score_std"] = lines["score"], lines["score_std"]
    frame["standing"] = ["best" if n in best else "equal" if n in equal else "" for n in lines.index]
    for measure in MEASURES[1:]:
        frame[measure] = lines[measure]
    for column in frame.columns.difference(["method", "n", "standing"]):
        frame[column] = [f"{value:.6g}" if finite(value) else "" for value in frame[column]]
    buffer = io.StringIO()
    frame.to_csv(buffer, index=False, lineterminator="\n")
    return buffer.getvalue()
