"""The order of equal keys against NumPy's own, where the processor has the instructions; and what holds everywhere."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_features__ as found

from fglbench.datasets import tieorder
from fglbench.datasets.tieorder import avx512_argsort

AVX2, AVX512 = (any(found.get(name) for name in names) for names in (("X86_V3", "AVX2"), ("X86_V4", "AVX512_SKX")))


def drawn(kind: str, count: int, seed: int) -> np.ndarray:
    """Negated community sizes as graphs have them: a few large ones and very many equal ones."""
    rng = np.random.default_rng(seed)
    if kind == "long tail":
        return -np.maximum(1, rng.pareto(1.0, count) * 5).astype(np.int64)
    if kind == "mostly pairs":  # the quicksort takes a pivot that splits nothing off, until it gives up
        return -rng.choice([1, 2, 3, 40], count, p=[0.15, 0.7, 0.1, 0.05])
    return -rng.integers(0, max(count // 3, 1), count)


KINDS = ("long tail", "mostly pairs", "many values")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 255, 256, 257, 300, 1000, 4000])
def test_it_is_a_permutation_that_sorts(kind: str, count: int) -> None:
    for seed in range(3):
        keys = drawn(kind, count, seed)
        order = avx512_argsort(keys)
        assert sorted(order.tolist()) == list(range(count))
        assert (np.diff(keys[order]) >= 0).all()


def test_sorted_keys_stay_where_they_are() -> None:
    assert avx512_argsort(np.repeat(np.arange(200), 4)).tolist() == list(range(800))


@pytest.mark.skipif(not (AVX2 or AVX512), reason="NumPy sorts by other instructions here")
@pytest.mark.parametrize("kind", KINDS)
def test_networks_are_numpys(kind: str) -> None:
    """Up to 256 keys NumPy's order is the same with AVX2."""
    for count in range(257):
        keys = drawn(kind, count, count)
        assert (avx512_argsort(keys) == np.argsort(keys)).all(), count


@pytest.mark.skipif(not AVX512, reason="the processor has no AVX-512")
@pytest.mark.parametrize("kind", KINDS)
def test_long_keys_are_sorted_as_numpy_does(kind: str) -> None:
    for count in range(257, 4000, 53):
        keys = drawn(kind, count, count)
        assert (avx512_argsort(keys) == np.argsort(keys)).all(), count


@pytest.mark.skipif(AVX512 or not AVX2, reason="only where NumPy sorts with AVX2")
@pytest.mark.parametrize("kind", KINDS)
def test_with_the_lanes_of_avx2_it_is_numpys_order_too(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """AVX2 has four lanes and leaves the large ones of a vector in reverse; all else is the same."""
    monkeypatch.setattr(tieorder, "LANES", 4)
    monkeypatch.setattr(tieorder, "BLOCK", 16)
    monkeypatch.setattr(tieorder, "_large", lambda lanes, large: lanes[large][::-1])
    for count in range(257, 4000, 53):
        keys = drawn(kind, count, count)
        assert (avx512_argsort(keys) == np.argsort(keys)).all(), count


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ([1 + (i * i * 7919) % 11 // (1 + i % 5) for i in range(1000)], "e71bbd24abfd3bcc"),
        ([2 - (i * 37 % 100 < 15) + (i * 53 % 100 < 10) for i in range(1000)], "2e1a2c236b4efeaf"),
    ],
    ids=["many sizes", "mostly pairs"],
)
def test_the_order_is_the_same_on_every_machine(sizes: list[int], wanted: str) -> None:
    """Pinned when all 325 registered federations of this order came out as registered (tests/datasets/test_real.py)."""
    order = avx512_argsort(-np.array(sizes))
    assert hashlib.sha256(order.astype("<i8").tobytes()).hexdigest()[:16] == wanted
