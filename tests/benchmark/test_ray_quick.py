"""The suite `quick` on two Ray nodes of this machine: equal rows, also if a node is lost, and the cost.

`pytest -m slow -s tests/benchmark/test_ray_quick.py` prints the numbers of docs/scaling.md."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fglbench
from fglbench.benchmark.runner.backend import Observer
from fglbench.benchmark.runner.plan import Item
from fglbench.benchmark.store.schema import Row
from fglbench.datasets import load

pytestmark = pytest.mark.slow
QUICK: dict[str, Any] = {"suites": ["quick"], "settings": ["training.rounds=3"]}


class Clock(Observer):
    """The seconds of cells beyond those of their rows: to reach a worker, to return, to be stored."""

    def __init__(self) -> None:
        self.given, self.beyond = dict[str, float](), list[float]()

    def started(self, item: Item) -> None:
        self.given[item.cell.key] = time.monotonic()

    def finished(self, item: Item, row: Row, *, elsewhere: bool) -> None:
        self.beyond.append(time.monotonic() - self.given[item.cell.key] - (row.total_seconds or 0.0))


@pytest.fixture(scope="module", autouse=True)
def data() -> None:
    for name in ("cora", "citeseer", "pubmed"):
        try:
            load(name)
        except fglbench.UserError as error:
            pytest.skip(str(error))


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    return fglbench.run(**QUICK, results=tmp_path_factory.mktemp("expected"), jobs=1)


@pytest.mark.parametrize("jobs", [1, 2])
def test_the_same_rows_for_little_more(
    jobs: int, cluster: Any, expected: pd.DataFrame, figures: Callable[..., pd.DataFrame], tmp_path: Path
) -> None:
    """Prints medians over cells, so that fetching a dataset does not count."""
    for name, backend in (("processes", {}), ("ray", {"backend": "ray", "address": cluster.address})):
        clock, begun = Clock(), time.monotonic()
        frame = fglbench.run(**QUICK, results=tmp_path / name, jobs=jobs, observer=clock, **backend)
        took, beyond = time.monotonic() - begun, statistics.median(clock.beyond)
        assert list(frame["status"]) == ["ok"] * 36
        assert figures(frame).equals(figures(expected))
        print(f"\n{name}, {jobs} at a time: {took:.1f} s, beyond its seconds a cell took {1000 * beyond:.0f} ms")
