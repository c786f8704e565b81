"""Several sets of graphs, each a client with features and classes of its own."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import dgl
import pytest
import torch

from fglbench.datasets import DATASETS, PARTITIONS, SPLITS, build_federation
from fglbench.datasets.federation import GraphSetData
from fglbench.datasets.spec import GraphSetSpec
from fglbench.registry import UserError

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
        DATASETS.register(name)(toy(name, *sizes))  # type: ignore[arg-type]
    return "domains:toy-a+toy-b"


def test_each_set_keeps_its_own(sets: str) -> None:
    data = DATASETS.build(sets).load()
    assert isinstance(data, GraphSetData)
    assert data.spaces == ((3, 2), (5, 4)) and data.num_classes == 4 and data.name == sets
    assert data.owner is not None and data.owner.tolist() == [0] * 8 + [1] * 12
    assert data.label.tolist() == [0, 1] * 4 + [0, 1, 2, 3] * 3
    first, last = data.graphs[2].ndata["feat"], data.graphs[-1].ndata["feat"]
    assert first[0].tolist() == [3.0, 3.0, 3.0, 0.0, 0.0] and last[0].tolist() == [12.0] * 5
    assert data.fingerprint != DATASETS.build("domains:toy-b+toy-a").load().fingerprint
    federation = build_federation(data, PARTITIONS.build("own"), SPLITS.build("ratio", RATIO), 2, 0)
    assert federation.domains and federation.task == "graph-classification" and federation.num_features == 5
    assert [own.classes for own in federation.clients] == [2, 4]  # type: ignore[union-attr]
    assert [len(own.graphs) for own in federation.clients] == [8, 12]  # type: ignore[union-attr]


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
        ("domains:toy-a", "names 1 sets; give at least two"),
        ("domains:toy-a+toy-a", "at least two different ones"),
        ("domains:toy-a+cora", "cora is no set of graphs"),
        ("domains:toy-a+nothing", "unknown dataset 'nothing'"),
    ],
)
def test_names_that_are_none(name: str, words: str, sets: str) -> None:
    with pytest.raises(UserError, match=words):
        DATASETS.build(name)


def test_clients_cannot_mix_the_sets(sets: str) -> None:
    data = DATASETS.build(sets).load()
    with pytest.raises(UserError, match="use partition own"):
        build_federation(data, PARTITIONS.build("uniform"), SPLITS.build("ratio", RATIO), 2, 0)
    with pytest.raises(UserError, match="comes with 2 clients, not 3"):
        build_federation(data, PARTITIONS.build("own"), SPLITS.build("ratio", RATIO), 3, 0)
