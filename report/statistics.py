"""Statistics of scores: ranks, intervals, posteriors, tests. Pure functions. Scores are datasets x methods.

Seeds are averaged before these functions are called, except for `paired_difference`, `stratified_difference`,
`seed_posterior` and `indistinguishable`, whose unit is the seed. References: S. Holm, A simple sequentially rejective
multiple test procedure, Scandinavian Journal of Statistics 6 (1979); B. L. Welch, The generalization of "Student's"
problem when several different population variances are involved, Biometrika 34 (1947).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from itertools import combinations_with_replacement
from string import ascii_letters
from typing import Literal, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.stats import qmc

ALPHA = 0.05
LEVEL = 0.95
DRAWS = 20_000
ENUMERATED = 9  # rows of which all resamples are listed: 24,310
MIN_SEEDS = 3  # common seeds of a test on one task
Name = TypeVar("Name", bound=Hashable)
DECIMALS = 12  # equal scores that were summed in another order must be ties


def ranks(scores: pd.DataFrame) -> pd.DataFrame:
    """Rank the scores of each row: 1 is the highest; ties share their mean rank."""
    return scores.round(DECIMALS).rank(axis=1, ascending=False, method="average")


def wins(scores: pd.DataFrame) -> pd.Series:
    """Count the rows in which each column has the highest score; a tie counts for all columns that share it."""
    rounded = scores.round(DECIMALS)
    return rounded.eq(rounded.max(axis=1), axis=0).sum()


def bootstrap_mean(values: ArrayLike) -> NDArray[np.float64]:
    """95% expanded percentile bootstrap intervals of column means; rows (n, k) are resampled jointly.

    Returns (k, 2), lower and upper bounds; NaN for fewer than two rows. Exact up to `ENUMERATED` rows, else of `DRAWS`
    resamples that depend on n only.
    """
    array = np.asarray(values, dtype=float)
    n, k = array.shape
    if n < 2:
        return np.full((k, 2), np.nan)
    counts, chances = _resamples(n)
    means = np.round(counts @ array / n, DECIMALS)
    return np.stack([_lower_bound(means, chances, tail(n)), -_lower_bound(-means, chances, tail(n))], axis=1)


def _lower_bound(means: NDArray[np.float64], chances: NDArray[np.float64], share: float) -> NDArray[np.float64]:
    """(k,) the lowest mean (m, k) of each column whose probability, with that of lower ones, is at least `share`."""
    order = np.argsort(means, axis=0)
    place = (np.cumsum(chances[order], axis=0) >= share).argmax(axis=0)
    columns = np.arange(means.shape[1])
    return np.asarray(means[order[place, columns], columns])


def tail(n: int) -> float:
    """The percentile at the lower bound of a 95% bootstrap interval of n >= 2 observations.

    At 2.5% an interval is too narrow for small n (T. C. Hesterberg, The American Statistician 69, 2015). Here intervals
    of normal data contain the mean in 94% (n = 6) to 95% (n = 12) of the cases, instead of 85% to 90%. With fewer than
    six observations they are still too narrow, because no bound is beyond the least or the largest one.
    """
    return float(special.ndtr(special.stdtrit(n - 1, (1 - LEVEL) / 2) * np.sqrt(n / (n - 1))))


@lru_cache(maxsize=4)  # all tables of a board have the same number of datasets
def _resamples(n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """(m, n) how often each of n rows is in a resample of n rows, and the probabilities (m,) of the m resamples."""
    if n > ENUMERATED:
        drawn = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=DRAWS)
        return drawn, np.full(DRAWS, 1 / DRAWS)
    counts = np.array([np.bincount(rows, minlength=n) for rows in combinations_with_replacement(range(n), n)])
    return counts, np.exp(special.gammaln(n + 1) - special.gammaln(counts + 1).sum(axis=1) - n * np.log(n))


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Holm's adjusted p-values (m,), in the order of the input."""
    p = np.asarray(p_values, dtype=float)
    order = np.argsort(p, kind="stable")
    adjusted = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    return np.minimum(adjusted, 1.0)[np.argsort(order)]


class Difference(NamedTuple):
    """A mean of paired differences with its 95% t interval and p; bounds and p are NaN for fewer than two pairs."""

    mean: float
    low: float
    high: float
    p: float


def paired_difference(first: ArrayLike, second: ArrayLike) -> Difference:
    """First - second over paired seeds (n,): Student's paired t test, as `stratified_difference` of one task."""
    d = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    if len(d) < 2:
        return Difference(float(d[0].round(DECIMALS)) if len(d) else np.nan, np.nan, np.nan, np.nan)
    return stratified_difference([d], [1.0])


def stratified_difference(strata: Sequence[ArrayLike], weights: ArrayLike) -> Difference:
    """The weighted sum of the mean paired differences of some tasks; each stratum (n,), n >= 2, has those of its seeds.

    Tasks are fixed and seeds are random: the result applies to these tasks only. Welch's test with Satterthwaite's
    degrees of freedom: tasks may differ in spread and in the number of seeds.
    """
    samples = [np.round(np.asarray(gaps, dtype=float), DECIMALS) for gaps in strata]
    mean = float(np.sum(np.asarray(weights, dtype=float) * [gaps.mean() for gaps in samples]))
    error, freedom = _error(samples, weights)
    if error == 0:  # without spread Student's t is not defined
        return Difference(mean, mean, mean, 1.0 if round(mean, DECIMALS) == 0 else 0.0)
    half = float(special.stdtrit(freedom, (1 + LEVEL) / 2)) * error
    return Difference(mean, mean - half, mean + half, float(2 * special.stdtr(freedom, -abs(mean) / error)))


def _error(samples: Sequence[NDArray[np.float64]], weights: ArrayLike) -> tuple[float, float]:
    """Standard error of a weighted sum of means, and Satterthwaite's degrees of freedom; (0, nan) without spread."""
    sizes = np.array([len(gaps) for gaps in samples])
    parts = np.asarray(weights, dtype=float) ** 2 * [gaps.var(ddof=1) for gaps in samples] / sizes
    error = float(np.sqrt(parts.sum()))
    if error <= 10.0**-DECIMALS:
        return 0.0, np.nan
    return error, float(parts.sum() ** 2 / np.sum(parts**2 / (sizes - 1)))


def indistinguishable(scores: pd.DataFrame, best: str) -> set[str]:
    """Methods that do not differ significantly from `best`: paired t-tests with Holm's correction. scores: seeds x
    methods of one task. Methods with fewer than MIN_SEEDS seeds in common with `best` are left out."""
    gaps = {name: (scores[best] - scores[name]).to_numpy(dtype=float) for name in scores.columns.drop(best)}
    pairs = {name: gap[~np.isnan(gap)] for name, gap in gaps.items()}
    p = {name: paired_difference(gap, 0.0).p for name, gap in pairs.items() if len(gap) >= MIN_SEEDS}
    return {name for name, adjusted in zip(p, holm(list(p.values())), strict=True) if adjusted > ALPHA}


def pareto_front(cost: ArrayLike, score: ArrayLike) -> NDArray[np.bool_]:
    """(n,) True if no other point is better in one of cost and score, and at least as good in the other."""
    c, s = np.asarray(cost, dtype=float), np.asarray(score, dtype=float)
    no_worse = (c[None, :] <= c[:, None]) & (s[None, :] >= s[:, None])
    better = (c[None, :] < c[:, None]) | (s[None, :] > s[:, None])
    return np.asarray(~(no_worse & better).any(axis=1))


ROPE = 0.01  # half-width of the region of practical equivalence: one percentage point
CERTAIN = 0.95  # posterior probability from which a verdict is given
Verdict = Literal["better", "equivalent", "worse", "undecided"]


class Posterior(NamedTuple):
    """A mean difference: mean, 95% interval, posterior probabilities of three regions; NaN if unknown."""

    mean: float
    low: float
    high: float
    worse: float
    equivalent: float
    better: float

    @property
    def verdict(self) -> Verdict:
        """The region with a probability of at least 95%, if the interval agrees with it; else "undecided".

        "better" needs an interval above 0, "worse" one below 0, and "equivalent" one within the rope.
        """
        if self.better >= CERTAIN and self.low > 0:
            return "better"
        if self.worse >= CERTAIN and self.high < 0:
            return "worse"
        if self.equivalent >= CERTAIN and -ROPE <= self.low <= self.high <= ROPE:
            return "equivalent"
        return "undecided"


def signed_rank_posterior(differences: ArrayLike, rope: float = ROPE) -> Posterior:
    """Bayesian signed-rank test of paired differences (n,) over datasets, in the unit of `rope`.

    A. Benavoli, G. Corani, J. Demsar, M. Zaffalon, Time for a change: a tutorial for comparing multiple classifiers
    through Bayesian analysis, JMLR 18 (2017), section 4.2: Dirichlet weights over the datasets and one pseudo-dataset
    without a difference (prior strength 0.5); a draw counts for the region (below, within, above the rope) that has
    most of the weighted Walsh averages. The interval of the mean is that of `bootstrap_mean`.
    """
    d = np.concatenate([[0.0], np.round(np.asarray(differences, dtype=float), DECIMALS)])
    weights = _dirichlet(len(d) - 1)
    sums = d[:, None] + d[None, :]
    parts = {}
    for side, sign in (("worse", -1.0), ("better", 1.0)):
        inside = np.heaviside(np.round(sign * sums - 2 * rope, DECIMALS), 0.5)
        parts[side] = np.einsum("di,di->d", weights @ inside, weights)
    regions = np.stack([parts["worse"], 1 - parts["worse"] - parts["better"], parts["better"]], axis=1)
    shares = np.bincount(regions.argmax(axis=1), minlength=3) / len(regions)
    ((low, high),) = bootstrap_mean(d[1:, None])
    return Posterior(float(d[1:].mean()), float(low), float(high), *map(float, shares))


@lru_cache(maxsize=4)  # all pairs of methods of a board have the same draws
def _dirichlet(n: int) -> NDArray[np.float64]:
    """(2^16, 1 + n) weights of the pseudo-dataset and n datasets: a scrambled Sobol sequence, whose probabilities vary
    by 0.0004 (standard deviation over scrambles) instead of 0.0009 for as many random draws."""
    points = qmc.Sobol(n + 1, rng=0).random_base2(16)
    weights = special.gammaincinv([0.5, *[1.0] * n], points)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def seed_posterior(strata: Sequence[ArrayLike], rope: float = ROPE) -> Posterior:
    """Posterior of the mean over strata, as of `stratified_difference`, under a flat prior: Student's t about it."""
    weights = [1 / len(strata)] * len(strata)
    gap = stratified_difference(strata, weights)
    error, freedom = _error([np.round(np.asarray(gaps, dtype=float), DECIMALS) for gaps in strata], weights)
    if error == 0:
        below, above = float(gap.mean < -rope), float(gap.mean > rope)
    else:
        below = float(special.stdtr(freedom, (-rope - gap.mean) / error))
        above = float(special.stdtr(freedom, (gap.mean - rope) / error))
    return Posterior(gap.mean, gap.low, gap.high, below, 1 - below - above, above)


def prediction_interval(differences: ArrayLike) -> tuple[float, float]:
    """95% interval for the difference on a new dataset under normal random effects; NaN for fewer than 3 datasets.

    mean -+ t(n - 1) s sqrt(1 + 1/n), J. P. T. Higgins, S. G. Thompson, D. J. Spiegelhalter, JRSS A 172 (2009). s is the
    deviation of the dataset means, so it includes the noise of their seeds.
    """
    d = np.asarray(differences, dtype=float)
    if len(d) < 3:
        return np.nan, np.nan
    half = special.stdtrit(len(d) - 1, (1 + LEVEL) / 2) * d.std(ddof=1) * np.sqrt(1 + 1 / len(d))
    return float(d.mean() - half), float(d.mean() + half)


def win_rates(scores: pd.DataFrame) -> pd.DataFrame:
    """Methods x methods: share of the datasets on which the method of the row scores higher; a tie counts half."""
    rounded = scores.round(DECIMALS).to_numpy(dtype=float)
    above, below = rounded[:, :, None], rounded[:, None, :]
    shares = ((above > below) + 0.5 * (above == below)).mean(axis=0)
    return pd.DataFrame(shares, index=scores.columns, columns=scores.columns)


def performance_profile(scores: pd.DataFrame, within: Sequence[float]) -> pd.DataFrame:
    """Methods x (`within`, "worst"): share of rows with at most this gap to the best; largest gap to the best.

    E. D. Dolan, J. J. More, Mathematical Programming 91 (2002), with differences instead of ratios.
    """
    gaps = scores.rsub(scores.max(axis=1), axis=0).round(DECIMALS)
    profile = pd.DataFrame({gap: (gaps <= gap).mean() for gap in within})
    return profile.assign(worst=gaps.max())


def letters(order: Sequence[Name], differ: Callable[[Name, Name], bool]) -> dict[Name, str]:
    """Compact letter display: two methods share a letter if and only if they do not differ.

    H.-P. Piepho, Journal of Computational and Graphical Statistics 13 (2004): insert and absorb. Letters are given in
    the order of their first methods.
    """
    groups: list[set[Name]] = [set(order)]
    for place, first in enumerate(order):
        for second in order[place + 1 :]:
            if not differ(first, second):
                continue
            both = [group for group in groups if {first, second} <= group]
            split = [group - {name} for group in both for name in (first, second)]
            kept = [group for group in groups if group not in both]
            for group in sorted(split, key=len, reverse=True):
                if not any(group <= other for other in kept):
                    kept.append(group)
            groups = kept
    groups.sort(key=lambda group: [place for place, name in enumerate(order) if name in group])
    signs = [*ascii_letters[: len(groups)], *(f"({i + 1})" for i in range(len(ascii_letters), len(groups)))]
    return {name: "".join(sign for sign, group in zip(signs, groups, strict=True) if name in group) for name in order}
