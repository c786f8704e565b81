"""Datasets with one client per source or set, by hand."""

from __future__ import annotations

import copy
import io
import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import dgl
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
import torch

from fglbench.datasets import DATASETS, PARTITIONS, SPLITS, build_federation, content, load
from fglbench.datasets.federation import GraphSetData, NodeData
from fglbench.datasets.graph_files import read_citation_sources, read_pages, read_twitch
from fglbench.datasets.spec import DatasetSpec, GraphSetSpec, bidirected
from fglbench.registry import UserError

Put = Callable[[Path, dict[str, bytes]], dict[str, Path]]
HEAD = "id,days,mature,views,partner,new_id\n"
TWITCH = {  # three users of DE, two of FR, the last one twice
    "DE_edges.csv": "from,to\n0,2\n2,0\n1,1\n",
    "DE_features.json": json.dumps({"2": [5, 3169, 5], "0": [0], "1": []}),
    "DE_target.csv": HEAD + "9,1,True,70,False,2\n8,1,False,50,True,0\n7,1,True,60,False,1\n",
    "FR_edges.csv": "from,to\n0,1\n",
    "FR_features.json": json.dumps({"0": [5], "1": [7]}),
    "FR_target.csv": HEAD + "1,1,True,20,False,1\n2,1,False,10,False,0\n1,1,True,21,False,1\n",
}
PAGES = {
    "edges.csv": "id_1,id_2\n0,2\n1,2\n",
    "features.json": json.dumps({"0": [1, 4713], "1": [2], "2": []}),
    "target.csv": 'id,facebook_id,page_name,page_type\n0,5,"A, B",tvshow\n2,6,C,company\n1,7,Ü,politician\n',
}


def encoded(texts: dict[str, str]) -> dict[str, bytes]:
    return {name: text.encode() for name, text in texts.items()}


def test_twitch_by_hand(put: Put, tmp_path: Path) -> None:
    read = read_twitch(put(tmp_path, encoded(TWITCH)))
    assert read["edges"].tolist() == [[0, 2], [3, 4]]
    assert read["label"].tolist() == [0, 1, 1, 0, 1]
    assert read["client"].tolist() == [0, 0, 0, 1, 1]
    assert read["views"].tolist() == [50, 60, 70, 10, 20]
    feat = content.features(read)
    assert feat.shape == (5, 3170)
    assert [(int(row), int(word)) for row, word in zip(*feat.nonzero(), strict=True)] == [
        (0, 0), (2, 5), (2, 3169), (3, 5), (4, 7),
    ]  # fmt: skip
    assert feat.max() == 1


def test_pages_by_hand(put: Put, tmp_path: Path) -> None:
    read = read_pages(put(tmp_path, encoded(PAGES)))
    assert read["edges"].tolist() == [[0, 2], [1, 2]]
    assert read["label"].tolist() == [3, 2, 0]
    assert content.features(read).shape == (3, 4714) and content.features(read).nnz == 3
    assert "client" not in read


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("DE_target.csv", HEAD + "9,1,True,70,False,2\n8,1,False,50,True,0\n", "one line for each node"),
        ("FR_target.csv", TWITCH["FR_target.csv"].replace("1,1,True,21", "1,1,False,21"), "gives a user two labels"),
        ("DE_edges.csv", "from,to\n0,3\n", "an edge names node 3 of 3"),
        ("DE_edges.csv", "from,to\n0,-1\n", "an edge names node -1"),
        ("DE_features.json", json.dumps({"0": [], "1": [], "2": [3170]}), "names a feature outside 0 to 3169"),
        ("DE_features.json", json.dumps({"0": [], "1": [], "2": [-1]}), "names a feature outside 0 to 3169"),
        ("DE_features.json", json.dumps({"0": [], "2": []}), "one entry for each node"),
        ("DE_features.json", json.dumps({"0": [], "1": []}), "2 feature rows for 3 labels"),
        ("DE_features.json", "[", "Expecting value"),
    ],
)
def test_damaged_twitch_is_refused(file: str, text: str, message: str, put: Put, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        read_twitch(put(tmp_path, encoded(TWITCH | {file: text})))


def test_a_page_of_an_unknown_type_is_refused(put: Put, tmp_path: Path) -> None:
    wrong = PAGES | {"target.csv": PAGES["target.csv"].replace("tvshow", "film")}
    with pytest.raises(ValueError, match="page type 'film'"):
        read_pages(put(tmp_path, encoded(wrong)))


def matlab(network: np.ndarray, attrb: np.ndarray, group: np.ndarray) -> bytes:
    """The upstream format: sparse links, the rest dense bytes."""
    file = io.BytesIO()
    arrays = {"network": sp.csc_matrix(network.astype(float)), "attrb": attrb, "group": group}
    scipy.io.savemat(
        file, {name: array if sp.issparse(array) else array.astype(np.uint8) for name, array in arrays.items()}
    )
    return file.getvalue()


def test_citation_sources_by_hand(put: Put, tmp_path: Path) -> None:
    links = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 0]])
    one = matlab(links, np.array([[0, 3], [1, 0], [0, 0]]), np.array([[0, 0, 1], [1, 1, 0], [1, 0, 0]]))
    two = matlab(links[:2, :2], np.array([[2, 0], [0, 1]]), np.array([[0, 1, 0], [0, 0, 0]]))
    read = read_citation_sources(put(tmp_path, {"a.mat": one, "b.mat": two}))
    assert read["edges"].tolist() == [[0, 1], [1, 2], [3, 4]]
    assert read["label"].tolist() == [2, -1, 0, 1, -1]  # two labels or none: no label
    assert read["client"].tolist() == [0, 0, 0, 1, 1]
    np.testing.assert_array_equal(content.features(read).toarray(), [[0, 3], [1, 0], [0, 0], [2, 0], [0, 1]])


def test_sources_that_do_not_fit_together_are_refused(put: Put, tmp_path: Path) -> None:
    links, group = np.array([[0, 1], [1, 0]]), np.eye(2)
    one, wide = matlab(links, np.ones((2, 2)), group), matlab(links, np.ones((2, 3)), group)
    with pytest.raises(ValueError, match=r"the sources have \[2, 3\] features"):
        read_citation_sources(put(tmp_path, {"a.mat": one, "b.mat": wide}))
    with pytest.raises(ValueError, match="different numbers of papers"):
        read_citation_sources(put(tmp_path, {"a.mat": matlab(links, np.ones((3, 2)), group)}))


def test_each_country_and_source_has_its_files() -> None:
    mirror, upstream = DATASETS.cls("twitch").routes
    assert len(mirror.files) == len(upstream.files) == 21 and mirror.files.keys() == upstream.files.keys()
    assert mirror.files["PTBR_target.csv"] == "musae/PTBR/target.csv"
    assert upstream.files["PTBR_features.json"].endswith("/MUSAE/master/input/features/PTBR.json")
    assert [*DATASETS.cls("citation-sources").routes[1].files] == ["acmv9.mat", "citationv1.mat", "dblpv7.mat"]


# The partition


@pytest.fixture
def two_sources() -> NodeData:
    graph = bidirected(np.array([[0, 1], [1, 2], [3, 4]]), 5)
    owner = torch.tensor([0, 0, 0, 1, 1])
    return NodeData("toy", graph, torch.eye(5), torch.tensor([0, 1, 0, 1, 0]), 2, "", "generated", owner=owner)


def test_each_source_is_a_client_for_any_seed(two_sources: NodeData) -> None:
    for seed in range(3):
        parts = PARTITIONS.build("source")(two_sources, 2, seed)
        assert [part.tolist() for part in parts] == [[0, 1, 2], [3, 4]]


def test_no_edge_joins_two_sources(two_sources: NodeData) -> None:
    joined = replace(two_sources, graph=bidirected(np.array([[0, 1], [2, 3], [0, 4]]), 5))
    with pytest.raises(UserError, match="2 edges of 'toy' join two clients, so it has no sources; use own"):
        PARTITIONS.build("source")(joined, 2, 0)
    with pytest.raises(UserError, match="comes with 2 clients, not 3; give -k 2"):
        PARTITIONS.build("source")(two_sources, 3, 0)
    with pytest.raises(UserError, match="comes without clients"):
        PARTITIONS.build("source")(replace(two_sources, owner=None), 2, 0)


def test_a_mirror_of_the_sources_becomes_a_federation(put: Put, mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(mirror / "musae", {name.replace("_", "/"): text for name, text in encoded(TWITCH).items()})
    cls = DATASETS.cls("twitch")
    monkeypatch.setattr(cls, "fingerprint", None)
    routes = [
        replace(route, files={f: p for f, p in route.files.items() if f[:2] in ("DE", "FR")}) for route in cls.routes
    ]
    monkeypatch.setattr(cls, "routes", tuple(routes))
    data = load("twitch")
    assert isinstance(data, NodeData)
    split = SPLITS.build("ratio", {"train": 0.5, "val": 0.0, "test": 0.5, "strategy": "random"})
    federation = build_federation(data, PARTITIONS.build("source"), split, 2, 0)
    assert [client.graph.num_nodes() for client in federation.clients] == [3, 2]
    assert federation.scored_by == "roc_auc" and federation.num_features == 3170


RATIO = {"train": 0.5, "val": 0.25, "test": 0.25}


def toy(name: str, count: int, width: int, classes: int) -> type[GraphSetSpec]:
    def load(self: GraphSetSpec) -> GraphSetData:
        graphs = []
        for i in range(count):
            graph = dgl.graph(([0, 1], [1, 0]), num_nodes=2)
            graph.ndata["feat"] = torch.full((2, width), float(i + 1))
            graphs.append(graph)
        return GraphSetData(name, graphs, torch.arange(count) % classes, classes, f"print of {name}", "generated")

    return type(name, (GraphSetSpec,), {"__doc__": "A toy.", "load": load, "__module__": __name__})


@pytest.fixture
def sets(registries: None) -> str:
    for name, *sizes in (("toy-a", 8, 3, 2), ("toy-b", 12, 5, 4)):
        DATASETS.register(name)(toy(name, *sizes))
    return "domains:toy-a+toy-b"


def test_each_set_keeps_its_features_and_classes(sets: str) -> None:
    data = DATASETS.build(sets).load()
    assert data.spaces == ((3, 2), (5, 4)) and data.num_classes == 4 and data.name == sets
    assert data.owner is not None and data.owner.tolist() == [0] * 8 + [1] * 12
    assert data.label.tolist() == [0, 1] * 4 + [0, 1, 2, 3] * 3
    first, last = data.graphs[2].ndata["feat"], data.graphs[-1].ndata["feat"]
    assert first[0].tolist() == [3.0, 3.0, 3.0, 0.0, 0.0] and last[0].tolist() == [12.0] * 5
    assert data.fingerprint != DATASETS.build("domains:toy-b+toy-a").load().fingerprint
    federation = build_federation(data, PARTITIONS.build("own"), SPLITS.build("ratio", RATIO), 2, 0)
    assert federation.domains and federation.task == "graph-classification" and federation.num_features == 5
    assert [client.classes for client in federation.clients] == [2, 4]
    assert [len(client.graphs) for client in federation.clients] == [8, 12]


def test_edge_features_that_some_sets_lack_are_left_out(sets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def with_edges(cls: type[DatasetSpec]) -> None:
        plain = cls.load

        def load(self: DatasetSpec) -> GraphSetData:
            data = plain(self)
            for graph in data.graphs:
                graph.edata["feat"] = torch.ones(graph.num_edges(), 13, dtype=torch.uint8)
            return data

        monkeypatch.setattr(cls, "load", load)

    for name, kept in (("toy-a", False), ("toy-b", True)):
        with_edges(DATASETS.cls(name))
        graphs = DATASETS.build(sets).load().graphs
        assert {"feat" in graph.edata for graph in graphs} == {kept}
        assert dgl.batch(graphs).num_nodes() == 40


def test_a_federation_of_sets_is_scored_by_roc_auc_where_all_are(sets: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def measures() -> set[str]:
        data = DATASETS.build(sets).load()
        return {
            data.scored_by,
            build_federation(data, PARTITIONS.build("own"), SPLITS.build("ratio", RATIO), 2, 0).scored_by,
        }

    for scored, expected in ((("toy-a",), "accuracy"), (("toy-a", "toy-b"), "roc_auc")):
        for cls in map(DATASETS.cls, scored):
            plain = cls.load
            monkeypatch.setattr(cls, "load", lambda self, plain=plain: replace(plain(self), scored_by="roc_auc"))
        assert measures() == {expected}


def test_a_class_of_the_name_can_be_sent_to_another_process(sets: str) -> None:
    spec = DATASETS.build(sets)
    assert copy.copy(spec) == spec and pickle.loads(pickle.dumps(type(spec))) is type(spec)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("domains:toy-a", "give at least two sets"),
        ("domains:toy-a+toy-a", "at least two sets of graphs, each once"),
        ("domains:toy-a+cora", "cora is no set of graphs"),
        ("domains:toy-a+nothing", "unknown dataset 'nothing'"),
        ("domains:toy-a+esol+tox21", "esol is for graph regression, tox21 is for graph labels; give sets for graph cl"),
    ],
)
def test_invalid_set_names(name: str, words: str, sets: str) -> None:
    with pytest.raises(UserError, match=words):
        DATASETS.build(name)


def test_clients_cannot_mix_the_sets(sets: str) -> None:
    data = DATASETS.build(sets).load()
    assert DATASETS.build(sets).own_clients() == 2
    with pytest.raises(UserError, match="use partition own"):
        build_federation(data, PARTITIONS.build("uniform"), SPLITS.build("ratio", RATIO), 2, 0)
    with pytest.raises(UserError, match="comes with 2 clients, not 3"):
        build_federation(data, PARTITIONS.build("own"), SPLITS.build("ratio", RATIO), 3, 0)
