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


def test_win_rates_by_hand() -> None:
    rates = st.win_rates(frame([[0.9, 0.8], [0.5, 0.5], [0.1, 0.2], [0.3, 0.2]]))
    assert rates.loc["a", "b"] == pytest.approx(2.5 / 4)
    assert rates.loc["b", "a"] == pytest.approx(1.5 / 4)
    assert np.isnan(rates.loc["a", "a"])


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


def test_friedman_by_formula() -> None:
    scores = frame(np.random.default_rng(2).uniform(size=(12, 4)).tolist())
    mean_rank = st.ranks(scores).mean()
    n, k = scores.shape
    chi2 = 12 * n / (k * (k + 1)) * (mean_rank**2).sum() - 3 * n * (k + 1)
    assert st.friedman_p(scores) == pytest.approx(stats.chi2.sf(chi2, k - 1))
    assert st.friedman_p(frame([[0.5, 0.5, 0.5]] * 4)) == 1.0


@pytest.mark.parametrize(("methods", "quantile"), [(2, 1.960), (3, 2.343), (5, 2.728), (10, 3.164)])
def test_nemenyi_has_the_published_quantiles(methods: int, quantile: float) -> None:
    """Demšar (2006), Table 5a, alpha 0.05."""
    unit = np.sqrt(methods * (methods + 1) / (6 * 14))
    assert st.nemenyi_difference(methods, 14) / unit == pytest.approx(quantile, abs=1e-3)  # the table is rounded


def test_too_few_datasets_is_said() -> None:
    verdict = st.separate(frame([[0.9, 0.8, 0.7]] * 4))
    assert verdict.test == "none"
    assert verdict.groups() == {}
    assert verdict.cliques() == []
    assert "Too few datasets" in verdict.text
    assert "4 datasets" in verdict.text
    two = st.separate(frame([[0.9, 0.8]] * 5))  # 2/2^5 > 0.05: five pairs can never decide
    assert two.test == "none"
    assert "at least 6" in two.text


def test_one_method_is_nothing_to_compare() -> None:
    assert st.separate(frame([[0.9]] * 9)).test == "none"


def test_two_methods_are_told_apart_by_six_datasets() -> None:
    verdict = st.separate(frame([[0.8 - 0.01 * i, 0.9] for i in range(6)]))
    assert verdict.test == "wilcoxon"
    assert verdict.groups() == {"b": 1, "a": 2}


def test_no_difference_makes_one_group() -> None:
    shifted = [[0.5, 0.6, 0.7], [0.6, 0.7, 0.5], [0.7, 0.5, 0.6]] * 3
    verdict = st.separate(frame(shifted))
    assert verdict.test == "friedman"
    assert set(verdict.groups().values()) == {1}


def test_wilcoxon_groups_by_hand() -> None:
    """A and b swap places on half of twelve datasets; c is always last: {a, b} then {c}."""
    rng = np.random.default_rng(0)
    scores = [[0.8 + d, 0.8 - d, 0.3] for d in 0.01 * rng.permutation([1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6])]
    verdict = st.separate(frame(scores))
    assert verdict.test == "wilcoxon"
    assert verdict.groups() == {"a": 1, "b": 1, "c": 2}
    assert verdict.cliques() == [(0, 1)]


def test_nemenyi_where_wilcoxon_cannot_reach() -> None:
    """Six datasets, six methods in one order: 15 pairs need ten datasets; the difference is known in closed form."""
    verdict = st.separate(frame([[0.9, 0.8, 0.7, 0.6, 0.5, 0.4]] * 6))
    difference = 2.850 * np.sqrt(6 * 7 / 36)
    assert verdict.test == "nemenyi"
    assert verdict.critical_difference == pytest.approx(difference, abs=2e-3)
    assert verdict.groups() == {"a": 1, "b": 1, "c": 1, "d": 1, "e": 2, "f": 2}
    assert verdict.cliques() == [(0, 3), (1, 4), (2, 5)]
    assert "would need 10" in verdict.text


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


def test_indistinguishable_is_paired() -> None:
    """B is below a by a hair on every seed; c is far below on average and far above once."""
    seeds = np.array([0.80, 0.70, 0.90, 0.60, 0.75])
    noise = np.array([1, -1, 1, -1, 0.5]) * 1e-4
    scores = pd.DataFrame({"a": seeds, "b": seeds - 0.01 + noise, "c": seeds - [0.2, 0.2, -0.1, 0.2, 0.2]})
    assert st.indistinguishable(scores, "a") == {"c"}
    assert st.indistinguishable(scores.iloc[:1], "a") == set()


def test_pareto_front_by_definition() -> None:
    assert st.pareto_front([1, 2, 2, 3, 0], [5, 5, 7, 6, 1]).tolist() == [True, False, True, False, True]
    assert st.pareto_front([1, 1], [3, 3]).tolist() == [True, True]
