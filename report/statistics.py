"""What the scores can say: ranks, intervals, tests. Pure functions; scores are datasets x methods.

The dataset is the unit: seeds are averaged before anything here is called, except in `paired_difference`,
`stratified_difference` and `indistinguishable`, which take the seed as the unit. References: J. Demšar, Statistical
comparisons of classifiers over multiple data sets, JMLR 7 (2006); S. Holm, A simple sequentially rejective multiple
test procedure, Scandinavian Journal of Statistics 6 (1979); B. L. Welch, The generalization of "Student's" problem when
several different population variances are involved, Biometrika 34 (1947).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

ALPHA = 0.05
LEVEL = 0.95
POWER = 0.8  # with which a difference is called detectable
DRAWS = 10_000
MIN_SEEDS = 3  # of a pair; below, nothing is said of a difference on one task
Name = TypeVar("Name", bound=Hashable)
DECIMALS = 12  # equal accuracies that were summed in another order are still ties


def ranks(scores: pd.DataFrame) -> pd.DataFrame:
    """Rank 1 = highest score in each row; ties share their mean rank."""
    return scores.round(DECIMALS).rank(axis=1, ascending=False, method="average")


def wins(scores: pd.DataFrame) -> pd.Series:
    """For each column, in how many rows it has the highest score; a tie counts for all who share it."""
    rounded = scores.round(DECIMALS)
    return rounded.eq(rounded.max(axis=1), axis=0).sum()


def bootstrap_mean(values: ArrayLike, draws: int = DRAWS) -> NDArray[np.float64]:
    """95% percentile bootstrap intervals of column means; rows (n, k) are resampled jointly.

    Returns (k, 2), lower and upper bounds; NaN where there are fewer than two rows. Equal rows have equal draws.
    """
    array = np.asarray(values, dtype=float)
    n, k = array.shape
    if n < 2:
        return np.full((k, 2), np.nan)
    tail = (1 - LEVEL) / 2
    return np.quantile(_picked(n, draws) @ array / n, [tail, 1 - tail], axis=0).T


@lru_cache(maxsize=4)  # of the datasets of a board: all pairs of methods have the same draws
def _picked(n: int, draws: int) -> NDArray[np.int64]:
    """(draws, n): how often each of n rows is in a resample of n."""
    return np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=draws)


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's adjusted p-values (m,), in the order given."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1.0)[np.argsort(order)]


def wilcoxon_p(differences: ArrayLike) -> float:
    """Two-sided p of Wilcoxon's signed-rank test on paired differences (n,); 1 when all are zero."""
    from scipy import stats  # half a second, and few boards have datasets enough for the test

    d = np.round(np.asarray(differences, dtype=float), DECIMALS)
    return float(stats.wilcoxon(d).pvalue) if np.any(d) else 1.0


def wilcoxon_reach(datasets: int) -> float:
    """The smallest two-sided p that the signed-rank test can give with so many datasets: 2 / 2^n."""
    return 2.0 ** (1 - datasets)


def datasets_needed(comparisons: int) -> int:
    """With how many datasets the signed-rank test can tell one of so many comparisons after Holm's correction."""
    return next(n for n in range(1, 64) if wilcoxon_reach(n) * comparisons <= ALPHA)


def contrary(datasets: int, comparisons: int) -> int:
    """On how many datasets two methods may lie the other way and still be told apart by the signed-rank test.

    At the first and strictest of Holm's levels, and if these are the datasets with the smallest differences.
    """
    ranked = np.arange(1.0, datasets + 1)
    signed = (np.where(ranked <= other, -ranked, ranked) for other in range(datasets // 2 + 1))
    told = [wilcoxon_p(own) * comparisons <= ALPHA for own in signed]
    return told.index(False) - 1


def signed_ranks(differences: ArrayLike) -> float:
    """The sum of the signed ranks of differences (n,): its sign is the side that Wilcoxon's test is for."""
    from scipy import stats

    d = np.round(np.asarray(differences, dtype=float), DECIMALS)
    return float(np.sum(np.sign(d) * stats.rankdata(np.abs(d))))


class Difference(NamedTuple):
    """A mean of paired differences with its 95% t interval and p; bounds and p are NaN for fewer than two pairs."""

    mean: float
    low: float
    high: float
    p: float


def paired_difference(first: ArrayLike, second: ArrayLike) -> Difference:
    """First - second over paired seeds (n,): Student's paired t test, which is that of one stratum."""
    d = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    if len(d) < 2:
        return Difference(float(d[0].round(DECIMALS)) if len(d) else np.nan, np.nan, np.nan, np.nan)
    return stratified_difference([d], [1.0])


def stratified_difference(strata: Sequence[ArrayLike], weights: ArrayLike) -> Difference:
    """The weighted sum of the mean paired differences of some tasks, each (n,) with n >= 2 over its seeds.

    The tasks are given and the seeds are drawn, so that it holds for these tasks and not for others. Welch's test with
    Satterthwaite's degrees of freedom: tasks may have their own spread and number of seeds.
    """
    samples = [np.round(np.asarray(own, dtype=float), DECIMALS) for own in strata]
    mean = float(np.sum(np.asarray(weights, dtype=float) * [own.mean() for own in samples]))
    error, freedom = _error(samples, weights)
    if error == 0:  # no spread: Student's t is not defined, and the answer is plain
        return Difference(mean, mean, mean, 1.0 if round(mean, DECIMALS) == 0 else 0.0)
    half = float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * error
    return Difference(mean, mean - half, mean + half, float(2 * special.stdtr(freedom, -abs(mean) / error)))


def detectable(strata: Sequence[ArrayLike], weights: ArrayLike, alpha: float) -> float:
    """The true difference that `stratified_difference` would tell from zero at level alpha in four of five repetitions.

    Of the spread that these tasks show: the shift at which a noncentral t is beyond the test's bound so often.
    """
    error, freedom = _error([np.round(np.asarray(own, dtype=float), DECIMALS) for own in strata], weights)
    if error == 0:
        return 0.0
    bound = special.stdtrit(freedom, 1 - alpha / 2)
    return error * float(special.nctdtrinc(freedom, 1 - POWER, bound))


def _error(samples: Sequence[NDArray[np.float64]], weights: ArrayLike) -> tuple[float, float]:
    """Standard error of a weighted sum of means, and Satterthwaite's degrees of freedom; (0, nan) without spread."""
    sizes = np.array([len(own) for own in samples])
    parts = np.asarray(weights, dtype=float) ** 2 * [own.var(ddof=1) for own in samples] / sizes
    error = float(np.sqrt(parts.sum()))
    if error <= 10.0**-DECIMALS:
        return 0.0, np.nan
    return error, float(parts.sum() ** 2 / np.sum(parts**2 / (sizes - 1)))


def adjusted(found: Mapping[Name, Difference]) -> dict[Name, Difference]:
    """The same with Holm's p over all of them; the intervals stay those of each alone."""
    p = holm([each.p for each in found.values()])
    return {name: each._replace(p=float(own)) for (name, each), own in zip(found.items(), p, strict=True)}


def indistinguishable(scores: pd.DataFrame, best: str) -> set[str]:
    """Columns of one dataset's seeds x methods that paired t-tests with Holm's correction do not set apart from `best`.

    Pairs with fewer than three common seeds cannot be judged and are left out.
    """
    gaps = {name: (scores[best] - scores[name]).to_numpy(dtype=float) for name in scores.columns.drop(best)}
    pairs = {name: gap[~np.isnan(gap)] for name, gap in gaps.items()}
    found = {name: paired_difference(gap, 0.0) for name, gap in pairs.items() if len(gap) >= MIN_SEEDS}
    return {name for name, each in adjusted(found).items() if each.p > ALPHA}


def pareto_front(cost: ArrayLike, score: ArrayLike) -> NDArray[np.bool_]:
    """(n,) True where no other point costs no more and scores no less, with one of the two strictly."""
    c, s = np.asarray(cost, dtype=float), np.asarray(score, dtype=float)
    no_worse = (c[None, :] <= c[:, None]) & (s[None, :] >= s[:, None])
    better = (c[None, :] < c[:, None]) | (s[None, :] > s[:, None])
    return np.asarray(~(no_worse & better).any(axis=1))
