"""What the rows of a board can tell apart: every method against a control, and tiers of what is not told apart.

Where the board has datasets enough for it, the dataset is the unit of a test (Wilcoxon's signed-rank test), and what is
told can be expected of other datasets. Where it has not, the seeds of each task are (`stratified_difference`), and what
is told holds for the datasets of the board. Mean ranks order the methods but decide no test: whether two methods differ
must not depend on who else takes part (A. Benavoli, G. Corani, F. Mangili, JMLR 17, 2016).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd

from .board import Board
from .statistics import (
    ALPHA,
    MIN_SEEDS,
    Difference,
    adjusted,
    bootstrap_mean,
    contrary,
    datasets_needed,
    detectable,
    ranks,
    signed_ranks,
    stratified_difference,
    wilcoxon_p,
)
from .text import count

CONTROLS = ("fedavg", "local")  # whom every method is held against, on the boards that have them


@dataclass(frozen=True, eq=False)
class Contest:
    """The tests between the ranked entrants of a board."""

    board: Board

    @cached_property
    def order(self) -> list[str]:
        """The ranked entrants by mean rank over datasets."""
        mean_rank = ranks(self.board.by_dataset).mean().round(12)
        return list(mean_rank.sort_values(kind="stable").index)

    @cached_property
    def controls(self) -> list[str]:
        return [name for name in CONTROLS if name in self.board.ranked and len(self.board.ranked) > 1]

    @cached_property
    def comparisons(self) -> int:
        """How many tests are corrected together: each control against all others, or the first against the rest."""
        return max(len(self.controls), 1) * (len(self.board.ranked) - 1)

    @cached_property
    def unit(self) -> Literal["dataset", "seed", "none"]:
        if len(self.board.ranked) < 2:
            return "none"
        if len(self.board.by_dataset) >= datasets_needed(self.comparisons):
            return "dataset"
        return "seed" if self._strata else "none"

    @cached_property
    def against(self) -> dict[str, dict[str, Difference]]:
        """For each control, every other method minus the control; p after Holm over all of these."""
        names = {(one, name): (name, one) for one in self.controls for name in self.order if name != one}
        found = adjusted({pair: self.difference(*sides) for pair, sides in names.items()})
        return {one: {name: found[one, name] for name in self.order if name != one} for one in self.controls}

    @cached_property
    def tiers(self) -> dict[str, int]:
        """Tier of each ranked entrant, in order; empty without a test.

        The first by mean rank and all that are not told below it are tier 1; the first of the rest and all that are not
        told below it are tier 2; and so on. Holm corrects for all that are held against the same first.
        """
        found: dict[str, int] = {}
        rest = self.order if self.unit != "none" else []
        while rest:
            tier, below = max(found.values(), default=0) + 1, self._below(rest[0], rest[1:])
            found |= {name: tier for name in rest if name not in below}
            rest = [name for name in rest if name in below]
        return found

    @cached_property
    def text(self) -> str:
        """What the tests are, and what follows from them."""
        if len(self.board.ranked) < 2:
            return "Fewer than two methods are complete: there is nothing to compare."
        n, needed = len(self.board.by_dataset), datasets_needed(self.comparisons)
        if self.unit == "dataset":
            return (
                f"Tests pair {n} datasets (Wilcoxon, Holm, 5%), so that what they tell apart can be expected of other "
                f"datasets. At the strictest of Holm's levels a pair is told apart if it lies the other way on at most "
                f"{contrary(n, self.comparisons)} of them, the least different. {self._leaders}"
            )
        if self.unit == "none":
            return (
                f"Too few seeds for a test (at least {MIN_SEEDS} on a task needed), and too few datasets "
                f"({n} of {needed}): nothing is told apart, and the order only describes these rows."
            )
        tested = self.board.rows.loc[self.board.rows["task_label"].isin(self._strata), "dataset"].nunique()
        return (
            f"Tests pair the seeds of each task (t tests stratified by task, Holm, 5%) on {count(tested, 'dataset')}: "
            f"what they tell apart holds for these tasks and settings. Of other datasets they say nothing: Wilcoxon's "
            f"test of {count(self.comparisons, 'comparison')} would need {needed} datasets, and there "
            f"{'is' if n == 1 else 'are'} {n}. {self._power}{self._leaders}"
        )

    def difference(self, first: str, second: str) -> Difference:
        """First minus second, mean over datasets, with a 95% interval; p before any correction, NaN without a test."""
        if self.unit == "none":
            return Difference(np.nan, np.nan, np.nan, np.nan)
        if self.unit == "seed":
            return stratified_difference(self._gaps(first, second), self._weights)
        gap = self.board.by_dataset[first] - self.board.by_dataset[second]
        low, high = bootstrap_mean(gap.to_numpy()[:, None])[0]
        mean = float(gap.mean())  # an outlier may turn its sign against that of the ranks: then nothing is told
        return Difference(mean, low, high, wilcoxon_p(gap) if mean * signed_ranks(gap) > 0 else 1.0)

    def _gaps(self, first: str, second: str) -> list[np.ndarray]:
        """First minus second, the seeds of each task of `_strata`."""
        return [own[first].to_numpy() - own[second].to_numpy() for own in self._strata.values()]

    @property
    def _power(self) -> str:
        """How large a difference must be to be told, of the spread of these rows."""
        if not self.controls:
            return ""
        one = self.controls[0]
        gaps = [self._gaps(name, one) for name in self.order if name != one]
        found = [detectable(own, self._weights, ALPHA / self.comparisons) for own in gaps]
        return (
            f"A true difference from {one} would be told in four of five repetitions from {100 * np.median(found):.1f} "
            f"points on (median over methods; from {100 * max(found):.1f} for the one that varies most; strictest of "
            f"Holm's levels). "
        )

    @property
    def _leaders(self) -> str:
        first = [name for name, tier in self.tiers.items() if tier == 1]
        return f"Tier 1 has {count(len(first), 'method')} of {len(self.order)}."

    def _below(self, leader: str, others: Iterable[str]) -> set[str]:
        found = adjusted({name: self.difference(name, leader) for name in others})
        return {name for name, each in found.items() if each.p <= ALPHA and each.mean < 0}

    @cached_property
    def _strata(self) -> dict[str, pd.DataFrame]:
        """Seeds x ranked entrants of each task that has seeds enough."""
        found = {task: self.board.seeds_of(task)[self.board.ranked] for task in self.board.tasks}
        return {task: own for task, own in found.items() if len(own) >= MIN_SEEDS}

    @cached_property
    def _weights(self) -> list[float]:
        """Of each task of `_strata`: datasets weigh the same, and the tasks of one dataset share its weight."""
        datasets = pd.Series([self.board.task_row(task)["dataset"] for task in self._strata])
        sizes = datasets.map(datasets.value_counts())
        return list(1 / (sizes * datasets.nunique()))
