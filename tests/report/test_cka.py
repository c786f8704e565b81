"""CKA against HSIC computed from its definition, and against what it must not see."""

from __future__ import annotations

import numpy as np
import pytest

from fglbench.report.figures.embeddings import cka_table, mean_off_diagonal


def cka(one: np.ndarray, other: np.ndarray) -> float:
    return float(cka_table([one, other])[0, 1])


def hsic(k: list[list[float]], other: list[list[float]]) -> float:
    """tr(K H L H) / (n - 1)^2, H = I - 11'/n, by loops (Gretton et al., ALT 2005; Kornblith et al. 2019, Eq. 3)."""
    n = len(k)
    h = [[(i == j) - 1 / n for j in range(n)] for i in range(n)]

    def product(a: list[list[float]], b: list[list[float]]) -> list[list[float]]:
        return [[sum(a[i][m] * b[m][j] for m in range(n)) for j in range(n)] for i in range(n)]

    inner = product(product(k, h), product(other, h))
    return sum(inner[i][i] for i in range(n)) / (n - 1) ** 2


def gram(rows: np.ndarray) -> list[list[float]]:
    return [[sum(float(p) * float(q) for p, q in zip(a, b, strict=True)) for b in rows] for a in rows]


def by_definition(one: np.ndarray, other: np.ndarray) -> float:
    k, m = gram(one), gram(other)
    return hsic(k, m) / (hsic(k, k) * hsic(m, m)) ** 0.5


@pytest.mark.parametrize(("widths", "seed"), [((3, 5), 0), ((1, 4), 1), ((6, 6), 2)])
def test_it_is_the_normalised_hsic_of_linear_kernels(widths: tuple[int, int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    one = rng.normal(size=(9, widths[0])) + 3
    other = np.tanh(one[:, :1]) * rng.normal(size=widths[1]) + rng.normal(size=(9, widths[1]))
    assert cka(one, other) == pytest.approx(by_definition(one, other), rel=1e-10)


def test_rotation_scale_and_shift_are_not_seen() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(30, 4))
    rotation, _ = np.linalg.qr(rng.normal(size=(4, 4)))
    assert cka(rows, -7 * rows @ rotation + 2) == pytest.approx(1)
    assert cka(rows, rows @ np.diag([1, 1, 1, 20.0])) < 0.9  # another shape is


def test_uncorrelated_columns_have_none_and_constants_no_figure() -> None:
    one, other = np.array([[1.0], [1], [-1], [-1]]), np.array([[1.0], [-1], [1], [-1]])
    assert cka(one, other) == 0
    assert np.isnan(cka(one, np.ones((4, 2))))


def test_half_precision_does_not_overflow() -> None:
    rows = (np.random.default_rng(0).normal(size=(400, 3)) + 500).astype(np.float16)
    assert cka(rows, rows) == pytest.approx(1)


def test_table_and_mean_over_pairs() -> None:
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(12, 3)), rng.normal(size=(12, 5)), np.ones((12, 2))]
    table = cka_table(rows)
    assert table.shape == (3, 3)
    assert np.array_equal(table, table.T, equal_nan=True)
    assert table[0, 1] == cka(rows[0], rows[1])
    assert mean_off_diagonal(table) == pytest.approx(table[0, 1])  # pairs with the constant one have no figure
    assert np.isnan(mean_off_diagonal(np.full((2, 2), np.nan)))
