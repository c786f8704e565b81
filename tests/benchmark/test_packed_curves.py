"""Curves as they come from an untrusted file: what is read, and what is noticed, is what careful reading would."""

from __future__ import annotations

import gzip
import json
import zlib

import pytest
from hypothesis import given, strategies as st

from fglbench.benchmark.store import side_files
from fglbench.benchmark.submission import curves
from fglbench.benchmark.submission.read import LARGE
from fglbench.benchmark.suites.cell import Cell
from fglbench.benchmark.suites.suitefile import load_suite


def test_what_was_packed_comes_back_and_a_damaged_file_is_noticed() -> None:
    text = b'{"history":{"round":[1,2],"val":[0.5,null]}}'
    packed = gzip.compress(text, mtime=0)
    assert side_files.unpacked(packed) == json.loads(text)
    for broken in (
        packed[:-9],
        packed[:-1],
        packed[:20] + b"\0" + packed[21:],
        packed + b"more",
        b"",
        gzip.compress(b"[" * 9**5),
    ):
        with pytest.raises((OSError, EOFError, ValueError, zlib.error)):
            side_files.unpacked(broken)


@given(
    st.lists(st.none() | st.floats() | st.integers(-(10**16), 10**16) | st.booleans() | st.just(10**400), max_size=6)
)
def test_numbers_of_a_sane_size_are_told_one_by_one(values: list[object]) -> None:
    def sane(value: object) -> bool:
        return value is None or (type(value) in (int, float) and -LARGE < value < LARGE)  # type: ignore[operator]

    assert curves._numbers(values) == all(map(sane, values))


@given(st.lists(st.none() | st.floats(0, 3, width=16), min_size=1, max_size=9))
def test_the_best_round_is_the_first_of_the_best(values: list[float | None]) -> None:
    history = {"round": [*range(1, len(values) + 1)], "val": values, "val_loss": values}
    for rule, sign in (("val_accuracy", 1), ("val_loss", -1)):
        worth = [number if value is None else sign * value for number, value in enumerate(values, 1)]
        assert curves.best_round(history, rule) == 1 + min(i for i, one in enumerate(worth) if one == max(worth))
    assert curves.best_round(history, "last") == len(values)
    assert curves.best_round({"round": [1]}, "val_loss") is None


def test_a_cell_at_another_seed_is_that_cell() -> None:
    for cell in load_suite("quick").cells()[:6]:
        fields = {name: getattr(cell, name) for name in Cell.model_fields}
        other, anew = cell.at(77), Cell(**{**fields, "seed": 77})
        assert other == anew and cell.at(cell.seed) is cell
        for what in ("identity", "key", "federation_key", "seedless"):
            assert getattr(other, what) == getattr(anew, what)
            assert (getattr(other, what) == getattr(cell, what)) == (what == "seedless")
