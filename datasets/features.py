"""Node features as tensors: sparse CSR where that is faster, and the preprocessing that results record."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Literal

import numpy as np
import scipy.sparse as sp
import torch

Preprocessing = Literal["row", "unit", "binary", "raw"]

# On one core, X @ W of width 64 in CSR beats the dense product up to about a fifth of non-zeros (PubMed at 10%: 3x,
# Wiki at 13%: 1.5x); Amazon's 35% is faster dense.
SPARSE_BELOW = 0.2


def preprocess(feat: np.ndarray | sp.csr_matrix, how: Preprocessing) -> np.ndarray | sp.csr_matrix:
    """Scale the rows: "row" divided by their sum (Kipf and Welling, ICLR 2017), "unit" by their Euclidean length,
    "binary" 1 where not 0, "raw" as they are. Empty rows stay empty.
    """
    if how == "raw":
        return feat
    if how == "unit":
        return _unit(feat)
    if how == "binary":
        return (feat != 0).astype(np.float32)
    total = np.asarray(feat.sum(axis=1, dtype=np.float64)).ravel()
    scale = np.divide(1.0, total, out=np.ones_like(total), where=total != 0)
    if isinstance(feat, np.ndarray):
        return (feat * scale[:, None]).astype(np.float32)
    return sp.csr_matrix(sp.diags(scale) @ feat, dtype=np.float32)


def _unit(feat: np.ndarray | sp.csr_matrix) -> np.ndarray | sp.csr_matrix:
    """Rows divided by their Euclidean lengths, to the bit as scikit-learn's `normalize` does, whose import takes longer
    than most commands: sparse rows are summed in double precision, one value after the other, dense ones in their own.
    """
    feat = feat if np.issubdtype(feat.dtype, np.floating) else feat.astype(np.float64)
    if isinstance(feat, np.ndarray):
        with np.errstate(over="ignore"):
            length = np.sqrt(np.einsum("ij,ij->i", feat, feat))
        if not np.isfinite(length).all():  # a square is too large for float32
            feat = feat.astype(np.float64)
            length = np.sqrt(np.einsum("ij,ij->i", feat, feat))
        length[length < 10 * np.finfo(length.dtype).eps] = 1
        return (feat / length[:, None]).astype(np.float32)
    unit = sp.csr_matrix(feat, copy=True)
    with np.errstate(over="ignore"):
        square = unit.data**2
    if not np.isfinite(square).all():  # too large for float32
        square = unit.data.astype(np.float64) ** 2
    squares = sp.csr_matrix((square.astype(np.float64), unit.indices, unit.indptr), shape=unit.shape)
    length = np.sqrt(squares @ np.ones(unit.shape[1]))
    length[length == 0] = 1
    unit.data = (unit.data / np.repeat(length, np.diff(unit.indptr))).astype(feat.dtype)
    return unit.astype(np.float32)


def to_tensor(feat: np.ndarray | sp.csr_matrix) -> torch.Tensor:
    """(N, d) float32: sparse CSR (int32 indices, MKL's own) below `SPARSE_BELOW` non-zeros, else dense."""
    filled = np.count_nonzero(feat) if isinstance(feat, np.ndarray) else feat.nnz
    if filled < SPARSE_BELOW * max(feat.shape[0] * feat.shape[1], 1):
        return csr_tensor(sp.csr_matrix(feat))
    dense = feat if isinstance(feat, np.ndarray) else feat.toarray()
    return torch.from_numpy(np.require(dense, np.float32, ("C", "W")))  # torch wants to be able to write


def csr_tensor(matrix: sp.csr_matrix) -> torch.Tensor:
    """A SciPy CSR matrix as a torch sparse CSR tensor, float32, same shape."""
    matrix.sort_indices()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(
            torch.from_numpy(matrix.indptr.astype(np.int32)),
            torch.from_numpy(matrix.indices.astype(np.int32)),
            torch.from_numpy(matrix.data.astype(np.float32)),
            size=matrix.shape,
            check_invariants=True,
        )


def to_scipy(feat: torch.Tensor) -> sp.csr_matrix:
    """A sparse CSR tensor as a SciPy matrix that shares its memory."""
    arrays = (feat.values().numpy(), feat.col_indices().numpy(), feat.crow_indices().numpy())
    return sp.csr_matrix(arrays, shape=tuple(feat.shape))


class Rows:
    """Cuts rows out of a feature tensor, keeping its layout; a sparse one is converted to SciPy once for all cuts."""

    def __init__(self, feat: torch.Tensor) -> None:
        self._feat = to_scipy(feat) if feat.layout == torch.sparse_csr else feat

    def __call__(self, ids: np.ndarray) -> torch.Tensor:
        """(len(ids), d), rows in the order of `ids`."""
        if isinstance(self._feat, torch.Tensor):
            return self._feat[torch.from_numpy(ids)]
        return csr_tensor(self._feat[ids])

    def each(self, parts: Sequence[np.ndarray]) -> Sequence[torch.Tensor]:
        """The rows of each part. Dense ones lie one after the other in memory, so that `joined` need not copy them."""
        if isinstance(self._feat, torch.Tensor):
            return self(np.concatenate(parts)).split_with_sizes([len(ids) for ids in parts])
        return [self(ids) for ids in parts]


def joined(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Dense rows (n_k, d) as one tensor (N, d): the one that they are parts of, where they are, else a copy."""
    whole, start = parts[0]._base, parts[0].storage_offset()
    starts = np.cumsum([start, *[part.numel() for part in parts[:-1]]])
    one = whole is not None and all(part._base is whole for part in parts)
    if not one or [part.storage_offset() for part in parts] != starts.tolist():
        return torch.cat(list(parts)) if len(parts) > 1 else parts[0]
    return torch.as_strided(parts[0], (sum(map(len, parts)), parts[0].shape[1]), parts[0].stride())
