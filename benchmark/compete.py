"""The rank that a method would have on the first tuned node board, from its rows and the package's published scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ..report.statistics import Difference, paired_difference, ranks, tail
from .store.schema import Row
from .suites.catalogue import BOARDS, PublishedTask, published_tasks

Place = tuple[str, str, int]  # dataset, partition, clients
DRAWS = 2000
QUICK = ("cora", "citeseer", "acm")  # datasets of a preview: seconds per run


@dataclass(frozen=True)
class Standing:
    """The rank of a method among `methods` published methods and itself, by mean rank over `datasets`. low, high: 95%
    bootstrap interval over datasets (the rank itself for one dataset). against: differences of the mean score, paired
    over datasets."""

    rank: int
    low: int
    high: int
    methods: int
    datasets: Sequence[str]
    against: Mapping[str, Difference]

    def __str__(self) -> str:
        where = f"on {len(self.datasets)} dataset{'s' * (len(self.datasets) > 1)}"
        span = f" (95% interval {self.low} to {self.high})" if len(self.datasets) > 1 else ""
        return f"you would rank {ordinal(self.rank)}{span} of {self.methods + 1} {where}"


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, 4th, ..., 11th, ..."""
    ending = "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def place_of(task: PublishedTask) -> Place:
    return task.dataset, task.partition, task.clients


def standing(rows: Sequence[Row], method: str) -> Standing | None:
    """Return the rank of a method by its rows; None if no row has a score on a published task.

    Only tasks with a score of the method count. All scores are means over seeds.
    """
    scores: dict[Place, list[float]] = {}
    for row in rows:
        if row.status == "ok" and row.score is not None and row.method == method:
            scores.setdefault((row.dataset, row.partition, row.clients), []).append(row.score)
    tasks = [task for task in published_tasks(BOARDS[0]) if place_of(task) in scores]
    if not tasks:
        return None
    lines = [
        {name: score["score"] for name, score in task.methods.items()}
        | {method: float(np.mean(scores[place_of(task)])), "dataset": task.dataset}
        for task in tasks
    ]
    table = pd.DataFrame(lines).groupby("dataset").mean().dropna(axis=1)
    return standing_of(table, method)


def standing_of(table: pd.DataFrame, method: str) -> Standing:
    """Return the rank of a column of datasets x methods (scores)."""
    table_ranks = ranks(table)
    place = _place(table_ranks.mean(), method)
    draws = np.random.default_rng(0).integers(len(table), size=(DRAWS, len(table)))
    places = [_place(table_ranks.iloc[draw].mean(), method) for draw in draws] if len(table) > 1 else [place]
    lower = tail(max(2, len(table)))
    low, high = (int(value) for value in np.quantile(places, [lower, 1 - lower], method="nearest"))
    against = {str(other): paired_difference(table[method], table[other]) for other in table if other != method}
    return Standing(place, low, high, len(table.columns) - 1, list(table.index), against)


def _place(means: pd.Series, method: str) -> int:
    return 1 + int((means.round(9) < round(float(means[method]), 9)).sum())
