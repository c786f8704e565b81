"""Features: rows of unit length, structural embeddings, content shared by workers."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from fglbench.datasets import DATASETS, arxiv as module, load, own_data
from fglbench.datasets.content import fingerprint, node_content, undirected
from fglbench.datasets.federation import preprocess
from fglbench.datasets.own_content import mapped, offer


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("density", [0.02, 0.5])
def test_unit_rows_are_bitwise_those_of_scikit_learn(kind: type, density: float) -> None:
    rng = np.random.default_rng(0)
    matrix = sp.random(200, 900, density, format="csr", random_state=1)
    matrix.data = rng.normal(size=matrix.nnz) * 10.0 ** rng.integers(-3, 4, matrix.nnz)
    dense = matrix.toarray().astype(kind)
    dense[3] = 0
    feat = sp.csr_matrix(dense)
    before = feat.copy()
    scaled, wanted = preprocess(feat, "unit"), normalize(feat, norm="l2").astype(np.float32)
    assert (scaled.data == wanted.data).all()
    assert (scaled.indices == wanted.indices).all()
    assert (preprocess(dense, "unit") == normalize(dense, norm="l2").astype(np.float32)).all()
    assert (feat != before).nnz == 0  # the input stays


NAME = "ogbn-arxiv-structure-features"
NODES = 12


@pytest.fixture
def edges() -> np.ndarray:
    return undirected(np.random.default_rng(1).integers(NODES, size=(30, 2)), NODES)


@pytest.fixture
def arxiv(mirror: Path, edges: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small graph instead of that of ogbn-arxiv."""
    (mirror / "ogb").mkdir()
    order = np.arange(NODES)
    parts = {"train": order[:6], "valid": order[6:9], "test": order[9:]}
    np.savez(mirror / "ogb/ogbn-arxiv_nofeat.npz", edges=edges, label=order % 3, **parts)
    monkeypatch.setattr(DATASETS.cls(NAME), "fingerprint", None)


def test_the_columns_are_those_of_a_dense_decomposition(edges: np.ndarray) -> None:
    dense = np.zeros((NODES, NODES))
    dense[edges[:, 0], edges[:, 1]] = dense[edges[:, 1], edges[:, 0]] = 1
    left, values, _ = np.linalg.svd(dense)
    columns = module.structural(edges, NODES, 4, seed=0)
    np.testing.assert_allclose(columns["feat_values"], values[:4], atol=0.0005)
    for column, wanted in zip(columns["feat"].T, left.T, strict=False):
        score = (wanted - wanted.mean()) / wanted.std()
        assert min(np.abs(column - score).max(), np.abs(column + score).max()) < 1e-4


def test_columns_without_spread_are_zeros() -> None:
    columns = module.structural(np.zeros((0, 2), dtype=np.int64), NODES, 4, seed=0)
    np.testing.assert_array_equal(columns["feat"], np.zeros((NODES, 4)))


def test_structural_features_are_computed_once_per_cache(arxiv: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(NAME, dimension=4)
    assert not first.synthetic
    monkeypatch.setattr(module, "structural", lambda *_: pytest.fail("computed again"))
    again = load(NAME, dimension=4)
    assert (first.source, again.source) == ("mirror", "cache")
    assert first.feat.equal(again.feat) and first.fingerprint == again.fingerprint
    assert first.feat.shape == (NODES, 4) and not first.synthetic and first.fixed_split is not None


def test_the_fingerprint_is_that_of_graph_options_and_values_not_of_the_last_bits(arxiv: None) -> None:
    spec = DATASETS.build(NAME, {"dimension": 4})
    content, _ = spec.content()
    known = spec.digest(content)
    assert known == load(NAME, dimension=4).fingerprint
    assert spec.digest(content | {"feat": np.nextafter(content["feat"], 9)}) == known
    variants = [
        DATASETS.build(NAME, {"dimension": 4, "seed": 1}).digest(content),
        spec.digest(content | {"feat_values": content["feat_values"] + 0.001}),
        spec.digest(content | {"label": content["label"][::-1]}),
        spec.digest(content | {"split_val": content["split_val"][1:]}),
    ]
    assert len({known, *variants}) == 5


pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files in memory are Linux's")


def test_shared_content_has_private_changes_per_mapping() -> None:
    rng = np.random.default_rng(0)
    content = node_content(rng.integers(0, 50, (200, 2)), rng.integers(0, 3, 50), rng.random((50, 4)), {"val": []})
    digest = fingerprint(content)
    path = offer(content)
    assert fingerprint(content) == fingerprint(mapped(path)) == digest and content["split_val"].shape == (0,)
    mapped(path)["label"][:] = 7
    content["label"][:] = 8
    assert fingerprint(mapped(path)) == digest


def test_a_worker_reads_no_file_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_data, "_folders", {})
    monkeypatch.setattr(own_data, "_shared", {})
    folder = tmp_path / "few"
    folder.mkdir()
    arrays = {"edges": np.array([[0, 1], [1, 2]]), "labels": np.array([0, 1, 1]), "features": np.eye(3)}
    np.savez(folder / "graph.npz", **arrays)
    own_data.announce(folder)
    known = own_data.known_folders()
    assert known == own_data.known_folders()
    own_data._read.cache_clear()
    own_data.add_folders(known)
    with monkeypatch.context() as patch:
        patch.setattr(own_data, "read", lambda folder: pytest.fail("the files are read"))
        assert own_data.content_of(folder)["label"].tolist() == [0, 1, 1]
    np.savez(folder / "graph.npz", **arrays | {"labels": np.array([1, 1, 0, 1]), "features": np.eye(4)})
    assert own_data.content_of(folder)["label"].tolist() == [1, 1, 0, 1]
