"""No cache, mirror or network for tests; writers of files in the datasets' formats."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pooch
import pytest
import scipy.sparse as sp

from fglbench.datasets import sources


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of the test. pip and downloads fail unless a test replaces them."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("FGLBENCH_CACHE", str(folder))
    monkeypatch.delenv("FGLBENCH_MIRROR", raising=False)

    def unreachable(*_: object, **__: object) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr(sources.subprocess, "run", unreachable)
    monkeypatch.setattr(pooch, "retrieve", unreachable)
    return folder


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "mirror"
    folder.mkdir()
    monkeypatch.setenv("FGLBENCH_MIRROR", str(folder))
    return folder


class Python2Pickler(pickle._Pickler):
    """Protocol 2 of Python 2: byte strings and the module names of that time."""

    dispatch: ClassVar[dict[type, object]] = dict(pickle._Pickler.dispatch)

    def save_string(self, data: bytes) -> None:
        self.write(b"T" + struct.pack("<i", len(data)) + data)
        self.memoize(data)

    dispatch[bytes] = save_string


def python2_pickle(value: object) -> bytes:
    buffer = io.BytesIO()
    Python2Pickler(buffer, protocol=2).dump(value)
    old = buffer.getvalue()
    for new_name, old_name in ((b"cnumpy._core.", b"cnumpy.core."), (b"cscipy.sparse._csr\n", b"cscipy.sparse.csr\n")):
        old = old.replace(new_name, old_name)
    return old


@dataclass
class Papers:
    """A citation graph: edges (u, v), sparse features, labels, shuffled test index."""

    edges: list[tuple[int, int]]
    feat: np.ndarray
    label: np.ndarray
    test: np.ndarray
    train: int = 140

    def planetoid(self) -> dict[str, bytes]:
        """The seven files as pickles of Python 2, with a self-loop and a repeated edge like the real ones."""
        known = len(self.label) - len(self.test)
        one_hot = np.eye(7, dtype=np.int32)[self.label]
        graph: dict[int, list[int]] = defaultdict(list)
        for u, v in [*self.edges, self.edges[0], (5, 5)]:
            graph[u].append(v)
            graph[v].append(u)
        parts = {
            "y": one_hot[: self.train],
            "tx": sp.csr_matrix(self.feat[self.test]),
            "ty": one_hot[self.test],
            "allx": sp.csr_matrix(self.feat[:known]),
            "ally": one_hot[:known],
            "graph": graph,
        }
        files = {f"ind.cora.{part}": python2_pickle(value) for part, value in parts.items()}
        files["ind.cora.test.index"] = "".join(f"{node}\n" for node in self.test).encode()
        return files

    def linqs(self, order: np.ndarray, classes: tuple[str, ...]) -> dict[str, bytes]:
        """cora.content and cora.cites; node i is on line order[i]."""
        paper = 1000 + 7 * np.argsort(order)  # the paper's name by line; any distinct numbers would do
        name = {node: int(paper[line]) for node, line in enumerate(order)}
        node_at = np.argsort(order)
        content = "".join(
            "\t".join([str(name[v]), *(f"{x:g}" for x in self.feat[v]), classes[self.label[v]]]) + "\n" for v in node_at
        )
        cites = "".join(f"{name[v]}\t{name[u]}\n" for u, v in [*self.edges, (5, 5)])
        return {"cora.content": content.encode(), "cora.cites": cites.encode()}


@pytest.fixture
def papers() -> Papers:
    """1700 papers with 6 words in Planetoid's layout: 140 training, 500 validation, 1000 test nodes."""
    rng = np.random.default_rng(5)
    total = 1700
    pairs = {(min(u, v), max(u, v)) for u, v in rng.integers(total, size=(3000, 2)).tolist() if u != v}
    feat = (rng.random((total, 6)) < 0.3).astype(np.float32)
    test = rng.permutation(np.arange(total - 1000, total))
    return Papers(sorted(pairs), feat, rng.integers(7, size=total), test)


@pytest.fixture
def ogb_files() -> dict[str, bytes]:
    """ogbn-arxiv's raw csv.gz files, for 5 papers."""
    texts = {
        "raw/edge.csv.gz": "0,1\n1,0\n1,2\n3,4\n4,4\n",
        "raw/node-feat.csv.gz": "0.5,-1.0\n0.25,2.0\n0.0,0.0\n1.5,1.0\n-0.125,3.0\n",
        "raw/node-label.csv.gz": "2\n0\n1\n1\n0\n",
        "raw/node_year.csv.gz": "2015\n2016\n2018\n2019\n2020\n",
        "raw/num-node-list.csv.gz": "5\n",
        "raw/num-edge-list.csv.gz": "5\n",
        "split/time/train.csv.gz": "0\n1\n",
        "split/time/valid.csv.gz": "2\n",
        "split/time/test.csv.gz": "4\n3\n",
    }
    return {name: gzip.compress(text.encode()) for name, text in texts.items()}


@pytest.fixture
def tu_files() -> dict[str, bytes]:
    """Three graphs of the TU format: a triangle, an edge, a single node; labels -1 and 1; edge (1, 2) twice."""
    texts = {
        "A": "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n1, 2\n4, 5\n5, 4\n",
        "graph_indicator": "1\n1\n1\n2\n2\n3\n",
        "graph_labels": "1\n-1\n1\n",
        "node_labels": "0\n0\n2\n5\n2\n0\n",
        "node_attributes": "1.0, 2.5\n0.0, 1.0\n3.0, -1.0\n0.5, 0.5\n2.0, 2.0\n7.0, 8.0\n",
    }
    return {f"TOY_{name}.txt": text.encode() for name, text in texts.items()}


def put(folder: Path, files: dict[str, bytes]) -> dict[str, Path]:
    """Write files below a folder; return their paths."""
    paths = {name: folder / name for name in files}
    for name, path in paths.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(files[name])
    return paths


@pytest.fixture(name="put")
def put_fixture() -> object:
    return put
