"""Graph diffusion: the dense second view of a graph that MVGRL and FCLG contrast with the first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from ...benchmark.engine import normalised


@dataclass(frozen=True)
class PersonalisedPageRank:
    """S = alpha (I - (1 - alpha) D^-1/2 (A + I) D^-1/2)^-1 (Klicpera et al., NeurIPS 2019), graph by graph, exact.

    An operator of `GraphStack`: one dense block a graph, 0 between graphs, used without further normalisation.
    threshold: entries below it are dropped (0: none).
    """

    alpha: float
    threshold: float = 0.0

    def __call__(self, adjacency: sp.csr_matrix, starts: np.ndarray) -> sp.csr_matrix:
        walk, lengths = normalised(adjacency, starts), np.diff(starts)
        first = np.concatenate([[0], np.cumsum(lengths**2)])
        data, columns = np.empty(first[-1], np.float32), np.empty(first[-1], np.int64)
        for n in np.unique(lengths):  # graphs of equal size are inverted in one call
            graphs = np.flatnonzero(lengths == n)
            blocks = np.stack([walk[s : s + n, s : s + n].toarray() for s in starts[graphs]])
            inverse = np.linalg.inv(np.eye(n) - (1 - self.alpha) * blocks)
            place = first[graphs, None] + np.arange(n * n)
            data[place] = (self.alpha * inverse).reshape(len(graphs), -1)
            columns[place] = starts[graphs, None] + np.tile(np.arange(n), n)
        indptr = np.concatenate([[0], np.cumsum(np.repeat(lengths, lengths))])
        diffusion = sp.csr_matrix((data, columns, indptr), shape=adjacency.shape)
        if self.threshold > 0:
            diffusion.data[diffusion.data < self.threshold] = 0
            diffusion.eliminate_zeros()
        return diffusion
