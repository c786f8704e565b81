"""How alike two sets of embeddings are, whatever their widths and bases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def linear_cka(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Linear centred kernel alignment (Kornblith, Norouzi, Lee, Hinton, ICML 2019, section 3), in [0, 1].

    ||Y' X||^2 / (||X' X|| ||Y' Y||), Frobenius norms, of X (n, p) and Y (n, q) with centred columns: rows are the same
    n things. 1 for embeddings that differ by a rotation, a scale or a shift; NaN where one of them does not vary.
    """
    return float(cka_table([one, other])[0, 1])


def cka_table(embeddings: Sequence[NDArray[np.floating]]) -> NDArray[np.float64]:
    """(K, K) linear CKA of every pair."""
    centred = [np.asarray(rows, dtype=float) - np.mean(rows, axis=0, dtype=float) for rows in embeddings]
    norms = [np.linalg.norm(rows.T @ rows) for rows in centred]
    table = np.full((len(centred), len(centred)), np.nan)
    for i, x in enumerate(centred):
        for j in range(i, len(centred)):
            own = norms[i] * norms[j]
            if own > 0:
                table[i, j] = table[j, i] = np.linalg.norm(centred[j].T @ x) ** 2 / own
    return table


def mean_off_diagonal(table: NDArray[np.float64]) -> float:
    """Mean over the pairs of a (K, K) table, K > 1, leaving out pairs that have no figure; NaN if none has."""
    pairs = table[~np.eye(len(table), dtype=bool)]
    return float(np.nanmean(pairs)) if not np.isnan(pairs).all() else float("nan")
