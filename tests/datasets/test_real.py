"""The real datasets against counts from the literature, if FGLBENCH_MIRROR is set."""

from __future__ import annotations

import os

import numpy as np
import pytest

from fglbench.benchmark.runner.execute import FederationCache
from fglbench.benchmark.suites.cell import registered_hash
from fglbench.benchmark.suites.suite import load_suite
from fglbench.datasets import DATASETS, PARTITIONS, describe, load, statistics
from fglbench.datasets.federation import NodeData

MIRROR = os.environ.get("FGLBENCH_MIRROR")  # read before the fixture that empties it

pytestmark = pytest.mark.skipif(not MIRROR, reason="FGLBENCH_MIRROR is not set")


@pytest.fixture(autouse=True)
def real(cache: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FGLBENCH_MIRROR", str(MIRROR))


NODE_SETS = {  # nodes, undirected edges, features, classes
    "cora": (2708, 5278, 1433, 7),
    "citeseer": (3327, 4552, 3703, 6),
    "pubmed": (19717, 44324, 500, 3),
    "acm": (3025, 13128, 1870, 3),
    "wiki": (2405, 11596, 4973, 17),
    "coauthor-cs": (18333, 81894, 6805, 15),
    "coauthor-physics": (34493, 247962, 8415, 5),
    "amazon-photo": (7650, 119081, 745, 8),
    "amazon-computers": (13752, 245861, 767, 10),
    "actor": (7600, 26659, 932, 5),
    "chameleon-filtered": (890, 8854, 2325, 5),
    "squirrel-filtered": (2223, 46998, 2089, 5),
    "minesweeper": (10000, 39402, 7, 2),
    "tolokers": (11758, 519000, 10, 2),
    "twitch": (36890, 492575, 3170, 2),
    "citation-sources": (23779, 38771, 6775, 5),  # of 77616 stored entries 74 are loops, the rest both directions
    "facebook-pages": (22470, 170823, 4714, 4),  # of 171002 lines 179 are loops
}
SOURCES = {  # nodes and edges of each client
    "twitch": ([9498, 7126, 4648, 6549, 1912, 4385, 2772], [153138, 35324, 59382, 112666, 31299, 37304, 63462]),
    "citation-sources": ([9360, 8935, 5484], [15556, 15098, 8117]),
}
MATURE = [0.605, 0.546, 0.293, 0.369, 0.346, 0.245, 0.392]  # share of each country
TEN_SPLITS = {  # edge homophily as the paper prints it; nodes of the parts of the first split
    "actor": (0.22, (3648, 2432, 1520)),
    "chameleon-filtered": (0.24, (409, 287, 194)),
    "squirrel-filtered": (0.21, (1053, 718, 452)),
    "minesweeper": (0.68, (5000, 2500, 2500)),
    "tolokers": (0.59, (5879, 2939, 2940)),
}
LARGEST_COMPONENTS = {"amazon-photo": (7487, 119043), "amazon-computers": (13381, 245778)}
GRAPH_SETS = {  # graphs of each class in ascending order, and the EMD that FCLG prints
    "enzymes": ([100] * 6, 1.2667),
    "proteins": ([450, 663], 0.5774),
    "dhfr": ([295, 461], 0.5694),
    "nci1": ([2053, 2057], 0.5995),
    "mutag": ([63, 125], None),
    "aids": ([400, 1600], None),
    "bzr": ([86, 319], None),
    "cox2": ([102, 365], None),
    "ptc_mr": ([152, 192], None),
    "mutagenicity": ([1936, 2401], None),
    "nci109": ([2048, 2079], None),
    "imdb-binary": ([500, 500], None),
    "imdb-multi": ([500] * 3, None),
    "letter-low": ([150] * 15, None),
    "letter-med": ([150] * 15, None),
    "letter-high": ([150] * 15, None),
}


@pytest.mark.parametrize("name", NODE_SETS)
def test_node_sets(name: str) -> None:
    data = load(name)
    sizes = data.graph.num_nodes(), data.graph.num_edges() // 2, data.feat.shape[1], data.num_classes
    assert sizes == NODE_SETS[name]
    assert data.source == "mirror"
    again = load(name)
    assert again.source == "cache"
    assert again.fingerprint == data.fingerprint == DATASETS.cls(name).fingerprint


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_is_a_client_with_its_own_graph(name: str) -> None:
    nodes, edges = SOURCES[name]
    data = load(name)
    assert isinstance(data, NodeData) and DATASETS.build(name).own_clients() == len(nodes)
    description = describe(data, PARTITIONS.build("source")(data, len(nodes), 0))
    assert description.clients["nodes"].tolist() == nodes and description.clients["edges"].tolist() == edges
    assert description.lost_edges == 0
    if name == "twitch":
        assert (description.labels[:, 1] / description.labels.sum(axis=1)).round(3).tolist() == MATURE
    else:
        assert (np.array(nodes) - description.labels.sum(axis=1)).tolist() == [581, 166, 15]  # of two fields


@pytest.mark.parametrize("name", LARGEST_COMPONENTS)
def test_largest_components(name: str) -> None:
    data = load(name, largest_component=True)
    assert (data.graph.num_nodes(), data.graph.num_edges() // 2) == LARGEST_COMPONENTS[name]


@pytest.mark.parametrize("name", GRAPH_SETS)
def test_graph_sets(name: str) -> None:
    data = load(name)
    counts, emd = GRAPH_SETS[name]
    assert sorted(np.bincount(data.label.numpy()).tolist()) == sorted(counts)
    if emd is not None:
        assert round(describe(data, PARTITIONS.build("fclg")(data, 6, 0)).emd, 4) == emd


def test_the_assays_of_tox21_are_clients_scored_by_roc_auc() -> None:
    data = load("domains:tox21_ppar-gamma+tox21_are")
    assert data.scored_by == "roc_auc" and [classes for _, classes in data.spaces] == [2, 2]
    active = [data.label[data.owner == client].bincount().tolist() for client in (0, 1)]
    assert active == [[7962, 222], [6069, 1098]]


def test_fedstars_group_of_sets_has_the_features_of_its_code() -> None:
    """Node labels of ENZYMES (3, without its 18 attributes), attributes of Letter, degrees of IMDB."""
    data = load("domains:enzymes+letter-low+imdb-binary", features="first")
    assert data.spaces == ((3, 6), (2, 15), (65, 2))  # degrees from 64 on share a column


@pytest.mark.parametrize("name", ["cora", "citeseer", "pubmed"])
def test_public_splits(name: str) -> None:
    data = load(name)
    assert data.fixed_split is not None
    train = data.label[data.fixed_split["train"]]
    assert train.bincount().tolist() == [20] * data.num_classes
    assert (len(data.fixed_split["val"]), len(data.fixed_split["test"])) == (500, 1000)


@pytest.mark.parametrize("name", TEN_SPLITS)
def test_ten_published_splits(name: str) -> None:
    homophily, sizes = TEN_SPLITS[name]
    tested = []
    for index in (0, 9):
        data = load(name, split_index=index)
        assert data.fixed_split is not None
        ids = [data.fixed_split[part].tolist() for part in ("train", "val", "test")]
        assert sorted(node for part in ids for node in part) == list(range(len(data.label)))
        assert index or tuple(map(len, ids)) == sizes
        tested.append(ids[2])
    assert tested[0] != tested[1]
    assert round(float(statistics(data)["edge homophily"]), 2) == homophily


@pytest.mark.parametrize(
    ("suite", "name"), [("leaderboard", "cora"), ("fgssl-table1", "citeseer"), ("fedomd-table4", "amazon-photo")]
)
def test_the_clients_are_the_registered_ones_on_every_processor(suite: str, name: str) -> None:
    """Louvain with over 256 communities, mostly of equal size: NumPy's order of those depends on the processor."""
    cells = {cell.federation_key: cell for cell in load_suite(suite).cells() if cell.dataset.name == name}
    registered = [cell for cell in cells.values() if registered_hash(cell) is not None and cell.seed < 3]
    assert len(registered) >= 3
    cache = FederationCache()
    for cell in registered:
        cache.get(cell)  # which compares
