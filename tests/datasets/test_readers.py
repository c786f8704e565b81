"""Readers on files in their real formats, against the original data."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import zipfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from fglbench.datasets import content, graph_files, tu
from fglbench.registry import UserError

Put = Callable[[Path, dict[str, bytes]], dict[str, Path]]


@pytest.fixture
def registered(papers, monkeypatch):
    """The toy Planetoid files, with their hashes registered."""
    files = papers.planetoid()
    for name, data in files.items():
        monkeypatch.setitem(graph_files.SHA256, name, hashlib.sha256(data).hexdigest())
    return files


def test_planetoid_returns_the_papers(papers, registered, put: Put, tmp_path: Path) -> None:
    read = graph_files.read_planetoid(put(tmp_path, registered))
    assert [tuple(edge) for edge in read["edges"]] == papers.edges
    np.testing.assert_array_equal(content.features(read).toarray(), papers.feat)
    np.testing.assert_array_equal(read["label"], papers.label)
    np.testing.assert_array_equal(read["split_train"], np.arange(140))
    np.testing.assert_array_equal(read["split_val"], np.arange(140, 640))
    np.testing.assert_array_equal(read["split_test"], np.arange(700, 1700))


def test_nodes_that_the_test_index_skips_are_empty(papers, put: Put, tmp_path: Path, monkeypatch) -> None:
    skipped = 1650
    papers.test = papers.test[papers.test != skipped]
    papers.edges = [edge for edge in papers.edges if skipped not in edge]
    papers.feat, papers.label = papers.feat.copy(), papers.label.copy()
    files = papers.planetoid()
    known = 1700 - 1000
    files["ind.cora.allx"] = _pickle(sp.csr_matrix(papers.feat[:known]))
    files["ind.cora.ally"] = _pickle(np.eye(7, dtype=np.int32)[papers.label[:known]])
    for name, data in files.items():
        monkeypatch.setitem(graph_files.SHA256, name, hashlib.sha256(data).hexdigest())
    read = graph_files.read_planetoid(put(tmp_path, files))
    assert len(read["label"]) == 1700
    assert read["label"][skipped] == 0
    assert content.features(read)[skipped].nnz == 0
    np.testing.assert_array_equal(np.delete(read["label"], skipped), np.delete(papers.label, skipped))


def _pickle(value: object) -> bytes:
    return pickle.dumps(value, protocol=4)


def test_the_older_text_files_give_the_same_content(papers, registered, put: Put, tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(len(papers.label))
    text = put(tmp_path / "text", papers.linqs(order, graph_files.CORA_CLASSES))
    one = graph_files.read_linqs_cora(text, order)
    other = graph_files.read_planetoid(put(tmp_path / "pickles", registered))
    assert content.fingerprint(one) == content.fingerprint(other)


def test_the_shipped_order_is_a_permutation() -> None:
    with resources.as_file(resources.files("fglbench.datasets") / "files/cora_planetoid_order.npy") as path:
        order = np.load(path, allow_pickle=False)
        assert path.stat().st_size < 6000
    np.testing.assert_array_equal(np.sort(order), np.arange(2708))


def test_a_changed_pickle_is_refused_before_it_is_opened(registered, put: Put, tmp_path: Path) -> None:
    paths = put(tmp_path, registered)
    paths["ind.cora.graph"].write_bytes(_evil(tmp_path / "ran"))
    with pytest.raises(UserError, match=r"ind\.cora\.graph is truncated or tampered with"):
        graph_files.read_planetoid(paths)
    assert not (tmp_path / "ran").exists()


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.path),)


def _evil(path: Path) -> bytes:
    return pickle.dumps(_Evil(path))


@pytest.mark.parametrize("value", [os.system, np.save, {1, 2}.__class__, pickle.loads])
def test_only_arrays_unpickle(value: object) -> None:
    with pytest.raises(pickle.UnpicklingError, match="is not an array type"):
        graph_files.loads(pickle.dumps(value))


def _csr(matrix: sp.csr_matrix, name: str) -> dict[str, np.ndarray]:
    return {
        f"{name}_data": matrix.data,
        f"{name}_indices": matrix.indices,
        f"{name}_indptr": matrix.indptr,
        f"{name}_shape": np.array(matrix.shape),
    }


def _npz(**arrays: object) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_gnn_benchmark(put: Put, tmp_path: Path) -> None:
    adjacency = sp.csr_matrix(np.array([[0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0, 0]], dtype=np.float32))
    counts = sp.csr_matrix(np.array([[0, 3.0], [2, 0], [0, 0], [1, 1]], dtype=np.float32))
    names = np.array(["a", "b"], dtype=object)  # the upstream files carry such arrays: they must not be touched
    file = _npz(**_csr(adjacency, "adj"), **_csr(counts, "attr"), labels=np.array([1, 0, 1, 2]), class_names=names)
    read = graph_files.read_gnn_benchmark(put(tmp_path, {"x.npz": file}))
    assert read["edges"].tolist() == [[0, 1], [0, 3]]
    np.testing.assert_array_equal(content.features(read).toarray(), counts.toarray())
    assert read["label"].tolist() == [1, 0, 1, 2]


def _masks() -> dict[str, np.ndarray]:
    """Three splits of four nodes; in the last, node 3 has no part."""
    parts = np.array([[0, 1, 2, 0], [2, 2, 0, 1], [1, 0, 2, -1]])
    return {f"{part}_masks": parts == code for code, part in enumerate(("train", "val", "test"))}


def test_heterophilous(put: Put, tmp_path: Path) -> None:
    feat = np.array([[0.5, 0], [0, 0], [2, 1], [0, 3]], dtype=np.float32)
    edges, label = np.array([[1, 0], [0, 1], [2, 3], [3, 3]]), np.array([1, 0, 2, 1])
    file = _npz(node_features=feat, node_labels=label, edges=edges, **_masks())
    read = graph_files.read_heterophilous(put(tmp_path, {"x.npz": file}))
    assert read["edges"].tolist() == [[0, 1], [2, 3]]
    np.testing.assert_array_equal(content.features(read), feat)
    assert read["label"].tolist() == label.tolist()
    assert read["roles"].tolist() == [[0, 1, 2, 0], [2, 2, 0, 1], [1, 0, 2, -1]]


@pytest.mark.parametrize(
    "wrong",
    [{"val_masks": np.ones((3, 4), dtype=bool)}, {name: masks[:, :3] for name, masks in _masks().items()}],
    ids=["a node in two parts", "splits of other nodes"],
)
def test_inconsistent_splits_are_an_error(wrong: dict[str, np.ndarray], put: Put, tmp_path: Path) -> None:
    arrays = {"node_features": np.eye(4), "node_labels": np.arange(4), "edges": np.array([[0, 1]]), **_masks()}
    with pytest.raises(ValueError, match="do not give each node one part"):
        graph_files.read_heterophilous(put(tmp_path, {"x.npz": _npz(**{**arrays, **wrong})}))


def test_both_forms_of_acm_agree(put: Put, tmp_path: Path) -> None:
    adjacency = sp.csr_matrix(np.array([[0, 1, 1], [1, 0, 0], [1, 0, 0]], dtype=np.float32))
    feat = sp.csr_matrix(np.array([[1, 0, 1], [0, 1, 0], [0, 0, 1]], dtype=np.float32))
    flat = _npz(
        edges=np.array([[0, 1], [2, 0], [0, 2]], dtype=np.int32),
        label=np.array([0, 1, 0], dtype=np.int32),
        feat_data=np.empty(0, dtype=np.float32),
        feat_indices=feat.indices.astype(np.uint16),
        feat_indptr=feat.indptr,
        feat_shape=np.array(feat.shape),
    )
    objects = _npz(adj_matrix=np.array(adjacency, dtype=object), node_attr=feat.toarray(), node_label=[0, 1, 0])
    one = graph_files.read_csr_npz(put(tmp_path, {"ACM.npz": flat}))
    other = graph_files.read_graphdata(put(tmp_path, {"acm.npz": objects}))
    assert one["edges"].tolist() == [[0, 1], [0, 2]]
    assert content.fingerprint(one) == content.fingerprint(other)


def test_wiki_upstream(put: Put, tmp_path: Path) -> None:
    feat = np.array([[0.5, 0, 2], [0, 1, 0], [0, 0, 4]])
    matlab = io.BytesIO()
    scipy.io.savemat(matlab, {"fea": sp.csc_matrix(feat), "W": np.eye(3), "gnd": [[1], [2], [1]]})
    files = {
        "Wiki_edgelist.txt": b"2 0\n1 1\n0 2\n1 2\n",
        "wiki_labels.txt": b"2 4\n0 3\n1 0\n",
        "mgae_wiki.mat": matlab.getvalue(),
    }
    read = graph_files.read_wiki(put(tmp_path, files))
    assert read["edges"].tolist() == [[0, 2], [1, 2]]
    assert read["label"].tolist() == [3, 0, 4]
    np.testing.assert_array_equal(content.features(read).toarray(), feat)


def test_tu_texts_and_zip_agree(tu_files: dict[str, bytes], put: Put, tmp_path: Path) -> None:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        for name, data in tu_files.items():
            file.writestr(f"TOY/{name}", data)
    read = tu.read_tu(put(tmp_path, tu_files))
    zipped = tu.read_tu(put(tmp_path, {"TOY.zip": archive.getvalue()}))
    assert content.fingerprint(read) == content.fingerprint(zipped)
    assert read["edges"].tolist() == [[0, 1], [0, 2], [1, 2], [3, 4]]
    assert read["graph"].tolist() == [0, 0, 0, 1, 1, 2]
    assert read["label"].tolist() == [1, -1, 1]
    assert read["node_attr"][2].tolist() == [3.0, -1.0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("TOY_A.txt", b"1, 2\n2, 4\n"),  # joins two graphs
        ("TOY_A.txt", b"1, 99\n"),
        ("TOY_graph_indicator.txt", b"1\n1\n1\n2\n2\n4\n"),
        ("TOY_graph_indicator.txt", b"2\n1\n1\n2\n2\n3\n"),
        ("TOY_node_labels.txt", b"0\n0\n"),
        ("TOY_graph_labels.txt", b"1\nx\n1\n"),
    ],
)
def test_an_inconsistent_tu_set_is_an_error(
    name: str, text: bytes, tu_files: dict[str, bytes], put: Put, tmp_path: Path
) -> None:
    with pytest.raises((ValueError, UserError), match=r".+"):
        tu.read_tu(put(tmp_path, {**tu_files, name: text}))


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("TOY_A.txt", b"1, 2\n2, 4\n", "nodes 2 and 4 of an edge are in graphs 1 and 2"),
        ("TOY_A.txt", b"1, 2, 3\n2, 1, 3\n", "A.txt has 3 columns, not 2: it has one edge per line"),
        ("TOY_node_labels.txt", b"0, 1\n0, 1, 5, 2\n0\n0\n0\n0\n", "TOY_node_labels.txt:2: 4 values, 2 in line 1"),
        ("TOY_graph_labels.txt", b"1\n-0.25\n1\n", "TOY_graph_labels.txt:2: -0.25: real values"),
        ("TOY_graph_labels.txt", b"1, 1\n2, 1\n1, 2\n", "graph_labels.txt has 2 columns, not 1"),
        ("TOY_graph_labels.txt", None, "has no file graph_labels.txt: only sets with one class per graph"),
    ],
)
def test_a_tu_set_of_another_kind_is_named(
    name: str, text: bytes | None, line: str, tu_files: dict[str, bytes], put: Put, tmp_path: Path
) -> None:
    files = {key: value for key, value in {**tu_files, name: text}.items() if value is not None}
    with pytest.raises(UserError, match=line):
        tu.read_tu(put(tmp_path, files))


def test_each_column_of_tu_node_labels_is_read(tu_files: dict[str, bytes], put: Put, tmp_path: Path) -> None:
    read = tu.read_tu(put(tmp_path, {**tu_files, "TOY_node_labels.txt": b"0, 7\n0, 8\n1, 7\n1, 7\n0, 8\n0, 7\n"}))
    assert read["node_label"].tolist() == [[0, 7], [0, 8], [1, 7], [1, 7], [0, 8], [0, 7]]


@pytest.mark.parametrize(
    ("edges", "line"),
    [
        (np.array([[0, 1, 2], [1, 2, 3]]), r"edges has shape \(2, 3\); give one row per edge, \(M, 2\); transpose it"),
        (np.array([0, 1, 1, 2]), r"edges has shape \(4,\)"),
        (np.array([[0, 1.5]]), "edges is float64; give whole numbers"),
        (np.array([[0, -1]]), "an edge names node -1 of 4"),
    ],
)
def test_edges_of_another_shape_are_refused(edges: np.ndarray, line: str) -> None:
    with pytest.raises(content.Unsound, match=line):
        content.node_content(edges, np.array([0, 1, 0, 1]), np.eye(4))


def test_undirected_against_a_set_of_pairs() -> None:
    rng = np.random.default_rng(0)
    pairs = rng.integers(12, size=(80, 2))
    expected = sorted({(min(u, v), max(u, v)) for u, v in pairs.tolist() if u != v})
    assert [tuple(edge) for edge in content.undirected(pairs.astype(np.uint16), 12)] == expected
    with pytest.raises(ValueError, match="names node"):
        content.undirected(pairs, 11)


def test_largest_component_keeps_order_and_split() -> None:
    whole = content.node_content(
        np.array([[0, 4], [2, 4], [1, 5]]),
        np.arange(6),
        np.eye(6),
        {"train": np.array([1, 4]), "test": np.array([3, 0])},
    )
    part = content.largest_component(whole)
    assert part["label"].tolist() == [0, 2, 4]
    assert part["edges"].tolist() == [[0, 2], [1, 2]]
    assert part["feat"].argmax(axis=1).tolist() == [0, 2, 4]
    assert part["split_train"].tolist() == [2]
    assert part["split_test"].tolist() == [0]


def test_the_fingerprint_sees_every_array_and_no_layout() -> None:
    base = content.node_content(np.array([[0, 1]]), np.array([0, 1]), sp.csr_matrix([[1.0, 0.0], [2.0, 3.0]]))
    digest = content.fingerprint(base)
    unsorted = sp.csr_matrix(([1.0, 3.0, 2.0, 0.0], [0, 1, 0, 1], [0, 1, 4]), shape=(2, 2))
    assert content.fingerprint(content.node_content(np.array([[1, 0], [0, 1]]), np.array([0, 1]), unsorted)) == digest
    for name, array in base.items():
        changed = {**base, name: array + 1}
        assert content.fingerprint(changed) != digest, name
        assert content.fingerprint(changed, without=[name]) == content.fingerprint(base, without=[name])
