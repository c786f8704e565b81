"""Two methods side by side: paired differences on every task, and over datasets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ..registry import UserError, did_you_mean
from . import text
from .board import Board
from .build import load_boards
from .statistics import ALPHA, bootstrap_mean, paired_difference, wilcoxon_p, wilcoxon_reach
from .templating import document
from .text import ABSENT, p_value, percent, plain, table


@dataclass(frozen=True)
class Duel:
    """tasks: one line a task where both have a score for some common seed: n, first, second, difference, low, high
    (95% t interval over seeds), p. The rest is over datasets: mean difference, bootstrap interval, wins."""

    suite: str
    first: str
    second: str
    tasks: pd.DataFrame
    datasets: pd.Series
    mean: float
    low: float
    high: float
    verdict: str


def compare(board: Board, first: str, second: str) -> Duel | None:
    """The duel on one board; None where the two never met with the same seed on the same task.

    Raises UserError for a name that is not on the board.
    """
    for name in (first, second):
        if name not in board.entrants:
            raise did_you_mean(name, board.entrants, f"method on board {board.suite!r}")
    lines = []
    for task in board.tasks:
        both = board.seeds_of(task).reindex(columns=[first, second]).dropna()
        if len(both):
            found = paired_difference(both[first], both[second])
            dataset = board.task_row(task)["dataset"]
            lines.append([task, dataset, len(both), both[first].mean(), both[second].mean(), *found])
    if not lines:
        return None
    columns = ["task", "dataset", "n", "first", "second", "difference", "low", "high", "p"]
    tasks = pd.DataFrame(lines, columns=columns)
    datasets = tasks.groupby("dataset", sort=True)["difference"].mean()
    low, high = bootstrap_mean(datasets.to_numpy()[:, None])[0]
    return Duel(board.suite, first, second, tasks, datasets, float(datasets.mean()), low, high, _verdict(datasets))


def _verdict(datasets: pd.Series) -> str:
    n = len(datasets)
    if wilcoxon_reach(n) > ALPHA:
        return f"Too few datasets for a test ({n}; paired Wilcoxon at 5% needs at least 6)."
    p = wilcoxon_p(datasets)
    told = "the two are told apart" if p <= ALPHA else "the two cannot be told apart"
    return f"Paired Wilcoxon test over {n} datasets: {p_value(p)}; {told} at 5%."


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
