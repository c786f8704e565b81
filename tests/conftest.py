"""Small federations for all tests, built by hand instead of by the tested code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dgl
import numpy as np
import pytest
import torch

from fglbench.datasets.federation import Federation, GraphClient, GraphSetData, NodeClient, NodeData

torch.set_num_threads(1)


class Anywhere:
    """The checkout may have any name, also `fglbench-0.2.0`: as a folder of tests it is no package."""

    @staticmethod
    def pytest_collect_directory(path: Path, parent: pytest.Collector) -> pytest.Collector:
        return pytest.Dir.from_parent(parent, path=path)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden.csv (test_golden.py)")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Anywhere())  # a hook of this file would apply below tests/ only


def build(
    sizes: tuple[int, ...] = (13, 7, 10),
    features: int = 12,
    classes: int = 3,
    seed: int = 0,
    sparse: bool = True,
    without_train: tuple[int, ...] = (),
) -> Federation:
    """Clients of the given sizes on one random graph with class-dependent features; a few nodes stay isolated."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    label = torch.from_numpy(rng.integers(0, classes, n))
    owner = np.repeat(np.arange(len(sizes)), sizes)
    ends = rng.integers(0, n, (2, 4 * n))
    ends = ends[:, (ends[0] != ends[1]) & (ends[0] % 9 != 0) & (ends[1] % 9 != 0)]
    close = rng.random(ends.shape[1]) < np.where(owner[ends[0]] == owner[ends[1]], 1.0, 0.2)
    ends = ends[:, close]
    pairs = np.unique(np.concatenate([ends, ends[::-1]], 1), axis=1)
    graph = dgl.graph((torch.from_numpy(pairs[0]), torch.from_numpy(pairs[1])), num_nodes=n)
    dense = rng.random((n, features)) * (rng.random((n, features)) < 0.4)
    dense[np.arange(n), label.numpy()] += 0.5
    feat = torch.from_numpy(dense.astype(np.float32))
    part = rng.permuted(np.resize([0, 0, 1, 2, 2], n))
    for client in without_train:
        part[owner == client] = np.where(part[owner == client] == 0, 1, part[owner == client])
    masks = {name: torch.from_numpy(part == i) for i, name in enumerate(("train", "val", "test"))}

    def layout(x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse_csr() if sparse else x

    clients = []
    for k in range(len(sizes)):
        ids = torch.from_numpy(np.flatnonzero(owner == k))
        subgraph = dgl.node_subgraph(graph, ids)
        for key in list(subgraph.ndata):
            del subgraph.ndata[key]
        for key in list(subgraph.edata):
            del subgraph.edata[key]
        subgraph.ndata["label"], subgraph.ndata["global_id"] = label[ids], ids
        for name, mask in masks.items():
            subgraph.ndata[f"{name}_mask"] = mask[ids]
        clients.append(NodeClient(subgraph, layout(feat[ids])))
    whole = NodeData("toy", graph, layout(feat), label, classes, "toy", "generated", synthetic=True)
    return Federation(whole, clients, masks, "toy", seed)


@pytest.fixture
def registries() -> Iterator[None]:
    """Removes the registrations of a test after it."""
    from fglbench.benchmark.suites.plugins import REGISTRIES

    known, modules = {kind: dict(registry._classes) for kind, registry in REGISTRIES.items()}, set(sys.modules)
    yield
    for kind, registry in REGISTRIES.items():
        registry._classes = known[kind]
    for name in set(sys.modules) - modules:
        if name.startswith("fglbench_plugin_"):
            del sys.modules[name]


def git(folder: Path, *words: str) -> str:
    """Run git in a folder in someone's name; return its output."""
    who = ["-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "init.defaultBranch=main"]
    done = subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs a command, given as a line or as words, in this process. It must end with the exit code `code`. Returns its
    output; for the code 2, of a mistake, its error output."""
    from fglbench.benchmark.cli import main

    def run(command: str | list[str], code: int = 0) -> str:
        capsys.readouterr()
        ended = main(command.split() if isinstance(command, str) else command)
        out, err = capsys.readouterr()
        assert ended == code, out + err
        return err if code == 2 else out

    return run


@pytest.fixture
def json_of(cli: Callable[..., str]) -> Callable[..., Any]:
    """Runs a command, as `cli` does, with --json. Returns the document."""

    def run(command: str | list[str], code: int = 0) -> Any:
        return json.loads(cli([*(command.split() if isinstance(command, str) else command), "--json"], code))

    return run


@pytest.fixture(scope="module")
def in_process() -> Iterator[None]:
    """Commands run cells in this process and import plug-ins here, and check methods on two trials: for tests that only
    need the rows."""
    from fglbench.benchmark.contract import recording
    from fglbench.benchmark.runner.supervisor import run_in_process
    from fglbench.benchmark.suites import apart
    from fglbench.benchmark.suites.plugins import load_plugins

    def here(function: Callable[..., Any], plugins: Any, *arguments: Any) -> Any:
        load_plugins(plugins)
        return function(*arguments)

    some = [each for each in recording.trials() if each.name in ("one architecture", "graphs to classify")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "trials", lambda: some)
        patch.setattr("fglbench.benchmark.runner.supervisor.run_plan", run_in_process)
        patch.setattr(apart, "use", load_plugins)
        patch.setattr("fglbench.benchmark.runner.execute.in_child", here)
        yield


@pytest.fixture(scope="session")
def federation() -> Callable[..., Federation]:
    """The function `build`."""
    return build


def build_graph_sets(counts: tuple[int, ...] = (5, 3, 4), features: int = 4, seed: int = 0) -> Federation:
    """Clients with these numbers of graphs, in turn a cycle, a star and a clique (the classes), of 4 to 8 nodes."""
    rng = np.random.default_rng(seed)
    graphs, total = [], sum(counts)
    for i in range(total):
        n = int(rng.integers(4, 9))
        pairs = {
            0: [(v, (v + 1) % n) for v in range(n)],
            1: [(0, v) for v in range(1, n)],
            2: [(u, v) for u in range(n) for v in range(u)],
        }[i % 3]
        u, v = torch.tensor(pairs).T
        graph = dgl.graph((torch.cat([u, v]), torch.cat([v, u])), num_nodes=n)
        graph.ndata["feat"] = torch.from_numpy(rng.normal(size=(n, features)).astype(np.float32))
        graphs.append(graph)
    label = torch.arange(total) % 3
    whole = GraphSetData("shapes", graphs, label, 3, "shapes", "generated", synthetic=True)
    order, clients = torch.from_numpy(rng.permutation(total)), []
    for ids in order.split(list(counts)):
        clients.append(GraphClient([graphs[i] for i in ids], label[ids], ids))
    return Federation(whole, clients, {}, "shapes", seed)


@pytest.fixture(scope="session")
def graph_sets() -> Callable[..., Federation]:
    """The function `build_graph_sets`."""
    return build_graph_sets


def build_labelled_sets(counts: tuple[int, ...] = (9, 6, 8), **kwargs: Any) -> Federation:
    """The same with labels: of each client's graphs every second is for training, the others for validation and test in
    turn."""
    world = build_graph_sets(counts, **kwargs)
    masks = {part: torch.zeros(sum(counts), dtype=torch.bool) for part in ("train", "val", "test")}
    clients = []
    for client in world.clients:
        assert isinstance(client, GraphClient)
        place = torch.arange(len(client.graphs)) % 4
        client_masks = {"train": place % 2 == 0, "val": place == 1, "test": place == 3}
        for part, mask in client_masks.items():
            masks[part][client.global_id[mask]] = True
        clients.append(replace(client, masks=client_masks))
    return replace(world, clients=clients, masks=masks)


@pytest.fixture(scope="session")
def labelled_sets() -> Callable[..., Federation]:
    """The function `build_labelled_sets`."""
    return build_labelled_sets
