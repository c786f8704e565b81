"""Two methods of a board, task by task: paired differences, and what they say over datasets."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from ..registry import did_you_mean
from .board import Board
from .statistics import ALPHA, bootstrap_mean, paired_difference, wilcoxon_p, wilcoxon_reach
from .text import p_value


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
