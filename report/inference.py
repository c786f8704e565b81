"""Compare methods over a table of scores: one inference for all boards.

Unit: the dataset if a board has at least MIN_DATASETS datasets of one metric (results then apply to similar datasets),
else the seed of each dataset, with the mean over its tasks (results then apply to these tasks only). Each difference
has a posterior with an interval and a verdict that agree (`statistics.Posterior`). Mean ranks order the methods but
decide no verdict: whether two methods differ must not depend on the other methods (A. Benavoli, G. Corani, F. Mangili,
JMLR 17, 2016).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.stats import false_discovery_control

from .statistics import (
    ALPHA,
    MIN_SEEDS,
    Posterior,
    bootstrap_mean,
    letters,
    paired_difference,
    prediction_interval,
    ranks,
    seed_posterior,
    signed_rank_posterior,
    wins,
)
from .text import count

FEDAVG, LOCAL = "fedavg", "local"
BASELINES = (FEDAVG, LOCAL)  # every method is compared with these if they are ranked
MIN_DATASETS = 6  # with fewer, the signed-rank test cannot reach 5%
UNKNOWN = Posterior(*[float("nan")] * 6)
RULE = (
    f"If a board has at least {MIN_DATASETS} datasets of one metric, each dataset is one observation, and a result "
    "applies to similar datasets. If not, the seeds of each dataset (means over its tasks) are the observations, and a "
    "result applies to these tasks only"
)


@dataclass(frozen=True, eq=False)
class Inference:
    """Comparisons between methods.

    by_dataset: scores, datasets x methods, of all metrics: for ranks. tasks: task -> scores, seeds x methods.
    dataset_of: task -> dataset. averaged: the datasets of the main metric (None: all). Means and differences are over
    these only: metrics are never averaged together.
    """

    by_dataset: pd.DataFrame
    tasks: Mapping[Any, pd.DataFrame]
    dataset_of: Mapping[Any, str]
    averaged: Sequence[str] | None = None

    @property
    def methods(self) -> list[str]:
        return list(self.by_dataset.columns)

    @cached_property
    def scores(self) -> pd.DataFrame:
        """Datasets of the main metric x methods."""
        return self.by_dataset if self.averaged is None else self.by_dataset.loc[list(self.averaged)]

    @cached_property
    def order(self) -> list[str]:
        """The methods by mean rank over datasets."""
        mean_rank = ranks(self.by_dataset).mean().round(12)
        return list(mean_rank.sort_values(kind="stable").index)

    @cached_property
    def baselines(self) -> list[str]:
        """Those of BASELINES that are among the methods; empty for one method."""
        return [name for name in BASELINES if name in self.methods and len(self.methods) > 1]

    @cached_property
    def unit(self) -> Literal["dataset", "seed", "none"]:
        """The unit of the comparisons; "none" if there are too few datasets and seeds."""
        if len(self.methods) < 2:
            return "none"
        if len(self.scores) >= MIN_DATASETS:
            return "dataset"
        return "seed" if self._strata else "none"

    @cached_property
    def against(self) -> dict[str, dict[str, Posterior]]:
        """For each baseline: every other method minus the baseline."""
        return {
            base: {name: self.difference(name, base) for name in self.order if name != base} for base in self.baselines
        }

    def difference(self, first: str, second: str) -> Posterior:
        """First minus second, mean over datasets; all NaN without a unit."""
        if self.unit == "none":
            return UNKNOWN
        if self.unit == "seed":
            gaps = [seeds[first].to_numpy() - seeds[second].to_numpy() for seeds in self._strata.values()]
            return seed_posterior(gaps)
        return signed_rank_posterior(self.scores[first] - self.scores[second])

    def new_dataset(self, first: str, second: str) -> tuple[float, float]:
        """95% prediction interval of first minus second on a new dataset; NaN if the unit is not the dataset."""
        gaps = self.scores[first] - self.scores[second]
        return prediction_interval(gaps) if self.unit == "dataset" else (np.nan, np.nan)

    @cached_property
    def task_counts(self) -> dict[str, dict[str, tuple[int, int]]]:
        """For each baseline and method: tasks on which the method is significantly higher, and lower.

        Paired t tests over the seeds of each task of any metric, with Benjamini and Hochberg's correction at 5% over
        all tests. The pair of the two baselines is tested once, so the counts of the two are consistent.
        """
        tested = [task for task in self.tasks.values() if len(task) >= MIN_SEEDS]
        pairs = dict.fromkeys(
            tuple(sorted((name, base))) for base in self.baselines for name in self.order if name != base
        )
        differences = {pair: [paired_difference(task[pair[0]], task[pair[1]]) for task in tested] for pair in pairs}
        adjusted = iter(false_discovery_control([gap.p for gaps in differences.values() for gap in gaps]))
        signs = {
            pair: [np.sign(gap.mean) * (next(adjusted) <= ALPHA) for gap in gaps] for pair, gaps in differences.items()
        }

        def outcome(name: str, base: str) -> tuple[int, int]:
            outcomes = signs[min(name, base), max(name, base)]
            return (outcomes.count(1), outcomes.count(-1)) if name < base else (outcomes.count(-1), outcomes.count(1))

        return {base: {name: outcome(name, base) for name in self.order if name != base} for base in self.baselines}

    @cached_property
    def groups(self) -> dict[str, str]:
        """Method -> letters, by mean rank: methods that share a letter do not differ. Empty without a unit."""
        if self.unit == "none":
            return {}
        return letters(self.order, lambda a, b: self.difference(a, b).verdict in ("better", "worse"))

    @cached_property
    def leaders(self) -> list[str]:
        """The methods that share a letter with the first by mean rank; empty without a unit."""
        first = set(self.groups[self.order[0]]) if self.groups else set()
        return [name for name, group in self.groups.items() if first & set(group)]

    @cached_property
    def table(self) -> pd.DataFrame:
        """Methods by mean rank: group (letters), mean_rank, its 95% bootstrap interval (low, high), score (mean over
        datasets of the main metric), wins."""
        by_dataset = ranks(self.by_dataset)
        table = pd.DataFrame({"mean_rank": by_dataset.mean().round(12)})
        table[["low", "high"]] = bootstrap_mean(by_dataset)
        table["group"] = [self.groups.get(name, "") for name in table.index]
        table["score"] = self.scores.mean()
        table["wins"] = wins(self.by_dataset)
        return table.sort_values("mean_rank", kind="stable")

    @cached_property
    def text(self) -> str:
        """The unit and the outcome in two sentences."""
        if len(self.methods) < 2:
            return "Fewer than two methods are complete: there is nothing to compare."
        if self.unit == "none":
            return f"{RULE}. Here both are too few (a task needs {MIN_SEEDS} seeds): nothing is compared."
        here = f"{len(self.scores)} datasets: results apply to similar datasets"
        if self.unit == "seed":
            names = f" ({', '.join(self.tested)})" if len(self.tested) < len(self.by_dataset) else ""
            tested = f"{count(len(self.tested), 'dataset')}{names}"
            here = f"the seeds of tasks on {tested}: results apply to the mean over these tasks only"
        return (
            f"Methods are compared over {here}. Two that share a letter are not shown to differ by more than one "
            f"point; {len(self.leaders) - 1} of the other {len(self.order) - 1} share one with the first by mean rank."
        )

    @property
    def tested(self) -> list[str]:
        """The datasets with a task of enough seeds: those of the differences if the unit is the seed."""
        return list(self._strata)

    @cached_property
    def _strata(self) -> dict[str, pd.DataFrame]:
        """Dataset -> seeds x methods, mean over its tasks, which are not independent."""
        tasks: dict[str, list[pd.DataFrame]] = {}
        for task, seeds in self.tasks.items():
            dataset = self.dataset_of[task]
            if len(seeds) >= MIN_SEEDS and dataset in self.scores.index:
                tasks.setdefault(dataset, []).append(seeds[self.methods])
        strata = {}
        for dataset, (first, *others) in tasks.items():
            joined = sum(others, first).dropna() / (1 + len(others))  # the seeds that all tasks have
            if len(joined) >= MIN_SEEDS:
                strata[dataset] = joined
        return strata
