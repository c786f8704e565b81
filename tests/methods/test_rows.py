"""Rows and trees of clients as they cross: what is packed comes back, sparse rows with the bytes of their entries."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from fglbench.benchmark.engine.payload import tree_bytes
from fglbench.methods.parts.rows import listed, packed, split, unpacked


def test_rows_come_back_with_the_bytes_of_their_entries() -> None:
    dense = np.random.default_rng(0).integers(0, 3, (6, 9)).astype(np.float32)
    sparse = sp.csr_matrix(dense)
    np.testing.assert_array_equal(unpacked(packed(dense), 9), dense)
    np.testing.assert_array_equal(unpacked(packed(sparse), 9).toarray(), dense)
    assert tree_bytes(listed([packed(sparse)]), 1) == [4 * (6 + 2 * np.count_nonzero(dense))]
    assert tree_bytes(listed([packed(dense)]), 1) == [4 * 6 * 9]


def test_a_tree_of_lists_is_the_clients_trees() -> None:
    trees = [{"id": torch.arange(k), "rows": {"values": torch.ones(k, 2)}} for k in (3, 0, 5)]
    whole = listed(trees)
    assert [len(own) for own in whole["rows"]["values"]] == [3, 0, 5]
    for one, own in zip(trees, split(whole), strict=True):
        assert torch.equal(one["id"], own["id"]) and torch.equal(one["rows"]["values"], own["rows"]["values"])
