"""Curves as they come from a file of anybody's: what is read, and what is noticed, is what careful reading would."""

from __future__ import annotations

import gzip
import json
import math
import zlib

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fglbench.benchmark.store import attachments
from fglbench.benchmark.store.columnfile import CurveTable, arrays_of
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.submission import curves, sides
from fglbench.benchmark.submission.inbox import Line
from fglbench.benchmark.suites.cell import Cell
from fglbench.benchmark.suites.suitefile import load_suite

NUMBERS = ["0", "-0", "7", "-12", "0.5", "-0.0", "1.0", "1.50", "1e5", "1E5", "1e-05", "1e-5", "0.00001", "0.0001",
           "9007199254740993", "1e16", "1e+16", "123456789012345680.0", "0.1000000000000000055", "NaN", "-Infinity",
           "1" * 400, "null", "true", '"a"', '"\\u00e9"', '"é"', '"\x7f"', "[]", "{}"]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(
    st.lists(st.sampled_from(NUMBERS) | st.floats(width=32).map(json.dumps) | st.floats().map(json.dumps), max_size=8),
    st.sampled_from(['{"a":[%s]}', '{"a":[%s], "b":1}', "[%s]", '{"a":1,"a":[%s]}', '{"a e-":[%s]}', '{"a":[%s]}\n']),
)
def test_curves_are_read_and_judged_as_python_would(numbers: list[str], form: str) -> None:
    """What is read, and whether its text is the one that is written, is what the json of the standard library says."""
    text = (form % ",".join(numbers)).encode()
    found = attachments.unpacked(gzip.compress(text, mtime=0))
    assert repr(found.found) == repr(json.loads(text))  # which tells 1 from 1.0 and True, and a NaN from none
    assert found.as_written == (attachments.history_text(json.loads(text)) == text)


@pytest.mark.parametrize("number", NUMBERS)
def test_what_may_be_written_in_several_ways_is_told(number: str) -> None:
    text = f'{{"a":[{number}]}}'.encode()
    found = attachments.unpacked(gzip.compress(text, mtime=0))
    assert repr(found.found) == repr(json.loads(text))
    assert found.as_written == (attachments.history_text(json.loads(text)) == text)


def test_whatever_is_packed_besides_curves_is_noticed() -> None:
    text = b'{"history":{"round":[1,2],"val":[0.5,null]}}'
    packed = gzip.compress(text, mtime=0)
    assert attachments.unpacked(packed) == (json.loads(text), text, True, True)
    half = gzip.compress(text[:9], mtime=0) + gzip.compress(text[9:], mtime=0)
    named = packed[:3] + b"\x08" + packed[4:10] + b"secret\0" + packed[10:]
    for other in (half, packed + gzip.compress(b"", mtime=0), packed + bytes(8), gzip.compress(text, mtime=5), named):
        found = attachments.unpacked(other)
        assert found.text == text and not found.as_written
    for broken in (packed[:-9], packed[:-1], packed[:20] + b"\0" + packed[21:], packed + b"more", b""):
        with pytest.raises((OSError, EOFError, ValueError, zlib.error)):
            attachments.unpacked(broken)


@given(st.lists(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), min_size=1), st.data())
def test_a_share_of_nodes_is_told_from_another_number(fractions: list[tuple[int, int]], data: st.DataObject) -> None:
    """Against all fractions, one by one."""
    scores = [float(np.float32(right / tested)) for right, tested in fractions] + [data.draw(st.floats(0, 1))]
    held = data.draw(st.integers(0, 400))
    for score in scores:
        tested = np.arange(1, max(held, 1) + 1)
        slow = np.abs(np.round(score * tested) / tested - score).min() <= curves.NEAR
        assert curves._fraction(score, held) == slow


@given(
    st.lists(st.none() | st.floats() | st.integers(-(10**16), 10**16) | st.booleans() | st.just(10**400), max_size=6)
)
def test_numbers_of_a_sane_size_are_told_one_by_one(values: list[object]) -> None:
    def sane(value: object) -> bool:
        return value is None or (type(value) in (int, float) and -curves.LARGE < value < curves.LARGE)  # type: ignore[operator]

    assert sides._bounded(values) == all(map(sane, values))
    if all(map(sane, values)):
        shares = curves._no_share(np.array(values, dtype=np.float64))
        assert shares.any() != all(value is None or 0 <= value <= 1 for value in values)  # type: ignore[operator]


@given(st.lists(st.none() | st.floats(0, 3, width=16), min_size=1, max_size=9))
def test_the_best_round_is_the_first_of_the_best(values: list[float | None]) -> None:
    history = {"round": [*range(1, len(values) + 1)], "val": values, "val_loss": values}
    row = Row.model_construct(rounds=len(values))
    table = CurveTable(arrays_of({"other": {"history": {"round": [1]}}, "own": {"history": history}}))
    rows = curves.TabledRows(table, [Line("", 1, "", b"", row)], np.array([1]))
    for rule, sign in (("val_accuracy", 1), ("val_loss", -1)):
        worth = [number if value is None else sign * value for number, value in enumerate(values, 1)]
        assert curves._best_round(rows, 0, rule) == 1 + min(i for i, own in enumerate(worth) if own == max(worth))
    assert curves._best_round(rows, 0, "last") == len(values)


def test_a_cell_at_another_seed_is_that_cell() -> None:
    for cell in load_suite("quick").cells()[:6]:
        fields = {name: getattr(cell, name) for name in Cell.model_fields}
        other, anew = cell.at(77), Cell(**{**fields, "seed": 77})
        assert other == anew and cell.at(cell.seed) is cell
        for what in ("identity", "key", "federation_key", "seedless"):
            assert getattr(other, what) == getattr(anew, what)
            assert (getattr(other, what) == getattr(cell, what)) == (what == "seedless")


@pytest.mark.parametrize(
    ("values", "sane"),
    [
        ([1, 2.5, None, -3], True),
        ([9e14] * 10, True),  # each is, though not their sum
        ([-1e15], False),
        ([1.0, math.nan, 2.0], False),
        ([math.inf, -math.inf], False),
        ([10**400, 1.0], False),
        ([True], False),
        ([], True),
    ],
)
def test_numbers_are_bounded_one_by_one(values: list[float | None], sane: bool) -> None:
    assert sides._bounded(values) is sane
