"""Checked content in memory, which the workers of a machine map: the same arrays, each process's own."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from fglbench.datasets import own_data
from fglbench.datasets.content import fingerprint, node_content
from fglbench.datasets.shared_content import mapped, offer

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="files in memory are Linux's")


def test_what_is_offered_can_be_mapped_again_and_each_mapping_has_its_own_changes() -> None:
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
