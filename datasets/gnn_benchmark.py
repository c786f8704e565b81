"""Coauthor CS and Physics, Amazon Photo and Computers (Shchur et al., Pitfalls of GNN evaluation, 2018)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.sparse as sp
from pydantic import Field

from . import content as contents
from .base import DATASETS, About, NodeSpec, preprocessing
from .content import Content, node_content, open_npz
from .features import Preprocessing
from .sources import Download, Files, Mirror, Route

_UPSTREAM = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/"


def read_gnn_benchmark(files: Files) -> Content:
    """Content from one npz of gnn-benchmark: adjacency and attributes in CSR parts, `labels`. Never unpickles."""
    (path,) = files.values()
    with open_npz(path) as archive:
        matrix = {
            name: sp.csr_matrix(
                (archive[f"{name}_data"], archive[f"{name}_indices"], archive[f"{name}_indptr"]),
                shape=tuple(archive[f"{name}_shape"].tolist()),
            )
            for name in ("adj", "attr")
        }
        label = archive["labels"]
    return node_content(np.argwhere(matrix["adj"]), label, matrix["attr"])


def _routes(file: str) -> tuple[Route, ...]:
    mirror = Mirror({file: f"gnn-benchmark/{file}"}, read_gnn_benchmark)
    return mirror, Download({file: _UPSTREAM + file}, read_gnn_benchmark)


class _GnnBenchmark(NodeSpec):
    about: ClassVar[About] = About(
        "Shchur et al., Pitfalls of graph neural network evaluation, 2018 (arXiv 1811.05868)",
        "MIT (the gnn-benchmark repository)",
        "https://github.com/shchur/gnn-benchmark",
        "binary features are what the common loaders give; the published counts are features=raw",
    )
    features: Preprocessing = preprocessing("binary")


class _Amazon(_GnnBenchmark):
    largest_component: bool = Field(False, description="keep only the largest connected component")

    def select(self, content: Content) -> Content:
        return contents.largest_component(content) if self.largest_component else content


@DATASETS.register("coauthor-cs")
class CoauthorCS(_GnnBenchmark):
    """Co-authorship among 18333 computer scientists: 6805 keywords, 15 fields."""

    routes: ClassVar[tuple[Route, ...]] = _routes("ms_academic_cs.npz")
    fingerprint: ClassVar[str | None] = "a703db2922ca5103e861e56cce0137c541be99f0a5bf85f73b6a8bce817e81d1"


@DATASETS.register("coauthor-physics")
class CoauthorPhysics(_GnnBenchmark):
    """Co-authorship among 34493 physicists: 8415 keywords, 5 fields."""

    routes: ClassVar[tuple[Route, ...]] = _routes("ms_academic_phy.npz")
    fingerprint: ClassVar[str | None] = "bfa8f9c323cd9491a6aef9674d88f6d468b3d4f5c8fc5113eb80a49fa6cca215"


@DATASETS.register("amazon-photo")
class AmazonPhoto(_Amazon):
    """7650 photo products bought together: 745 review words, 8 categories."""

    routes: ClassVar[tuple[Route, ...]] = _routes("amazon_electronics_photo.npz")
    fingerprint: ClassVar[str | None] = "8adc07dea426bf9f29590057278b4a54e4c2f13b4e27d6c9d4d38a6ba056c6b2"


@DATASETS.register("amazon-computers")
class AmazonComputers(_Amazon):
    """13752 computer products bought together: 767 review words, 10 categories."""

    routes: ClassVar[tuple[Route, ...]] = _routes("amazon_electronics_computers.npz")
    fingerprint: ClassVar[str | None] = "a09d0cfc32b6b52cff5767855f777525ea754e90e872d155d615a6853a63a99c"
