"""FINCH: clusters of vectors by their first neighbours, without a number of clusters or a threshold."""

from __future__ import annotations

import numpy as np
import torch
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ..parts.contrast import unit_rows


def cluster_means(rows: torch.Tensor) -> torch.Tensor:
    """The means (m, h) of the clusters of rows (n, h), n >= 1, in the coarsest partition of FINCH (Sarfraz et al., CVPR
    2019) that has more than one cluster; of the first partition where that has only one."""
    label, count = linked(rows)
    means = averaged(rows, label, count)
    while count > 1:
        step, fewer = linked(means)
        if fewer == 1 or fewer == count:
            break
        label, count = step[label], fewer
        means = averaged(rows, label, count)
    return means


def linked(rows: torch.Tensor) -> tuple[np.ndarray, int]:
    """(n,) the cluster of each row, and their number: connected parts of the graph that links a row to the one with the
    largest cosine."""
    n = len(rows)
    if n == 1:
        return np.zeros(1, np.int64), 1
    unit = unit_rows(rows)
    nearest = (unit @ unit.T).fill_diagonal_(-torch.inf).argmax(1).cpu().numpy()
    count, label = connected_components(coo_matrix((np.ones(n), (np.arange(n), nearest)), shape=(n, n)), directed=False)
    return label, int(count)


def averaged(rows: torch.Tensor, label: np.ndarray, count: int) -> torch.Tensor:
    """(count, h) the mean of the rows of each cluster."""
    at = torch.from_numpy(label.astype(np.int64))
    size = torch.bincount(at, minlength=count).unsqueeze(1)
    return rows.new_zeros(count, rows.shape[1]).index_add_(0, at, rows) / size
