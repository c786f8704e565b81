"""Why there is no score: what failed, was skipped or was not run, told once for equal reasons. Plain text."""

from __future__ import annotations

import pandas as pd

from .board import Board
from .text import plain, spans


def missing(board: Board, entrant: str) -> list[str]:
    """What an entrant lacks, one line a task: the seeds and why."""
    own = board.rows[board.rows["entrant"] == entrant]
    lines = []
    for task in board.tasks:
        if board.full.loc[task, entrant]:
            continue
        cells = own[(own["task_label"] == task) & own["seed"].isin(board.expected[task])]
        scored = cells["seed"][cells["score"].notna() & (cells["status"] == "ok")]
        lacking = set(board.expected[task]) - set(scored)
        why = reasons(cells[cells["seed"].isin(lacking)])
        absent = lacking - set(cells["seed"])
        if absent:
            why.append("not run" if len(absent) == len(board.expected[task]) else f"seed {spans(absent)} not run")
        lines.append(f"{plain(task)}: {'; '.join(why)}")
    return lines


def reasons(rows: pd.DataFrame) -> list[str]:
    """Why rows have no score: 'failed (seed 1, 3): division by zero'."""
    found = []
    for (status, error), own in rows.groupby(["status", "error"], sort=True):
        word = "no score" if status == "ok" else status
        seeds = f" (seed {spans(own['seed'])})" if status != "skipped" else ""
        found.append(f"{word}{seeds}: {plain(error, 160)}" if error else f"{word}{seeds}")
    return found


def troubles(rows: pd.DataFrame) -> list[str]:
    """The failed and skipped cells of a task, one line an entrant and reason."""
    bad = rows[rows["status"] != "ok"]
    return [
        f"{plain(name)}: {status} (seed {spans(own['seed'])})" + (f": {plain(error)}" if error else "")
        for (name, status, error), own in bad.groupby(["entrant", "status", "error"], sort=True)
    ]


def dead(board: Board) -> list[str]:
    """The tasks without any score, and why."""
    why = {task: "; ".join(reasons(board.rows_of(task))) for task in board.dead_tasks}
    return [f"{plain(task)}: {reason or 'no score was recorded'}" for task, reason in why.items()]


def scored_as(rows: pd.DataFrame) -> str:
    """What the score of a task is, with the methods where it is not one thing for all. Plain text."""
    kinds = rows[rows["status"] == "ok"].groupby("score_metric", sort=True)["entrant"].unique()
    names = [f" for {', '.join(map(plain, sorted(own)))}" if len(kinds) > 1 else "" for own in kinds]
    return f"Score: {'; '.join(plain(kind) + who for kind, who in zip(kinds.index, names, strict=True))}."
