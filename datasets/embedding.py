"""Node features computed from the structure of a graph alone, kept in the cache beside the dataset."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from . import content as contents
from .content import Content
from .sources import cache_file, exclusive, keep

ITERATIONS = 5  # of the power method; what it leaves undetermined is in the last dimensions
DECIMALS = 3


def structural(edges: np.ndarray, nodes: int, dimension: int, seed: int) -> Content:
    """A spectral embedding: the leading singular vectors of the adjacency matrix times their values, by scikit-learn's
    randomised `TruncatedSVD` (Halko et al., SIAM Review 2011) in float64; then each column as its standard score.

    edges: int64 (M, 2), each once. "feat": float32 (nodes, dimension). "feat_values": the singular values, descending,
    to 3 decimals. The sign of each column is that of its largest entry (scikit-learn's svd_flip). The last bits of
    `feat` depend on the linear algebra of the machine, the rounded values do not.
    """
    from sklearn.decomposition import TruncatedSVD  # a second and more to import: only where it is needed

    svd = TruncatedSVD(dimension, algorithm="randomized", n_iter=ITERATIONS, random_state=seed)
    links = sp.csr_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(nodes, nodes))
    found = svd.fit_transform(links + links.T)
    spread = found.std(axis=0)
    feat = (found - found.mean(axis=0)) / np.where(spread > 0, spread, 1)
    return {"feat": feat.astype(np.float32), "feat_values": np.round(svd.singular_values_, DECIMALS)}


def cached(dataset: str, edges: np.ndarray, nodes: int, dimension: int, seed: int) -> Content:
    """`structural`, computed once a cache."""
    path = cache_file(f"{dataset}-{dimension}-{seed}")
    with exclusive(path) as writable:
        if path.is_file():
            return contents.read(path)
        found = structural(edges, nodes, dimension, seed)
        if writable:
            keep(found, path)
    return found
