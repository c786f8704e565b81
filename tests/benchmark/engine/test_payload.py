"""Bytes counted by hand, personal downloads, and the seal on what was sent."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch

from fglbench.benchmark.engine import BACKBONES
from fglbench.benchmark.engine.network import Network
from fglbench.benchmark.engine.payload import ABSENT, Each, Own, Seal, deliver, merge, tree_bytes, walk


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


def test_walk_meets_what_only_one_tree_has() -> None:
    seen = []

    def note(kind: int | None, *leaves: object) -> object:
        seen.append((kind, *leaves))
        return ABSENT if leaves[0] == "drop" else leaves[0]

    one = {"a": 1, Own(3, "w"): {"x": "drop", "y": 2}, "d": {}}
    two = {"a": 4, Own(3, "w"): {"y": 5}, "new": {"z": 6}}
    assert walk(note, one, two) == {"a": 1, Own(3, "w"): {"y": 2}, "d": {}, "new": {}}
    assert seen == [(None, 1, 4), (3, "drop", ABSENT), (3, 2, 5), (None, ABSENT, 6)]


def test_a_key_of_one_architecture_survives_copies() -> None:
    key = Own(2, "0.weight")
    for again in (copy.deepcopy(key), pickle.loads(pickle.dumps(key))):
        assert (again, again.kind, again.name) == (key, 2, "0.weight")
    assert Own(1, "0.weight") != key and not key.startswith("shared.")


def test_rows_of_some_clients_are_taken_and_put_back_group_by_group() -> None:
    kinds = [BACKBONES.build(name, {"hidden": 4}) for name in ("gcn", "mlp")]
    network = Network(kinds, [3, 4, 5, 6])  # architectures 1, 0, 1, 0
    odd, even = Own(1, "w"), Own(0, "w")
    tree = {"all": torch.arange(4), odd: torch.tensor([3, 5]), even: torch.tensor([4, 6]), "list": [3, 4, 5, 6]}
    part = network.take(tree, [0, 2])
    assert part["all"].tolist() == [0, 2] and part["list"] == [3, 5]
    assert part[odd].tolist() == [3, 5] and even not in part
    part = {name: value * 10 for name, value in part.items() if name != "list"} | {"new": [torch.zeros(1)] * 2}
    back = network.put(tree, [0, 2], part)
    assert back["all"].tolist() == [0, 1, 20, 3] and back["list"] == [3, 4, 5, 6]
    assert back[odd].tolist() == [30, 50] and back[even] is tree[even]
    assert [entry is None for entry in back["new"]] == [False, True, False, True]
    assert list(back) == ["all", odd, even, "list", "new"] and tree["all"].tolist() == [0, 1, 2, 3]
    assert list(network.select([0, 2]).init(0, 5, 3)) == [key for key in network.init(0, 5, 3) if key.kind == 1]
