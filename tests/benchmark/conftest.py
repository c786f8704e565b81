"""A suite that takes a second, for the tests of the runner."""

from __future__ import annotations

import pytest

SUITE = """
description: a tiny synthetic suite
training: {rounds: 3, local_epochs: 1}
cross:
  datasets: {name: csbm, params: {nodes: 60, classes: 2, features: 8}}
  partitions: uniform
  clients: 3
  splits: {name: ratio, params: {train: 0.4, val: 0.3, test: 0.3}}
  backbones: {name: gcn, params: {hidden: 4}}
  methods: [fedavg, local]
  seeds: 2
"""


@pytest.fixture(scope="session")
def tiny():
    """Its text."""
    return SUITE


@pytest.fixture(scope="session")
def suite(tmp_path_factory):
    """Its file."""
    path = tmp_path_factory.mktemp("suites") / "tiny.yaml"
    path.write_text(SUITE)
    return str(path)
