"""The order in which NumPy leaves equal keys on a processor with AVX-512, computed on any processor.

`np.argsort` is not stable by default: which of two equal keys comes first depends on the instructions that it is
dispatched to. The communities of the first rows were numbered on processors with AVX-512, where NumPy 2 sorts 64-bit
integers by Intel's x86-simd-sort: a quicksort over vectors of 8 lanes (Bramas, 2017) that ends in bitonic networks of
at most 256 keys (Batcher, 1968). What 2 log2(n) splits in a row leave in one piece, as many equal keys do, goes to
C++'s sort: in GNU's library a quicksort by the median of three that stops at 16 keys, and one insertion sort over all
(its heap sort, for splits that go wrong, is out of reach: equal keys are halved). None of them draws random numbers,
so their comparisons can be followed one by one.
"""

from __future__ import annotations

import math

import numpy as np

LANES = 8  # 64-bit numbers in a register
BLOCK = 4 * LANES  # what the partition loads at once
NETWORK = 256  # at most as many keys are sorted by a network
INSERTED = 16  # at most as many are left to the insertion sort


def avx512_argsort(keys: np.ndarray) -> np.ndarray:
    """The permutation that `np.argsort` gives with AVX-512 for `keys` (int64, shape (n,))."""
    ids = np.arange(len(keys))
    if (keys[:-1] > keys[1:]).any():
        _sort(keys, ids, 2 * int(math.log2(len(keys))))
    return ids


def _sort(keys: np.ndarray, ids: np.ndarray, splits: int) -> None:
    """Sort `ids` in place by their keys."""
    if len(ids) <= NETWORK:
        ids[:] = _network(keys, ids)
        return
    own = keys[ids]
    if splits == 0:
        _halve(own, ids, 0, len(ids))
        ids[:] = ids[np.argsort(own, kind="stable")]  # which is what an insertion sort does
        return
    pivot = np.sort(own[(len(ids) - 1) // LANES * np.arange(1, LANES + 1)])[LANES // 2]
    at = _partition(keys, ids, pivot)
    if pivot != own.min():
        _sort(keys, ids[:at], splits - 1)
    if pivot != own.max():
        _sort(keys, ids[at:], splits - 1)


def _partition(keys: np.ndarray, ids: np.ndarray, pivot: np.int64) -> int:
    """Bring the ids of keys below the pivot to the front, in place; how many they are.

    What does not fill a block is placed one by one. Then the outer blocks are held back, which makes room for what the
    others are split into, and the next block is taken from the right where less room is left there.
    """
    left, right = 0, len(ids)
    for _ in range(len(ids) % BLOCK):
        if keys[ids[left]] < pivot:
            left += 1
        else:
            right -= 1
            ids[left], ids[right] = ids[right], ids[left]
    held = ids[left : left + BLOCK].copy(), ids[right - BLOCK : right].copy()
    front, back = left, right  # where the next small and the last large id go
    left, right = left + BLOCK, right - BLOCK

    def split(block: np.ndarray) -> None:
        nonlocal front, back
        for lanes in block.reshape(-1, LANES):
            large = keys[lanes] >= pivot
            count = np.count_nonzero(large)
            ids[front : front + LANES - count] = lanes[~large]
            ids[back - count : back] = _large(lanes, large)
            front, back = front + LANES - count, back - count

    while left < right:
        if back - right < left - front:
            right -= BLOCK
            split(ids[right : right + BLOCK].copy())
        else:
            left += BLOCK
            split(ids[left - BLOCK : left].copy())
    for block in held:
        split(block)
    return front


def _large(lanes: np.ndarray, large: np.ndarray) -> np.ndarray:
    return np.compress(large, lanes)  # with AVX2 in reverse: so the tests compare where there is no AVX-512


def _halve(own: np.ndarray, ids: np.ndarray, first: int, last: int) -> None:
    """Split `ids` and their keys `own` in place, at medians of three, into ordered pieces of at most 16."""

    def swap(one: int, other: int) -> None:
        for values in (own, ids):
            values[one], values[other] = values[other], values[one]

    while last - first > INSERTED:
        three = (first + 1, first + (last - first) // 2, last - 1)
        swap(first, _median(own, *three))
        low, high = first + 1, last
        while True:
            while own[low] < own[first]:
                low += 1
            high -= 1
            while own[first] < own[high]:
                high -= 1
            if low >= high:
                break
            swap(low, high)
            low += 1
        _halve(own, ids, low, last)
        last = low


def _median(own: np.ndarray, one: int, two: int, three: int) -> int:
    """Where the median of three keys is; of equal ones the first that these comparisons meet."""
    if own[one] < own[two]:
        if own[two] < own[three]:
            return two
        return three if own[one] < own[three] else one
    if own[one] < own[three]:
        return one
    return three if own[two] < own[three] else two


def _network(keys: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """`ids` sorted by a bitonic network whose two ends exchange only what is out of order."""
    width = 1 << (len(ids) - 1).bit_length()
    at = np.arange(width)
    order = np.concatenate([ids, np.full(width - len(ids), -1)])
    own = np.concatenate([keys[ids], np.full(width - len(ids), np.iinfo(np.int64).max)])

    def exchange(low: np.ndarray, high: np.ndarray) -> None:
        swapped = own[low] > own[high]
        low, high = low[swapped], high[swapped]
        for values in (own, order):
            values[low], values[high] = values[high], values[low]

    size = 2
    while size <= width:
        low = at[at % size < size // 2]
        exchange(low, low + size - 1 - 2 * (low % size))
        apart = size // 4
        while apart:
            low = at[at // apart % 2 == 0]
            exchange(low, low + apart)
            apart //= 2
        size *= 2
    return order[: len(ids)]
