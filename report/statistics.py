"""What the scores can say: ranks, intervals, tests, groups. Pure functions; scores are datasets x methods.

The dataset is the unit: seeds are averaged before anything here is called, except in `paired_difference` and
`indistinguishable`, which look at one dataset and take the seed as the unit. References: J. Demšar, Statistical
comparisons of classifiers over multiple data sets, JMLR 7 (2006); S. Holm, A simple sequentially rejective multiple
test procedure, Scandinavian Journal of Statistics 6 (1979).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.spatial.distance import pdist, squareform

from .text import count, p_value

ALPHA = 0.05
LEVEL = 0.95
DRAWS = 10_000
MIN_DATASETS = 5  # below, Friedman's chi-square approximation and Nemenyi's difference mean nothing
DECIMALS = 12  # equal accuracies that were summed in another order are still ties


def ranks(scores: pd.DataFrame) -> pd.DataFrame:
    """Rank 1 = highest score in each row; ties share their mean rank."""
    return scores.round(DECIMALS).rank(axis=1, ascending=False, method="average")


def wins(scores: pd.DataFrame) -> pd.Series:
    """For each column, in how many rows it has the highest score; a tie counts for all who share it."""
    rounded = scores.round(DECIMALS)
    return rounded.eq(rounded.max(axis=1), axis=0).sum()


def win_rates(scores: pd.DataFrame) -> pd.DataFrame:
    """Entry (a, b): the share of rows in which a scores above b, a tie counting half; the diagonal is NaN."""
    values = scores.round(DECIMALS).to_numpy(dtype=float)
    above = (values[:, :, None] > values[:, None, :]) + 0.5 * (values[:, :, None] == values[:, None, :])
    rates = above.mean(axis=0)
    np.fill_diagonal(rates, np.nan)
    return pd.DataFrame(rates, index=scores.columns, columns=scores.columns)


def bootstrap_mean(values: ArrayLike, draws: int = DRAWS) -> NDArray[np.float64]:
    """95% percentile bootstrap intervals of column means; rows (n, k) are resampled jointly.

    Returns (k, 2), lower and upper bounds; NaN where there are fewer than two rows. Equal rows have equal draws.
    """
    array = np.asarray(values, dtype=float)
    n, k = array.shape
    if n < 2:
        return np.full((k, 2), np.nan)
    picked = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=draws)
    tail = (1 - LEVEL) / 2
    return np.quantile(picked @ array / n, [tail, 1 - tail], axis=0).T


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's adjusted p-values (m,), in the order given."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1.0)[np.argsort(order)]


def wilcoxon_p(differences: ArrayLike) -> float:
    """Two-sided p of Wilcoxon's signed-rank test on paired differences (n,); 1 when all are zero."""
    d = np.round(np.asarray(differences, dtype=float), DECIMALS)
    return float(stats.wilcoxon(d).pvalue) if np.any(d) else 1.0


def wilcoxon_reach(datasets: int) -> float:
    """The smallest two-sided p that the signed-rank test can give with so many datasets: 2 / 2^n."""
    return 2.0 ** (1 - datasets)


def pairwise_wilcoxon(scores: pd.DataFrame) -> pd.DataFrame:
    """Holm-adjusted p of all pairs of columns, (k, k) symmetric with ones on the diagonal."""
    p = pdist(scores.to_numpy(dtype=float).T, lambda first, second: wilcoxon_p(first - second))
    table = squareform(holm(p)) + np.eye(scores.shape[1])
    return pd.DataFrame(table, index=scores.columns, columns=scores.columns)


def friedman_p(scores: pd.DataFrame) -> float:
    """P of Friedman's test over at least three columns; 1 when all rows are ties."""
    values = scores.round(DECIMALS).to_numpy(dtype=float)
    if np.all(values == values[:, :1]):
        return 1.0
    return float(stats.friedmanchisquare(*values.T).pvalue)


def nemenyi_difference(methods: int, datasets: int) -> float:
    """Nemenyi's critical difference of mean ranks (Demšar 2006, section 3.2.2)."""
    quantile = stats.studentized_range.ppf(1 - ALPHA, methods, np.inf) / np.sqrt(2)
    return float(quantile * np.sqrt(methods * (methods + 1) / (6 * datasets)))


@dataclass(frozen=True)
class Separation:
    """Which methods the datasets can tell apart, how that was decided, and the same in one or two sentences.

    different: (k, k) boolean, both axes in order of mean rank. critical_difference only where Nemenyi's was used.
    """

    test: Literal["friedman", "wilcoxon", "nemenyi", "none"]
    different: pd.DataFrame
    text: str
    friedman: float | None = None
    critical_difference: float | None = None

    def groups(self) -> dict[str, int]:
        """Group of each method; empty without a test. A leader's group holds all that are not told apart from it."""
        found: dict[str, int] = {}
        rest = list(self.different.columns) if self.test != "none" else []
        while rest:
            group = max(found.values(), default=0) + 1
            found |= {name: group for name in rest if not self.different.loc[rest[0], name]}
            rest = [name for name in rest if name not in found]
        return found

    def cliques(self) -> list[tuple[int, int]]:
        """Maximal runs (first, last) in rank order, of two or more, in which no two methods are told apart."""
        apart = self.different.to_numpy()
        runs: list[tuple[int, int]] = []
        if self.test == "none":
            return runs
        for first in range(len(apart)):
            last = first
            while last + 1 < len(apart) and not apart[first : last + 1, last + 1].any():
                last += 1
            if last > first and (not runs or last > runs[-1][1]):
                runs.append((first, last))
        return runs


def separate(scores: pd.DataFrame) -> Separation:
    """Friedman first; then Wilcoxon with Holm where the datasets suffice, else Nemenyi; or an honest 'too few'."""
    mean_rank = ranks(scores).mean().round(DECIMALS).sort_values(kind="stable")
    scores = scores[mean_rank.index]
    n, k = scores.shape
    pairs = k * (k - 1) // 2
    nothing = pd.DataFrame(False, index=scores.columns, columns=scores.columns)
    if k < 2:
        return Separation("none", nothing, "Fewer than two methods are complete: there is nothing to compare.")
    needed = next(m for m in range(1, 64) if wilcoxon_reach(m) * pairs <= ALPHA)
    least = MIN_DATASETS if k > 2 else needed
    if n < least:
        return Separation(
            "none",
            nothing,
            f"Too few datasets for a test ({count(n, 'dataset')}, at least {least} needed): "
            "the order is descriptive and no groups are formed.",
        )
    friedman, opening = None, ""
    if k > 2:
        friedman = friedman_p(scores)
        opening = f"Friedman's test over {n} datasets and {k} methods: {p_value(friedman)}. "
        if friedman > ALPHA:
            return Separation("friedman", nothing, opening + "No method can be told apart from another.", friedman)
    if n >= needed:
        adjusted = pairwise_wilcoxon(scores)
        text = f"{opening}Methods are told apart by paired Wilcoxon tests ({count(pairs, 'pair')}, Holm, 5%)."
        return Separation("wilcoxon", adjusted <= ALPHA, text, friedman)
    difference = nemenyi_difference(k, n)
    gaps = np.abs(np.subtract.outer(mean_rank.to_numpy(), mean_rank.to_numpy())) > difference
    text = (
        f"{opening}Too few datasets for paired Wilcoxon tests of all {pairs} pairs (Holm would need {needed}); "
        f"methods are told apart by Nemenyi's critical difference of {difference:.2f} ranks instead."
    )
    return Separation("nemenyi", nothing | gaps, text, friedman, difference)


class Difference(NamedTuple):
    """A mean of paired differences with its 95% t interval and p; bounds and p are NaN for fewer than two pairs."""

    mean: float
    low: float
    high: float
    p: float


def paired_difference(first: ArrayLike, second: ArrayLike) -> Difference:
    """First - second over paired seeds (n,)."""
    d = np.round(np.asarray(first, dtype=float) - np.asarray(second, dtype=float), DECIMALS)
    mean = float(d.mean()) if len(d) else np.nan
    if len(d) < 2:
        return Difference(mean, np.nan, np.nan, np.nan)
    if np.ptp(d) == 0:  # no spread: Student's t is not defined, and the answer is plain
        return Difference(mean, mean, mean, 1.0 if mean == 0 else 0.0)
    test = stats.ttest_1samp(d, 0.0)
    interval = test.confidence_interval(LEVEL)
    return Difference(mean, float(interval.low), float(interval.high), float(test.pvalue))


def indistinguishable(scores: pd.DataFrame, best: str) -> set[str]:
    """Columns of one dataset's seeds x methods that paired t-tests with Holm's correction do not set apart from `best`.

    Pairs with fewer than two common seeds cannot be judged and are left out.
    """
    pairs = {name: scores[[best, name]].dropna() for name in scores.columns.drop(best)}
    p = {name: paired_difference(pair[best], pair[name]).p for name, pair in pairs.items() if len(pair) >= 2}
    adjusted = holm(list(p.values()))
    return {name for name, value in zip(p, adjusted, strict=True) if value > ALPHA}


def pareto_front(cost: ArrayLike, score: ArrayLike) -> NDArray[np.bool_]:
    """(n,) True where no other point costs no more and scores no less, with one of the two strictly."""
    c, s = np.asarray(cost, dtype=float), np.asarray(score, dtype=float)
    no_worse = (c[None, :] <= c[:, None]) & (s[None, :] >= s[:, None])
    better = (c[None, :] < c[:, None]) | (s[None, :] > s[:, None])
    return np.asarray(~(no_worse & better).any(axis=1))
