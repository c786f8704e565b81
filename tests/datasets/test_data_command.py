"""The data commands, and properties of federations by counts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import dgl
import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from fglbench.benchmark.cli import main
from fglbench.benchmark.cli.data import _checked, app
from fglbench.benchmark.suites.catalogue import PROPERTIES, TASK, read_properties, write_properties
from fglbench.benchmark.suites.suite import load_suite
from fglbench.datasets import DATASETS, PARTITIONS, PartitionSpec, content as contents
from fglbench.datasets.describe import homophily, properties
from fglbench.datasets.federation import NodeData
from fglbench.datasets.graph_files import SHA256, read_planetoid
from fglbench.datasets.sources import cache_file
from fglbench.datasets.spec import bidirected
from fglbench.registry import UserError

Put = Callable[[Path, dict[str, bytes]], dict[str, Path]]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments), catch_exceptions=False, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    return str(result.output)


@pytest.fixture
def toy_cora(papers, put: Put, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A mirror with the toy Cora registered; the fixture is its fingerprint."""
    files = papers.planetoid()
    for name, data in files.items():
        monkeypatch.setitem(SHA256, name, hashlib.sha256(data).hexdigest())
    digest = contents.fingerprint(read_planetoid(put(mirror / "planetoid", files)))
    monkeypatch.setattr(DATASETS.cls("cora"), "fingerprint", digest)
    return digest


def test_list_names_every_dataset_and_what_is_cached(toy_cora: str) -> None:
    before = {line.split()[0]: line for line in run("list").splitlines() if line.strip()}
    assert set(DATASETS.names()) <= set(before)
    assert "yes" not in before["cora"].split()
    run("fetch", "cora")
    after = {line.split()[0]: line for line in run("list").splitlines() if line.strip()}
    assert "yes" in after["cora"].split()
    assert "generated" in after["csbm"].split()


def test_fetch_then_info_without_the_mirror(toy_cora: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cora: 1700 nodes" in run("fetch", "cora")
    assert cache_file("cora").is_file()
    monkeypatch.delenv("FGLBENCH_MIRROR")
    shown = run("info", "cora", "--set", "features=raw")
    for part in (toy_cora, "features=raw", "Sen et al.", "cache", "against the registered fingerprint"):
        assert part in shown


def test_fetch_continues_after_a_failure(toy_cora: str) -> None:
    with pytest.raises(UserError, match="1 of 2 datasets are unavailable: wiki"):
        run("fetch", "wiki", "cora")
    assert cache_file("cora").is_file()
    with pytest.raises(UserError, match="did you mean 'cora'"):
        run("fetch", "coar")


def test_info_of_a_synthetic_dataset_says_so() -> None:
    shown = run("info", "csbm", "--set", "nodes=40", "--set", "degree=2")
    assert "not a real dataset" in shown
    assert "nothing to check" in shown
    assert "nodes=40" in shown


def test_each_of_several_sets_is_checked() -> None:
    known = "against the registered fingerprint"
    assert _checked(DATASETS.build("domains:mutag+dhfr")) == f"mutag: {known}; dhfr: {known}"


def test_partition_prints_and_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = run("partition", "csbm", "--partition", "louvain", "--clients", "4", "--set", "nodes=80", "--plot")
    rows = [line.split() for line in shown.splitlines() if line[:1].isdigit()]
    assert [row[0] for row in rows] == ["0", "1", "2", "3"]
    assert sum(int(row[1]) for row in rows) == 80
    assert sum(int(pair.split(":")[1]) for row in rows for pair in row[4:]) == 80
    kept = sum(int(row[2]) for row in rows)
    assert f"lost edges {240 - kept} of 240" in shown
    assert (tmp_path / "csbm-louvain-4.png").is_file()
    run("partition", "csbm", "-k", "2", "--out", "x.svg")
    assert (tmp_path / "x.svg").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--partition", "louvan"], "did you mean 'louvain'"),
        (["--clients", "0"], "0 clients"),
        (["--set", "resolutoin=2"], "did you mean 'resolution'"),
        (["--set", "resolution=-1"], "resolution: input should be greater than 0"),
        (["--set", "resolution"], "key=value"),
        (["--set", "split.train=0.1"], "unknown section"),
        (["--partition", "fclg"], "cuts graph datasets"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message) as error:
        run("partition", "csbm", *arguments)
    assert "\n" not in str(error.value)


@pytest.mark.usefixtures("registries")
def test_an_invalid_partition_is_named() -> None:
    def deal(self: PartitionSpec, data: NodeData, clients: int, rng: np.random.Generator) -> list[np.ndarray]:
        return [np.arange(10) for _ in range(clients)]  # most nodes have no client

    PARTITIONS.register("first-ten")(type("FirstTen", (PartitionSpec,), {"deal": deal, "__module__": __name__}))
    with pytest.raises(UserError, match="partition 'first-ten' on 'csbm': "):
        run("partition", "csbm", "--partition", "first-ten")


@pytest.fixture
def data() -> NodeData:
    """30 nodes of 3 classes of different sizes, one without label, about 80 edges."""
    rng = np.random.default_rng(3)
    label = rng.choice(3, size=30, p=(0.6, 0.3, 0.1))
    label[7] = -1
    edges = np.array([pair for pair in combinations(range(30), 2) if rng.random() < 0.18])
    return NodeData("toy", bidirected(edges, 30), torch.zeros(30, 4), torch.from_numpy(label), 3, "toy", "generated")


def test_against_counts_one_by_one(data: NodeData) -> None:
    order = np.random.default_rng(4).permutation(30)
    parts = [np.sort(order[:6]), np.sort(order[6:17]), np.sort(order[17:])]
    values, label = properties(data, parts), data.label.tolist()
    edges = [(u, v) for u, v in zip(*(ends.tolist() for ends in data.graph.edges()), strict=True) if u < v]
    shares = [sum(value == c for value in label) / 29 for c in range(3)]
    majority, skew = [], []
    for part in parts:
        labels = [label[node] for node in part if label[node] >= 0]
        mine = [labels.count(c) / len(labels) for c in range(3)]
        majority.append(max(mine))
        skew.append(sum(max(a - b, 0) for a, b in zip(mine, shares, strict=True)))  # total variation, its other form
    kept = sum(u in part and v in part for u, v in edges for part in map(set, parts))
    assert values["majority"] == pytest.approx(max(shares))
    assert values["client_majority"] == pytest.approx(sum(majority) / 3)
    assert values["label_skew"] == pytest.approx(sum(skew) / 3)
    assert values["lost_edges"] == pytest.approx(1 - kept / len(edges))
    assert [values[name] for name in ("nodes", "edges", "features", "classes")] == [30, len(edges), 4, 3]
    assert [values[f"client_{name}"] for name in ("nodes", "least", "most")] == [10, 6, 13]


def test_homophily_by_its_definition(data: NodeData) -> None:
    """Adjusted homophily is the assortativity coefficient of labels (Newman, 2003), here by its mixing matrix."""
    label = data.label.tolist()
    mixing = np.zeros((3, 3))
    for u, v in zip(*(ends.tolist() for ends in data.graph.edges()), strict=True):
        if label[u] >= 0 and label[v] >= 0:
            mixing[label[u], label[v]] += 1
    mixing /= mixing.sum()
    expected = float((mixing.sum(axis=0) * mixing.sum(axis=1)).sum())
    same, adjusted = homophily(data)
    assert same == pytest.approx(np.trace(mixing))
    assert adjusted == pytest.approx((np.trace(mixing) - expected) / (1 - expected))


def test_graphs_without_edges_or_with_one_class() -> None:
    nothing = dgl.graph(([], []), num_nodes=4)
    bare = NodeData("bare", nothing, torch.zeros(4, 1), torch.tensor([0, 0, 1, 1]), 2, "", "generated")
    assert homophily(bare) == (0, 0) and properties(bare, [np.arange(4)])["lost_edges"] == 0
    one = bidirected(np.array([[0, 1], [2, 3]]), 4)
    same = NodeData("one", one, torch.zeros(4, 1), torch.zeros(4, dtype=torch.int64), 1, "", "generated")
    assert homophily(same) == (1, 0)


def test_the_command_writes_what_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str], cli) -> None:
    suite = tmp_path / "toy.yaml"
    suite.write_text(
        "description: toy\ncross:\n  datasets: [{name: csbm, params: {nodes: 60}}, cora]\n  partitions: uniform\n"
        "  clients: [2, 3]\n  splits: ratio\n  backbones: gcn\n  methods: [fedavg, local]\n  seeds: 2\n"
    )
    path = tmp_path / "properties.csv"
    assert main(["data", "describe", "-s", str(suite), "--csv", str(path)]) == 0
    output = capsys.readouterr()
    assert "wrote 2 tasks" in output.out and output.err.count("dataset 'cora' is unavailable") == 1
    table = read_properties(path)
    assert [(task[0], task[2], task[4]) for task in table] == [("csbm", "uniform", "2"), ("csbm", "uniform", "3")]
    assert [row["client_nodes"] for row in table.values()] == [30, 20]
    before = path.read_bytes()
    write_properties(table, path)
    assert path.read_bytes() == before
    assert "homophily" in cli(f"data describe -s {suite}")


def test_every_task_of_the_node_board_has_its_line() -> None:
    table = read_properties(PROPERTIES)
    wanted = {(cell.dataset.name, cell.partition.name, str(cell.clients)) for cell in load_suite("node").cells()}
    known = {(task[0], task[2], task[4]) for task in table}
    assert {task for task in wanted - known if task[0] != "ogbn-arxiv"} == set()
    assert len(TASK) == 5 and all(0 <= row["lost_edges"] <= 1 for row in table.values())
