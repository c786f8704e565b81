"""Rows of unit length, against scikit-learn's `normalize`: bitwise identical."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.preprocessing import normalize

from fglbench.datasets.features import preprocess


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
@pytest.mark.parametrize("density", [0.02, 0.5])
def test_unit_rows_are_those_of_scikit_learn_to_the_bit(kind: type, density: float) -> None:
    rng = np.random.default_rng(0)
    matrix = sp.random(200, 900, density, format="csr", random_state=1)
    matrix.data = rng.normal(size=matrix.nnz) * 10.0 ** rng.integers(-3, 4, matrix.nnz)
    dense = matrix.toarray().astype(kind)
    dense[3] = 0  # an empty row stays one
    feat = sp.csr_matrix(dense)
    before = feat.copy()
    found, wanted = preprocess(feat, "unit"), normalize(feat, norm="l2").astype(np.float32)
    assert (found.data == wanted.data).all()
    assert (found.indices == wanted.indices).all()
    assert (preprocess(dense, "unit") == normalize(dense, norm="l2").astype(np.float32)).all()
    assert (feat != before).nnz == 0  # what was given is left as it was
