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


def test_sums_in_another_order_are_ties() -> None:
    scores = frame([[0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]])
    assert scores.iloc[0, 0] != scores.iloc[0, 1]
    assert st.ranks(scores).to_numpy().tolist() == [[1.5, 1.5]]


def test_bootstrap_agrees_with_all_resamples() -> None:
    values = np.array([1.0, 2.0, 4.0, 9.0])
    every = np.array([values[list(pick)].mean() for pick in product(range(4), repeat=4)])
    low, high = st.bootstrap_mean(values[:, None], draws=40_000)[0]
    assert np.mean(every < low - 1e-9) <= 0.025 <= np.mean(every <= low + 0.26)
    assert np.mean(every > high + 1e-9) <= 0.025 <= np.mean(every >= high - 0.26)


def test_bootstrap_agrees_with_scipy() -> None:
    values = np.random.default_rng(1).normal(size=(30, 2))
    ours = st.bootstrap_mean(values)
    theirs = stats.bootstrap((values,), np.mean, axis=0, method="percentile").confidence_interval
    np.testing.assert_allclose(ours, np.stack([theirs.low, theirs.high], axis=1), atol=0.03)


def test_bootstrap_needs_two_rows_and_repeats() -> None:
    assert np.isnan(st.bootstrap_mean([[1.0, 2.0]])).all()
    values = np.random.default_rng(0).normal(size=(7, 3))
    assert np.array_equal(st.bootstrap_mean(values), st.bootstrap_mean(values))


def test_holm_by_hand() -> None:
    # 4 hypotheses: 0.01*4, 0.02*3, max(0.03*2, 0.06), max(0.5, ...)
    np.testing.assert_allclose(st.holm([0.03, 0.01, 0.5, 0.02]), [0.06, 0.04, 0.5, 0.06])
    np.testing.assert_allclose(st.holm([0.4, 0.9]), [0.8, 0.9])
    assert st.holm([]).size == 0


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


def test_wilcoxon_counts_all_sign_patterns() -> None:
    d = np.array([3.0, -1.0, 4.0, 5.0, 2.0, 6.0])
    order = stats.rankdata(np.abs(d))
    sums = [sum(r for r, sign in zip(order, signs, strict=True) if sign) for signs in product([0, 1], repeat=6)]
    seen = order[d > 0].sum()
    p = 2 * min(np.mean(np.array(sums) >= seen), np.mean(np.array(sums) <= seen))
    assert st.wilcoxon_p(d) == pytest.approx(p)
    assert st.wilcoxon_p(np.arange(1.0, 7.0)) == pytest.approx(st.wilcoxon_reach(6)) == 2 / 64
    assert st.wilcoxon_p(np.zeros(5)) == 1.0


def test_paired_difference_is_students_t() -> None:
    first, second = [0.80, 0.83, 0.79, 0.82], [0.78, 0.80, 0.80, 0.79]
    d = np.subtract(first, second)
    half = stats.t.ppf(0.975, 3) * d.std(ddof=1) / 2
    found = st.paired_difference(first, second)
    np.testing.assert_allclose(found[:3], [d.mean(), d.mean() - half, d.mean() + half])
    assert found.p == pytest.approx(stats.ttest_rel(first, second).pvalue)


def test_paired_difference_without_spread() -> None:
    assert st.paired_difference([0.5, 0.6], [0.4, 0.5]) == pytest.approx((0.1, 0.1, 0.1, 0.0))
    assert st.paired_difference([0.5, 0.6], [0.5, 0.6]).p == 1.0
    assert np.isnan(st.paired_difference([0.5], [0.4]).low)


def test_strata_of_one_task_are_a_paired_t_test() -> None:
    first, second = np.array([0.80, 0.83, 0.79, 0.82]), np.array([0.78, 0.80, 0.80, 0.79])
    np.testing.assert_allclose(st.stratified_difference([first - second], [1.0]), st.paired_difference(first, second))


def test_two_strata_of_opposite_weight_are_welchs_test() -> None:
    a, b = [0.1, 0.4, 0.2, 0.3, 0.7], [0.5, 0.6, 1.9]
    theirs = stats.ttest_ind(a, b, equal_var=False)
    ours = st.stratified_difference([a, b], [1, -1])
    assert ours.p == pytest.approx(theirs.pvalue)
    interval = theirs.confidence_interval()
    np.testing.assert_allclose(ours[:3], [np.mean(a) - np.mean(b), interval.low, interval.high])


def test_strata_by_hand() -> None:
    """Means 2 and 1, weights a half: 1.5. Variances 1 and 4 over 3 seeds: 1/4 (1/3 + 4/3) = 5/12. Degrees of freedom
    (5/12)^2 / ((1/12)^2 / 2 + (4/12)^2 / 2) = 25 / 8.5."""
    found = st.stratified_difference([[1, 2, 3], [-1, 1, 3]], [0.5, 0.5])
    assert found.mean == pytest.approx(1.5)
    assert found.p == pytest.approx(2 * stats.t.sf(1.5 / (5 / 12) ** 0.5, 25 / 8.5))
    assert found.low == pytest.approx(1.5 - stats.t.ppf(0.975, 25 / 8.5) * (5 / 12) ** 0.5)


def test_strata_without_spread() -> None:
    assert st.stratified_difference([[0.1, 0.1], [0.3, 0.3]], [0.5, 0.5]) == pytest.approx((0.2, 0.2, 0.2, 0.0))
    assert st.stratified_difference([[0.0, 0.0]], [1.0]).p == 1.0


def test_strata_keep_their_level_under_the_null() -> None:
    """Nine tasks of five seeds whose spreads differ by a factor of ten: about 5% of true nulls are rejected."""
    rng, spread = np.random.default_rng(3), np.geomspace(0.2, 2, 9)[:, None]
    p = [st.stratified_difference(list(spread * rng.normal(size=(9, 5))), np.full(9, 1 / 9)).p for _ in range(2000)]
    assert 0.035 < np.mean(np.array(p) <= 0.05) < 0.065


def test_how_many_datasets_a_test_needs() -> None:
    assert [st.datasets_needed(m) for m in (1, 23, 46)] == [6, 10, 11]  # 2/2^5 > 0.05 >= 2/2^6; 23/2^9 = 0.045
    assert st.signed_ranks([3.0, -1.0, 2.0, 0.0]) == (4 - 2 + 3)  # ranks of 0, 1, 2, 3: 1 (of no sign), 2, 3, 4


def test_indistinguishable_is_paired() -> None:
    """B is below a by a hair on every seed; c is far below on average and far above once."""
    seeds = np.array([0.80, 0.70, 0.90, 0.60, 0.75])
    noise = np.array([1, -1, 1, -1, 0.5]) * 1e-4
    scores = pd.DataFrame({"a": seeds, "b": seeds - 0.01 + noise, "c": seeds - [0.2, 0.2, -0.1, 0.2, 0.2]})
    assert st.indistinguishable(scores, "a") == {"c"}
    assert st.indistinguishable(scores.iloc[:2], "a") == set()  # two seeds say nothing of anybody


def test_pareto_front_by_definition() -> None:
    assert st.pareto_front([1, 2, 2, 3, 0], [5, 5, 7, 6, 1]).tolist() == [True, False, True, False, True]
    assert st.pareto_front([1, 1], [3, 3]).tolist() == [True, True]


def test_a_detectable_difference_is_told_four_times_of_five() -> None:
    """Simulated: three tasks of other spread and number of seeds, the test itself counted."""
    rng = np.random.default_rng(3)
    sizes, spreads, weights = (5, 5, 8), (0.01, 0.03, 0.02), [0.5, 0.25, 0.25]
    exact = [np.resize([s, -s], 2000) for s in spreads]  # samples that show the true spread
    error = np.sqrt(sum((w * s) ** 2 / n for w, s, n in zip(weights, spreads, sizes, strict=True)))
    shown = [own[:n] / own[:n].std(ddof=1) * s for own, n, s in zip(exact, sizes, spreads, strict=True)]
    delta = st.detectable(shown, weights, 0.01)
    assert 2.0 * error < delta < 6.0 * error
    drawn = ([rng.normal(delta, s, n) for n, s in zip(sizes, spreads, strict=True)] for _ in range(2000))
    told = np.mean([st.stratified_difference(own, weights).p <= 0.01 for own in drawn])
    assert told == pytest.approx(0.8, abs=0.05)
    assert st.detectable([[0.1, 0.1], [0.2, 0.2]], [0.5, 0.5], 0.05) == 0.0


def test_contrary_datasets_by_hand() -> None:
    # p of the signed-rank test with n = 10 and contrary rank sum W: (1, 2, 3, 5, 7, 10, 14, ...) * 2 / 1024
    assert st.contrary(10, 1) == 3  # 1 + 2 + 3 = 6: 14 * 2 / 1024 = 0.027; with 4, 10: 43 * 2 / 1024
    assert st.contrary(10, 18) == 0  # 2 / 1024 * 18 = 0.035, 4 / 1024 * 18 = 0.07
    assert st.contrary(5, 1) == -1  # 2 / 32 = 0.06: not even all agreeing
