"""ogbn-arxiv through the `ogb` package; also its graph with random features, or features computed from the graph."""

from __future__ import annotations

import contextlib
import io
import shutil
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import numpy as np
import scipy.sparse as sp

from ..registry import option
from . import content as contents
from .content import Content, node_content, open_npz
from .sources import Files, Unavailable, cache_file, exclusive, keep
from .spec import AnyNodeSpec


def read_ogb(files: Files) -> Content:
    """Return the content of ogbn-arxiv, read by ogb from its raw csv.gz files; without `files`, ogb downloads them.

    ogb always gets a new folder. So it does not ask on the terminal whether to update an old one, and it does not load
    its own pickles, which fails with torch >= 2.6 (weights_only) and would run their code. Raises Unavailable if the
    download fails.
    """
    with tempfile.TemporaryDirectory(prefix="fglbench-ogb-") as work:
        root = Path(work) / "ogbn_arxiv"
        for name, path in files.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, root / name)
        if files:
            (root / "processed").mkdir()
            (root / "RELEASE_v1.txt").touch()
            return _open_ogb(root)
        timeout = socket.getdefaulttimeout()
        socket.setdefaulttimeout(30)  # ogb sets no timeout
        try:
            return _open_ogb(root)
        except (OSError, RuntimeError) as error:
            raise Unavailable(f"ogb could not download ogbn-arxiv ({type(error).__name__})") from None
        finally:
            socket.setdefaulttimeout(timeout)


def _open_ogb(root: Path) -> Content:
    from ogb.nodeproppred import NodePropPredDataset  # here, because it takes seconds and starts a thread

    with contextlib.redirect_stdout(sys.stderr if sys.stderr.isatty() else io.StringIO()):
        dataset = NodePropPredDataset(name="ogbn-arxiv", root=str(root.parent))
        (root / "split/time/split_dict.pt").unlink(missing_ok=True)
        split = dataset.get_idx_split()
    graph, label = dataset[0]
    return node_content(graph["edge_index"].T, label[:, 0], graph["node_feat"], _parts(split))


def _parts(split: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"train": split["train"], "val": split["valid"], "test": split["test"]}


def read_ogb_structure(files: Files) -> Content:
    """Return the content of `read_ogb` without the features."""
    return {name: array for name, array in read_ogb(files).items() if name != "feat"}


def read_structure(files: Files) -> Content:
    """Return content without features from an npz with `edges`, `label`, `train`, `valid`, `test`."""
    with open_npz(*files.values()) as archive:
        return node_content(archive["edges"], archive["label"], None, _parts(archive))


class ArxivStructureSpec(AnyNodeSpec):
    """The graph with random features."""

    synthetic: ClassVar[bool] = True
    width: int = option(128, "number of standard normal features", ge=1)
    seed: int = option(0, "seed of the features", ge=0)

    def content(self) -> tuple[Content, str]:
        content, source = super().content()
        shape = len(content["label"]), self.width
        feat = np.random.default_rng(self.seed).standard_normal(shape, dtype=np.float32)
        return {**content, "feat": feat}, source


class ArxivStructureFeaturesSpec(AnyNodeSpec):
    """The graph with features that are computed from it: see `structural`.

    The features depend on the machine in their last bits, so the fingerprint in the results leaves them out. It covers
    edges, labels, split, options, and the singular values rounded to 3 decimals.
    """

    features_from_edges: ClassVar[bool] = True
    dimension: int = option(128, "number of features, the leading singular vectors", ge=1, le=1024)
    seed: int = option(0, "seed of the randomised decomposition", ge=0)

    def content(self) -> tuple[Content, str]:
        content, source = super().content()
        return content | cached(self.name, content["edges"], len(content["label"]), self.dimension, self.seed), source

    @classmethod
    def row_fingerprint(cls) -> str | None:
        return None  # because rows have that of the options and the computed values too

    def digest(self, content: Content) -> str:
        options = np.array([self.dimension, self.seed], dtype=np.int64)
        return contents.fingerprint(content | {"feat_options": options}, without=("feat",))


ITERATIONS = 5  # of the power method; only the last dimensions are not exact after them
DECIMALS = 3


def structural(edges: np.ndarray, nodes: int, dimension: int, seed: int) -> Content:
    """Return a spectral embedding: the leading singular vectors of the adjacency matrix times their singular values, by
    scikit-learn's randomised `TruncatedSVD` (Halko et al., SIAM Review 2011) in float64, each column standardised.

    edges: int64 (M, 2), each once. Returns "feat", float32 (nodes, dimension), and "feat_values", the singular values,
    descending, rounded to 3 decimals. scikit-learn's svd_flip fixes the sign of each column. The last bits of "feat"
    depend on the machine's linear algebra, the rounded values do not.
    """
    from sklearn.decomposition import TruncatedSVD  # the import takes more than a second

    svd = TruncatedSVD(dimension, algorithm="randomized", n_iter=ITERATIONS, random_state=seed)
    links = sp.csr_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(nodes, nodes))
    embedding = svd.fit_transform(links + links.T)
    spread = embedding.std(axis=0)
    feat = (embedding - embedding.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return {"feat": feat.astype(np.float32), "feat_values": np.round(svd.singular_values_, DECIMALS)}


def cached(dataset: str, edges: np.ndarray, nodes: int, dimension: int, seed: int) -> Content:
    """Return `structural(...)` from the cache; compute and store it if it is not there."""
    path = cache_file(f"{dataset}-{dimension}-{seed}")
    with exclusive(path) as writable:
        if path.is_file():
            return contents.read(path)
        content = structural(edges, nodes, dimension, seed)
        if writable:
            keep(content, path)
    return content
