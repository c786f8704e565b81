"""A tiny suite, and studies that are carried out in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fglbench.benchmark.runner.execute import FederationCache, execute
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.suites.plugins import load_plugins
from fglbench.benchmark.tune.session import Study, Wanted, studies

ODD = str(Path(__file__).with_name("odd_methods.py"))
SUITE = """
description: a tiny suite to tune
training: {rounds: 9, local_epochs: 4}
cross:
  datasets: {name: csbm, params: {nodes: 120, classes: 3, features: 16, signal: 4}}
  partitions: [uniform, louvain]
  clients: [3, 2]
  splits: {name: ratio, params: {train: 0.3, val: 0.4, test: 0.3}}
  backbones: {name: gcn, params: {hidden: 16}}
  methods: [fedavg, local]
  seeds: 2
"""


@pytest.fixture(scope="session", autouse=True)
def odd() -> str:
    load_plugins([ODD])
    return ODD


@pytest.fixture(scope="session")
def suite(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("suites") / "tiny.yaml"
    path.write_text(SUITE)
    return str(path)


@pytest.fixture
def study(suite: str) -> Callable[..., Study]:
    """A study of one method of the tiny suite."""

    def make(method: str = "fedavg", **values: object) -> Study:
        ((result,),) = studies(Wanted(suite, methods=(method,), **values)).values()
        return result

    return make


@pytest.fixture
def carried_out(tmp_path: Path) -> Callable[..., list[Row]]:
    """Runs all rungs of a study without workers; its rows."""

    def run(study: Study, federations: FederationCache | None = None) -> list[Row]:
        federations, finished = federations or FederationCache(), []
        while cells := study.cells():
            stamp = {"environment": "0" * 12}
            rows = [execute(cell, "tiny", Store(tmp_path), federations, stamp) for cell in cells]
            study.tell({row.key: row for row in rows})
            finished += rows
        return finished

    return run
