"""Splits against hand counts and slow references."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from fglbench.datasets import PARTITIONS, SPLITS, build_federation
from fglbench.datasets.federation import Data, GraphSetData, NodeData
from fglbench.datasets.spec import bidirected
from fglbench.datasets.splits import NONE, TEST, TRAIN, VAL, Ratio
from fglbench.registry import UserError

EMPTY = np.empty((0, 2), dtype=np.int64)


def labelled(counts: tuple[int, ...], unlabelled: int = 0, fixed: dict[str, torch.Tensor] | None = None) -> NodeData:
    """A graph without edges, with `counts` nodes per class, shuffled, and some without label."""
    label = np.concatenate([np.repeat(np.arange(len(counts)), counts), np.full(unlabelled, -1)])
    label = np.random.default_rng(0).permutation(label).astype(np.int64)
    graph = bidirected(EMPTY, len(label))
    feat = torch.zeros(len(label), 1)
    return NodeData("toy", graph, feat, torch.from_numpy(label), len(counts), "toy", "generated", fixed)


def halves(data: NodeData) -> list[np.ndarray]:
    order = np.random.default_rng(1).permutation(len(data.label))
    return [np.sort(part) for part in np.array_split(order, 3)]


def roles(name: str, params: dict[str, object], data: NodeData, seed: int = 0) -> np.ndarray:
    return SPLITS.build(name, params)(data, halves(data), seed).role


def by_class(data: NodeData, role: np.ndarray, code: int) -> list[int]:
    return np.bincount(
        data.label.numpy()[(role == code) & (data.label.numpy() >= 0)], minlength=data.num_classes
    ).tolist()


NODE_SPLITS = [("per-class", {"k": 3, "val": 20, "test": 30}), ("ratio", {}), ("fs-per-class", {})]
NODE_SPLITS += [("ratio", {"scope": "global"}), ("ratio", {"strategy": "quota"}), ("ratio", {"strategy": "random"})]


@pytest.mark.parametrize(("name", "params"), NODE_SPLITS)
def test_splits_are_deterministic_and_masks_restrict_the_whole(name: str, params: dict[str, object]) -> None:
    data = labelled((40, 25, 60), unlabelled=9)
    parts = halves(data)
    spec = SPLITS.build(name, params)
    result = spec(data, parts, 4)
    np.testing.assert_array_equal(result.role, spec(data, parts, 4).role)
    assert (result.role != spec(data, parts, 5).role).any()
    assert (result.role[data.label.numpy() < 0] == NONE).all()
    for part, code in (("train", TRAIN), ("val", VAL), ("test", TEST)):
        np.testing.assert_array_equal(result.whole[part].numpy(), result.role == code)
        assert result.whole[part].dtype == torch.bool
        for ids, masks in zip(parts, result.clients, strict=True):
            np.testing.assert_array_equal(masks[part].numpy(), (result.role == code)[ids])


def test_fixed() -> None:
    fixed = {"train": torch.tensor([3, 0]), "val": torch.tensor([1]), "test": torch.tensor([4])}
    assert roles("fixed", {}, labelled((3, 3), fixed=fixed)).tolist() == [TRAIN, VAL, NONE, TRAIN, TEST, NONE]
    with pytest.raises(UserError, match="'toy' comes without a split; use split per-class or ratio"):
        roles("fixed", {}, labelled((3, 3)))


def test_per_class_with_a_small_class() -> None:
    data = labelled((30, 5, 1), unlabelled=4)
    role = roles("per-class", {"k": 10, "val": 7, "test": 12}, data)
    assert by_class(data, role, TRAIN) == [10, 4, 0]
    assert ((role == VAL).sum(), (role == TEST).sum()) == (7, 12)
    assert (role == NONE).sum() == 40 - 14 - 7 - 12
    with pytest.raises(UserError, match="val=500 and test=1000 do not fit into the 22 nodes"):
        roles("per-class", {"k": 10}, data)


@pytest.mark.parametrize(
    ("counts", "train", "val"),
    [
        ((351, 217, 418, 818, 426, 298, 180), (232, 217, 232, 232, 232, 232, 180), 542),
        ((264, 590, 668, 701, 596, 508), (264, 332, 332, 332, 332, 332), 665),
        ((4103, 7739, 7875), (3943, 3943, 3943), 3943),
    ],
    ids=["cora", "citeseer", "pubmed"],
)
def test_the_quota_of_the_fgssl_code(counts: tuple[int, ...], train: tuple[int, ...], val: int) -> None:
    data = labelled(counts)
    role = roles("fs-per-class", {}, data)
    assert by_class(data, role, TRAIN) == list(train)
    assert (role == VAL).sum() == val
    assert (role == TEST).sum() == sum(counts) - sum(train) - val
    swallowed = [c for c, (size, quota) in enumerate(zip(counts, train, strict=True)) if size == quota]
    assert all(by_class(data, role, TEST)[c] == by_class(data, role, VAL)[c] == 0 for c in swallowed)


@pytest.mark.parametrize("scope", ["client", "global"])
def test_ratio_floors_each_class_as_openfgl(scope: str) -> None:
    data = labelled((41, 28, 63, 2))
    role = roles("ratio", {"train": 0.2, "val": 0.4, "test": 0.4, "scope": scope}, data)
    for ids in halves(data) if scope == "client" else [np.arange(134)]:
        label = data.label.numpy()[ids]
        for c in range(4):
            n = int((label == c).sum())
            here = role[ids][label == c]
            first, second = n * 2 // 10, n * 6 // 10  # integers avoid rounding
            assert [(here == code).sum() for code in (TRAIN, VAL, TEST)] == [first, second - first, n - second]


def test_ratio_leaves_the_rest_unused() -> None:
    data = labelled((100, 200))
    role = roles("ratio", {"train": 0.1, "val": 0.2, "test": 0.2, "scope": "global"}, data)
    assert [by_class(data, role, code) for code in (TRAIN, VAL, TEST, NONE)] == [
        [10, 20],
        [20, 40],
        [20, 40],
        [50, 100],
    ]


def test_quota_rounds_the_total_and_follows_the_classes() -> None:
    data = labelled((26, 26, 26, 22))
    params = {"train": 0.05, "val": 0.5, "test": 0.45, "scope": "global", "strategy": "quota"}
    role = roles("ratio", params, data)
    assert [(role == code).sum() for code in (TRAIN, VAL, TEST)] == [5, 50, 45]
    for code, share in ((TRAIN, 0.05), (VAL, 0.5), (TEST, 0.45)):
        for c, size in enumerate((26, 26, 26, 22)):
            assert abs(by_class(data, role, code)[c] - share * size) < 2
    floors = roles("ratio", {**params, "strategy": "floor"}, data)
    assert (floors == TRAIN).sum() == 4 * math.floor(0.05 * 26)


def test_random_ignores_classes() -> None:
    data = labelled((50, 50))
    counts = {
        tuple(by_class(data, roles("ratio", {"strategy": "random", "scope": "global"}, data, seed), TRAIN))
        for seed in range(8)
    }
    assert all(sum(pair) == 20 for pair in counts)
    assert len(counts) > 1


def test_least_training_nodes() -> None:
    data = labelled((30, 30))
    parts = halves(data)
    none = SPLITS.build("ratio", {"train": 0.01, "val": 0.2, "test": 0.2, "strategy": "quota", "min_train": 0})
    some = none.model_copy(update={"min_train": 3})
    with pytest.raises(UserError, match="leaves 'toy' no training node at all"):
        none(data, parts, 0)
    result = some(data, parts, 0)
    assert [int(masks["train"].sum()) for masks in result.clients] == [3, 3, 3]
    assert [int(masks["val"].sum()) for masks in result.clients] == [4, 4, 4]  # training takes unused nodes
    every = SPLITS.build("ratio", {"train": 0.2, "val": 0.4, "test": 0.4, "min_train": 99})(data, parts, 0)
    assert (every.role == TRAIN).all()


@pytest.mark.parametrize("strategy", ["floor", "quota", "random"])
def test_overlapping_clients_agree(strategy: str) -> None:
    data = labelled((50, 50))
    rng = np.random.default_rng(3)
    parts = [np.sort(rng.choice(100, size=size, replace=False)) for size in (60, 70, 40)]
    result = SPLITS.build("ratio", {"strategy": strategy})(data, parts, 0)
    seen: dict[int, set[str]] = {}
    for ids, masks in zip(parts, result.clients, strict=True):
        for part, mask in masks.items():
            for node in ids[mask.numpy()].tolist():
                seen.setdefault(node, set()).add(part)
    assert all(len(names) == 1 for names in seen.values())
    first = {part: int(mask.sum()) for part, mask in result.clients[0].items()}
    assert abs(first["train"] - 12) <= 2
    assert all(int(masks["train"].sum()) >= 6 for masks in result.clients)


def test_roles_from_other_clients_count() -> None:
    data = labelled((50, 50))
    held = np.arange(60)
    spec = SPLITS.build("ratio", {"train": 0.2, "val": 0.2, "test": 0.2})
    once = spec(data, [held], 0)
    twice = spec(data, [held, held, held[:0]], 0)
    for part, mask in once.clients[0].items():
        assert int(twice.whole[part].sum()) == int(mask.sum())


def test_clients_with_enough_training_nodes_get_no_more() -> None:
    data, spec = labelled((10,)), SPLITS.build("ratio", {"train": 0.5, "val": 0.25, "test": 0.25, "min_train": 0})
    one, other = np.arange(4), np.arange(4, 8)
    train = spec(data, [one, other], 0).whole["train"].nonzero().squeeze(1).numpy()
    assert len(train) == 4
    masks = spec(data, [one, other, np.append(train, [8, 9])], 0).whole  # six nodes: three for training, and has four
    assert masks["train"].nonzero().squeeze(1).tolist() == train.tolist()
    assert (masks["val"] | masks["test"])[[8, 9]].all()


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"train": 0.5, "val": 0.4, "test": 0.4}, "at most 1"),
        ({"train": 0.0}, "train"),
        ({"train": 1.2}, "train"),
        ({"scope": "clients"}, "scope"),
        ({"tain": 0.2}, "did you mean 'train'"),
    ],
)
def test_wrong_ratios(params: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        SPLITS.build("ratio", params)


def test_splits_and_tasks() -> None:
    graphs = GraphSetData("set", [bidirected(EMPTY, 1)] * 4, torch.tensor([0, 1, 0, 1]), 2, "toy", "generated")
    result = SPLITS.build("none")(graphs, [np.array([0, 1]), np.array([2, 3])], 0)
    assert result.whole == {}
    assert result.clients == [{}, {}]
    with pytest.raises(UserError, match="for node datasets and 'set' is a graph dataset; choose one of none, ratio"):
        SPLITS.build("per-class")(graphs, [np.arange(4)], 0)
    parts = SPLITS.build("ratio", {"train": 0.5, "val": 0.01, "test": 0.49})(graphs, [np.arange(4)], 0)
    assert parts.role.tolist().count(TRAIN) == 2 and {*parts.role[[0, 2]]} == {*parts.role[[1, 3]]} == {
        TRAIN,
        TEST,
    }
    with pytest.raises(UserError, match="'ratio' leaves 'set' no training graph at all"):
        SPLITS.build("ratio", {"train": 0.4, "val": 0.1, "test": 0.5})(graphs, [np.arange(4)], 0)
    with pytest.raises(UserError, match="for graph datasets and 'toy' is a node dataset; choose one of fixed"):
        roles("none", {}, labelled((3, 3)))


def test_a_split_that_is_not_sound_is_refused() -> None:
    data = labelled((5, 5))
    bare = replace(data, label=torch.where(torch.arange(10) == 4, -1, data.label))

    class Odd(Ratio):
        """Returns given roles."""

        name = "odd"
        given: ClassVar[Any]

        def roles(self, *_: object) -> np.ndarray:
            return self.given

    def refused(role: Any, whole: Data = data) -> str:
        Odd.given = role
        with pytest.raises(UserError, match=r"split 'odd' on 'toy'") as caught:
            build_federation(whole, PARTITIONS.build("uniform"), Odd(), 2, 0)
        return str(caught.value)

    role = np.array([0, 1, 2, 0, 2, 0, 1, 2, 0, 2], dtype=np.int8)
    assert "1 nodes without a label have a role, the first is 4" in refused(role, bare)
    assert "roles have shape (9,); give one role per node" in refused(role[:9])
    assert "roles are int64 (10,)" in refused(role.astype(np.int64))
    assert "roles are int64 (10,)" in refused(torch.from_numpy(role).long())
    assert "roles are bool (10,)" in refused(role >= 0)
    assert "roles have shape ();" in refused(None)
    assert "give -1 to 2" in refused(np.where(role == 2, np.int8(3), role))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-d chameleon-filtered --split fixed --set split.per_seed=true --set dataset.split_index=3", "leave one out"),
        ("-d ogbn-arxiv-structure-features --split links", "computed from all edges, test edges too"),
    ],
)
def test_a_split_that_does_not_fit_the_dataset_is_refused_in_the_plan(cli, arguments: str, message: str) -> None:
    assert message in cli(f"run -m fedavg -k 2 --seeds 1 {arguments} --dry-run", 2)
