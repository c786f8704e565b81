"""A suite that takes a second, and where the runner runs it: processes, and two Ray nodes of this machine."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pytest

from fglbench.processes import MARK, UNMARKED

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20}

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


@pytest.fixture(scope="module")
def mark(tmp_path_factory):
    """What the environment of every process of these tests names: a file that does not exist."""
    path = str(tmp_path_factory.mktemp("mark") / "mark.txt")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TROUBLES_MARK", path)
        patch.setenv("RAY_health_check_timeout_ms", "2000")
        patch.setenv("RAY_health_check_period_ms", "500")
        patch.setenv("RAY_AUTH_MODE", "disabled")  # else a run without an address refuses a cluster of these tests
        yield path


@pytest.fixture(scope="module")
def cluster(mark, tmp_path_factory):
    """Two nodes of a CPU each; neither finds a dataset in the cache."""
    utils = pytest.importorskip("ray.cluster_utils", reason="needs Ray: pip install fglbench[ray]")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FGLBENCH_CACHE", str(tmp_path_factory.mktemp("cache of the nodes")))
        nodes = utils.Cluster(initialize_head=True, head_node_args=NODE)
        nodes.add_node(**NODE)
    yield nodes
    nodes.shutdown()


@pytest.fixture
def lose_node(cluster):
    """Kills the node that is not the head; another takes its place when the test is over."""
    victim = max(cluster.list_all_nodes(), key=lambda node: node is not cluster.head_node)
    yield lambda: cluster.remove_node(victim, allow_graceful=False)
    cluster.add_node(**NODE)


@pytest.fixture(scope="module", params=["processes", pytest.param("ray", marks=pytest.mark.slow)])
def backend(request, mark):
    """Options that choose a backend."""
    if request.param == "processes":
        return {"backend": "processes"}
    return {"backend": "ray", "address": request.getfixturevalue("cluster").address}


@pytest.fixture
def workers(mark):
    """Tells the worker processes, but not what they start, of runs of these tests, on whichever node."""

    def ours(process):
        try:
            environment = process.environ()
        except psutil.Error:
            return False
        marked = environment.get(MARK, UNMARKED) != UNMARKED
        return marked and environment.get("TROUBLES_MARK") == mark

    return lambda: [process for process in psutil.process_iter() if process.pid != os.getpid() and ours(process)]


@pytest.fixture(scope="session")
def figures():
    """Everything about the rows of a frame but times, by cell."""
    timed = ["started", "train_seconds", "total_seconds", "cpu_seconds", "peak_memory_mb"]
    timed += ["git_sha", "git_dirty", "environment"]
    return lambda frame: frame.drop(columns=timed).sort_values("key").reset_index(drop=True)


@pytest.fixture(scope="session")
def clean():
    """Makes the rows of a results folder those of a clean checkout."""

    def cleaned(results):
        for path in results.glob("tiny/*.csv"):
            rows = pd.read_csv(path, dtype=str, keep_default_na=False)
            rows.assign(git_dirty="False").to_csv(path, index=False, lineterminator="\n")
        return results

    return cleaned


def write_clinics(folder: Path) -> None:
    draw = np.random.default_rng(0)
    label = np.array([0] * 70 + [1] * 35 + [2] * 15)
    feat = draw.normal(size=(120, 5)) + 1.5 * np.eye(3, 5)[label]
    site, part = draw.permutation(120) % 3, draw.choice(["train", "val", "test"], 120, p=[0.3, 0.3, 0.4])
    folder.mkdir()
    with (folder / "nodes.csv").open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["node", "label", "client", "split", *"abcde"])
        for k in range(120):
            words = ["healthy", "mild", "severe"][label[k]], ["north", "south", "west"][site[k]], part[k]
            lines.writerow([f"n{k}", *words, *feat[k].round(3)])
    with (folder / "edges.csv").open("w", newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow(["source", "target"])
        for a in range(120):
            same = np.flatnonzero((label == label[a]) & (site == site[a]))
            lines.writerows([f"n{a}", f"n{b}"] for b in draw.choice(same, 2) if a != b)


@pytest.fixture
def clinics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A graph of three sites, 120 nodes, three classes of different size and a given split."""
    monkeypatch.setenv("FGLBENCH_OWN", "")
    monkeypatch.setattr("fglbench.datasets.own_data._folders", {})
    monkeypatch.chdir(tmp_path)
    write_clinics(tmp_path / "clinics")
    return tmp_path / "clinics"
