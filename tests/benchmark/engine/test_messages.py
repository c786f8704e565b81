"""Bytes counted by hand, personal downloads, and the seal on what was handed over."""

from __future__ import annotations

import pytest
import torch

from fglbench.benchmark.engine.messages import Each, Seal, deliver, merge, tree_bytes


def test_bytes_are_those_of_the_values() -> None:
    tree = {
        "model": {"w": torch.zeros(2, 3, 4), "b": torch.zeros(2, 4, dtype=torch.float64)},
        "ids": [torch.zeros(5, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)],
        "flag": torch.zeros(2, dtype=torch.bool),
    }
    assert tree_bytes(tree, 2) == [3 * 4 * 4 + 4 * 8 + 5 * 8 + 1, 3 * 4 * 4 + 4 * 8 + 1]
    shared = deliver({"w": torch.zeros(7)}, [3, 4, 5], [0])
    assert tree_bytes(shared, 3) == [28, 28, 28]


def test_a_leaf_without_one_value_a_client_is_refused() -> None:
    with pytest.raises(ValueError, match="each of 3 clients, this one holds 2"):
        tree_bytes({"w": torch.zeros(2, 5)}, 3)
    with pytest.raises(TypeError, match="not float"):
        tree_bytes({"w": 0.5}, 1)


def test_personal_downloads_reach_whom_they_address() -> None:
    message = Each({"w": torch.arange(4.0), "l": [torch.tensor(k) for k in range(4)]}, clients=[2, 5, 7, 9])
    got = deliver(message, [9, 5], [0])
    assert got["w"].tolist() == [3.0, 1.0] and [int(v) for v in got["l"]] == [3, 1]
    with pytest.raises(RuntimeError, match=r"no download for clients \[3\]"):
        deliver(message, [3, 5], [0])
    assert deliver(message, [3, 5], [0], partial=True) == {}
    assert deliver(Each({"w": torch.arange(2.0)}), [4, 6], [4, 6])["w"].tolist() == [0.0, 1.0]


def test_merge_keeps_client_order() -> None:
    one = {"w": torch.tensor([1.0, 2.0]), "l": [torch.zeros(1), torch.zeros(2)], "d": {"x": torch.zeros(2, 1)}}
    two = {"w": torch.tensor([3.0]), "l": [torch.zeros(3)], "d": {"x": torch.ones(1, 1)}}
    both = merge([one, two])
    assert both["w"].tolist() == [1, 2, 3] and [len(v) for v in both["l"]] == [1, 2, 3]
    assert both["d"]["x"].flatten().tolist() == [0, 0, 1]


def test_seal_sees_a_write() -> None:
    value, view = torch.zeros(3), torch.zeros(2)
    seal = Seal()
    seal.close({"v": value}, "an upload")
    seal.close(Each({"l": [view]}), "a download")
    seal.check()
    seal.close(deliver({"v": value}, [0, 1], [0]), "a download")
    value.add_(1)
    with pytest.raises(RuntimeError, match="a download was written to"):
        seal.check()
