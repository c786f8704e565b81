"""Messages of single clients: rows of matrices as tensors, and one tree of lists from one tree per client."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from ...benchmark.engine import Tree, to_scipy_csr

Rows = Any  # a SciPy CSR matrix or a NumPy array


def rows_of(feat: torch.Tensor) -> Rows:
    return to_scipy_csr(feat) if feat.layout == torch.sparse_csr else feat.numpy()


def packed(rows: Rows) -> Tree:
    """Return rows as a message: dense values, or numbers of entries per row, columns and values."""
    if not sp.issparse(rows):
        return {"values": torch.from_numpy(rows.astype(np.float32, copy=False))}
    parts = {"counts": np.diff(rows.indptr), "columns": rows.indices, "values": rows.data.astype(np.float32)}
    return {name: torch.from_numpy(part) for name, part in parts.items()}


def unpacked(tree: Tree, width: int) -> Rows:
    """Return the rows of a message of `packed`. width: number of columns."""
    values = tree["values"].cpu().numpy()
    if "counts" not in tree:
        return values
    ends = np.concatenate([[0], np.cumsum(tree["counts"].cpu().numpy())])
    return sp.csr_matrix((values, tree["columns"].cpu().numpy(), ends), shape=(len(ends) - 1, width))


def listed(trees: Sequence[Tree]) -> Tree:
    """Return a tree of lists from one tree per client."""
    return {
        name: listed([tree[name] for tree in trees]) if isinstance(value, dict) else [tree[name] for tree in trees]
        for name, value in trees[0].items()
    }


def split(tree: Tree) -> list[Tree]:
    """Return one tree per client from a tree of lists."""
    columns = {name: split(value) if isinstance(value, dict) else value for name, value in tree.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
