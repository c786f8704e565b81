"""The statistics against scipy, exhaustive enumeration, published tables and counts by hand."""

from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fglbench.report import statistics as st


def frame(values: list[list[float]], names: str = "abcdefghij") -> pd.DataFrame:
    return pd.DataFrame(values, columns=list(names[: len(values[0])]))


def test_ranks_and_wins_by_hand() -> None:
    scores = frame([[0.9, 0.8, 0.7], [0.5, 0.5, 0.4], [0.1, 0.2, 0.3]])
    assert st.ranks(scores).to_numpy().tolist() == [[1, 2, 3], [1.5, 1.5, 3], [3, 2, 1]]
    assert st.wins(scores).to_dict() == {"a": 2, "b": 1, "c": 1}
    sums = frame([[0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]])  # equal except for rounding
    assert sums.iloc[0, 0] != sums.iloc[0, 1] and st.ranks(sums).to_numpy().tolist() == [[1.5, 1.5]]


def test_bootstrap_agrees_with_all_resamples() -> None:
    """Hesterberg's expanded percentiles of the means of all 6^6 resamples."""
    values = np.array([1.0, 2.0, 4.0, 9.0, 3.0, 7.0])
    every = values[np.array(list(product(range(6), repeat=6)))].mean(axis=1)
    tail = stats.norm.cdf(stats.t.ppf(0.025, 5) * (6 / 5) ** 0.5)
    assert 0.002 < tail < 0.003
    low, high = st.bootstrap_mean(values[:, None])[0]
    assert low == pytest.approx(np.quantile(every, tail, method="inverted_cdf"))
    assert -high == pytest.approx(np.quantile(-every, tail, method="inverted_cdf"))
    assert np.isnan(st.bootstrap_mean([[1.0, 2.0]])).all()  # one row


def test_intervals_of_few_datasets_contain_the_mean() -> None:
    """Also that of the posterior. With n = 8 plain percentiles have 87%."""
    samples = np.random.default_rng(0).normal(0.02, 0.02, size=(8, 1000))
    low, high = st.bootstrap_mean(samples).T
    assert 0.93 < np.mean((low < 0.02) & (high > 0.02)) < 0.97
    posterior = st.signed_rank_posterior(samples[:, 0])
    assert (posterior.low, posterior.high) == pytest.approx((low[0], high[0]))


def test_holm_rejects_as_the_step_down_procedure_does() -> None:
    rng = np.random.default_rng(5)
    for _ in range(50):
        p = rng.uniform(size=6) ** 3
        rejected = set()
        for step, i in enumerate(np.argsort(p)):
            if p[i] > 0.05 / (6 - step):
                break
            rejected.add(i)
        assert {i for i, adjusted in enumerate(st.holm(p)) if adjusted <= 0.05} == rejected
    assert st.holm([]).size == 0


def test_paired_difference_is_students_t() -> None:
    first, second = [0.80, 0.83, 0.79, 0.82], [0.78, 0.80, 0.80, 0.79]
    d = np.subtract(first, second)
    half = stats.t.ppf(0.975, 3) * d.std(ddof=1) / 2
    difference = st.paired_difference(first, second)
    np.testing.assert_allclose(difference[:3], [d.mean(), d.mean() - half, d.mean() + half])
    assert difference.p == pytest.approx(stats.ttest_rel(first, second).pvalue)


def test_paired_difference_without_spread() -> None:
    assert st.paired_difference([0.5, 0.6], [0.4, 0.5]) == pytest.approx((0.1, 0.1, 0.1, 0.0))
    assert st.paired_difference([0.5, 0.6], [0.5, 0.6]).p == 1.0
    assert np.isnan(st.paired_difference([0.5], [0.4]).low)


def test_two_strata_of_opposite_weight_are_welchs_test() -> None:
    a, b = [0.1, 0.4, 0.2, 0.3, 0.7], [0.5, 0.6, 1.9]
    theirs = stats.ttest_ind(a, b, equal_var=False)
    ours = st.stratified_difference([a, b], [1, -1])
    assert ours.p == pytest.approx(theirs.pvalue)
    interval = theirs.confidence_interval()
    np.testing.assert_allclose(ours[:3], [np.mean(a) - np.mean(b), interval.low, interval.high])


def test_strata_by_hand() -> None:
    """Means 2 and 1, weights 1/2: 1.5. Variances 1 and 4 over 3 seeds: 1/4 (1/3 + 4/3) = 5/12. Degrees of freedom
    (5/12)^2 / ((1/12)^2 / 2 + (4/12)^2 / 2) = 25 / 8.5."""
    difference = st.stratified_difference([[1, 2, 3], [-1, 1, 3]], [0.5, 0.5])
    assert difference.mean == pytest.approx(1.5)
    assert difference.p == pytest.approx(2 * stats.t.sf(1.5 / (5 / 12) ** 0.5, 25 / 8.5))
    assert difference.low == pytest.approx(1.5 - stats.t.ppf(0.975, 25 / 8.5) * (5 / 12) ** 0.5)


def test_indistinguishable_is_paired() -> None:
    """Method b is slightly below a for all seeds; c is far below on average and far above once."""
    seeds = np.array([0.80, 0.70, 0.90, 0.60, 0.75])
    noise = np.array([1, -1, 1, -1, 0.5]) * 1e-4
    scores = pd.DataFrame({"a": seeds, "b": seeds - 0.01 + noise, "c": seeds - [0.2, 0.2, -0.1, 0.2, 0.2]})
    assert st.indistinguishable(scores, "a") == {"c"}
    assert st.indistinguishable(scores.iloc[:2], "a") == set()  # two seeds are not enough for a test


def test_pareto_front_by_definition() -> None:
    assert st.pareto_front([1, 2, 2, 3, 0], [5, 5, 7, 6, 1]).tolist() == [True, False, True, False, True]
    assert st.pareto_front([1, 1], [3, 3]).all()


def test_the_signed_rank_posterior_is_that_of_its_definition() -> None:
    """Regions and mean by integration of the Dirichlet density over a grid of weights, the pseudo-dataset first."""
    d, rope, steps = np.array([0.0, 0.03, -0.012, 0.05]), 0.01, 60
    cells = np.array([part for part in product(range(steps), repeat=4) if sum(part) == steps - 1])
    weights = (cells + 0.5) / (steps + 1)
    density = weights[:, 0] ** -0.5  # Dirichlet(0.5, 1, 1, 1)
    density /= density.sum()
    sums = d[:, None] + d[None, :]
    inside = [sums < -2 * rope, np.abs(sums) < 2 * rope, sums > 2 * rope]
    regions = np.stack([np.einsum("wi,ij,wj->w", weights, part, weights) for part in inside], axis=1)
    wanted = [density[regions.argmax(axis=1) == region].sum() for region in range(3)]
    posterior = st.signed_rank_posterior(d[1:], rope)
    assert posterior.mean == pytest.approx(d[1:].mean())
    assert [posterior.worse, posterior.equivalent, posterior.better] == pytest.approx(wanted, abs=0.03)


@pytest.mark.parametrize(("seed", "mean"), list(enumerate([0.0, 0.02, -0.01, 0.005])))
def test_the_signed_rank_posterior_agrees_with_baycomp(seed: int, mean: float) -> None:
    """The package of the authors of the test, if it is installed."""
    baycomp = pytest.importorskip("baycomp")
    d = np.random.default_rng(seed).normal(mean, 0.02, size=12)
    theirs = baycomp.SignedRankTest(d, np.zeros(12), rope=0.01, nsamples=50_000).probs()
    ours = st.signed_rank_posterior(d)
    assert (ours.better, ours.equivalent, ours.worse) == pytest.approx(theirs, abs=0.025)  # 5 sd of 10,000 draws


def test_verdicts_agree_with_their_intervals() -> None:
    rng = np.random.default_rng(0)
    verdicts = set()
    for _ in range(300):
        d = rng.normal(rng.choice([0.0, 0.01, 0.03, -0.03]), rng.choice([0.001, 0.01, 0.05]), size=8)
        positive, negative = st.signed_rank_posterior(d), st.signed_rank_posterior(-d)
        seeds = st.seed_posterior([d[:4], d[4:]])
        for posterior in (positive, seeds):
            verdicts.add(posterior.verdict)
            assert posterior.worse + posterior.equivalent + posterior.better == pytest.approx(1)
            assert posterior.verdict != "better" or posterior.low > 0
            assert posterior.verdict != "worse" or posterior.high < 0
            assert posterior.verdict != "equivalent" or max(-posterior.low, posterior.high) <= st.ROPE
        assert (positive.worse, positive.better) == pytest.approx((negative.better, negative.worse))
    assert verdicts == {"better", "equivalent", "worse", "undecided"}


def test_the_seed_posterior_is_students_t() -> None:
    d = np.array([0.02, 0.03, 0.05, 0.01])
    posterior = st.seed_posterior([d])
    t = stats.t(3, loc=d.mean(), scale=stats.sem(d))
    assert (posterior.worse, posterior.better) == pytest.approx((t.cdf(-0.01), t.sf(0.01)))
    assert (posterior.low, posterior.high) == pytest.approx(t.interval(0.95))
    assert st.seed_posterior([[0.02, 0.02]]).verdict == "better"


def test_a_prediction_interval_holds_the_next_of_normal_draws() -> None:
    rng = np.random.default_rng(1)
    draws = rng.normal(0.3, 2.0, size=(4000, 9))
    inside = [low <= draw[-1] <= high for draw in draws for low, high in [st.prediction_interval(draw[:-1])]]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.012)
    assert np.isnan(st.prediction_interval([1.0, 2.0])).all()


def test_win_rates_and_profile_by_hand() -> None:
    scores = frame([[0.9, 0.8, 0.7], [0.5, 0.5, 0.44]])
    rates = st.win_rates(scores)
    assert rates.loc["a"].tolist() == [0.5, 0.75, 1.0]
    assert rates.loc["b", "a"] == 0.25
    profile = st.performance_profile(scores, (0.01, 0.1))
    assert profile.loc["b"].tolist() == [0.5, 1.0, pytest.approx(0.1)]
    assert profile.loc["c"].tolist() == [0.0, 0.5, pytest.approx(0.2)]


def test_letters_are_shared_by_those_that_do_not_differ() -> None:
    assert st.letters("abc", lambda x, y: {x, y} == {"a", "c"}) == {"a": "a", "b": "ab", "c": "b"}
    assert st.letters("ab", lambda x, y: False) == {"a": "a", "b": "a"}
    rng = np.random.default_rng(3)
    for _ in range(30):
        names = list("abcdefg")
        apart = {frozenset(pair) for pair in product(names, names) if pair[0] < pair[1] and rng.random() < 0.4}
        letters = st.letters(names, lambda x, y, apart=apart: frozenset((x, y)) in apart)
        for x, y in product(names, names):
            if x < y:
                assert bool(set(letters[x]) & set(letters[y])) == (frozenset((x, y)) not in apart)
