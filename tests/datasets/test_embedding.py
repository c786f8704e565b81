"""Features from the structure alone, against a dense decomposition; their cache; what their fingerprint covers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fglbench.datasets import DATASETS, arxiv as module, load
from fglbench.datasets.content import undirected
from fglbench.datasets.federation import NodeData

NAME = "ogbn-arxiv-structure-features"
NODES = 12


@pytest.fixture
def edges() -> np.ndarray:
    return undirected(np.random.default_rng(1).integers(NODES, size=(30, 2)), NODES)


@pytest.fixture
def arxiv(mirror: Path, edges: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small graph in the place of ogbn-arxiv's."""
    (mirror / "ogb").mkdir()
    order = np.arange(NODES)
    parts = {"train": order[:6], "valid": order[6:9], "test": order[9:]}
    np.savez(mirror / "ogb/ogbn-arxiv_nofeat.npz", edges=edges, label=order % 3, **parts)
    monkeypatch.setattr(DATASETS.cls(NAME), "fingerprint", None)


def test_the_columns_are_those_of_a_dense_decomposition(edges: np.ndarray) -> None:
    dense = np.zeros((NODES, NODES))
    dense[edges[:, 0], edges[:, 1]] = dense[edges[:, 1], edges[:, 0]] = 1
    left, values, _ = np.linalg.svd(dense)
    found = module.structural(edges, NODES, 4, seed=0)
    np.testing.assert_allclose(found["feat_values"], values[:4], atol=0.0005)
    for own, wanted in zip(found["feat"].T, left.T, strict=False):
        score = (wanted - wanted.mean()) / wanted.std()
        assert min(np.abs(own - score).max(), np.abs(own + score).max()) < 1e-4


def test_columns_without_spread_are_zeros() -> None:
    found = module.structural(np.zeros((0, 2), dtype=np.int64), NODES, 4, seed=0)
    np.testing.assert_array_equal(found["feat"], np.zeros((NODES, 4)))


def test_they_are_computed_once_a_cache(arxiv: None, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(NAME, dimension=4)
    assert not first.synthetic
    monkeypatch.setattr(module, "structural", lambda *_: pytest.fail("computed again"))
    again = load(NAME, dimension=4)
    assert isinstance(first, NodeData) and isinstance(again, NodeData)
    assert (first.source, again.source) == ("mirror", "cache")
    assert first.feat.equal(again.feat) and first.fingerprint == again.fingerprint
    assert first.feat.shape == (NODES, 4) and not first.synthetic and first.fixed_split is not None


def test_the_fingerprint_is_that_of_graph_options_and_values_not_of_the_last_bits(arxiv: None) -> None:
    spec = DATASETS.build(NAME, {"dimension": 4})
    content, _ = spec.content()
    known = spec.digest(content)
    assert known == load(NAME, dimension=4).fingerprint
    assert spec.digest(content | {"feat": np.nextafter(content["feat"], 9)}) == known
    others = [
        DATASETS.build(NAME, {"dimension": 4, "seed": 1}).digest(content),
        spec.digest(content | {"feat_values": content["feat_values"] + 0.001}),
        spec.digest(content | {"label": content["label"][::-1]}),
        spec.digest(content | {"split_val": content["split_val"][1:]}),
    ]
    assert len({known, *others}) == 5
