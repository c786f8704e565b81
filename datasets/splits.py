"""Split specs: seeded functions that select training, validation and test nodes, or graphs of a set.

A split gives each node of the whole graph (each graph of the set) one role, which is the same at all clients: no node
is a training node of one client and a test node of another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np
import torch
from pydantic import model_validator

from ..registry import Registry, UserError, option
from .federation import PARTS, Data, Goal, GraphSetData, NodeData, RowsClient, Task
from .partitioning import BadResult, CuttingSpec, by_size, floor

if TYPE_CHECKING:
    from .spec import DatasetSpec

NONE, TRAIN, VAL, TEST = -1, 0, 1, 2


@dataclass(frozen=True)
class SplitResult:
    """role: int8 (N,), -1 none, 0 train, 1 val, 2 test. whole: bool masks (N,). clients: bool masks (n_k,) per client.

    The masks are dictionaries with keys "train", "val", "test"; empty, with role -1, if no labels are used.
    """

    role: np.ndarray
    whole: dict[str, torch.Tensor]
    clients: list[dict[str, torch.Tensor]]


class SplitSpec(CuttingSpec):
    """A split into training, validation and test nodes, or graphs. Subclasses define `roles`.

    labelled: False if no label is used: such graphs are clustered. A split for another task also defines `goal`, the
    name of the task, `outputs`, the number of model outputs, and `unit`, the noun of the split items in messages.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("node",)
    labelled: ClassVar[bool] = True
    goal: ClassVar[Goal] = ""
    outputs: ClassVar[int] = 0
    unit: ClassVar[str] = ""
    without_training: ClassVar[str] = "use fewer clients or another split"  # what to do if no node trains

    def check(self, dataset: DatasetSpec) -> None:
        """Raise UserError if the split cannot be used with this dataset; before it is loaded."""
        self.check_task(type(dataset), "is for", SPLITS)

    def __call__(self, data: Data, parts: Sequence[np.ndarray], seed: int) -> SplitResult:
        """Return roles and masks for the parts of a partition (sorted ids); they depend on the arguments only.

        Raises UserError if the split does not apply to the dataset or its counts do not fit.
        """
        self.check_task(data, "is for", SPLITS)
        if not self.labelled and data.goal and not self.goal:
            raise UserError(f"split {self.name!r} clusters graphs and {data.name!r} has targets; choose ratio")
        if not self.labelled:
            return SplitResult(np.full(len(data.label), NONE, dtype=np.int8), {}, [{} for _ in parts])
        role = np.asarray(self.roles(data, parts, np.random.default_rng(seed)))
        if role.shape != (len(data.label),):
            problem = f"roles have shape {role.shape}"
            raise BadResult(f"split {self.name!r} on {data.name!r}: {problem}; give one role per {data.task}")
        if role.dtype == np.int8 and not (role == TRAIN).any():  # `build` refuses other types
            problem = f"split {self.name!r} leaves {data.name!r} no training {data.task} at all"
            raise BadResult(f"{problem}; {self.without_training}")
        return SplitResult(role, masks(role), [masks(role[ids]) for ids in parts])

    @classmethod
    def task(cls, data: Data | type[DatasetSpec]) -> Goal:
        """Return the learning task of a dataset under this split."""
        return cls.goal or data.goal or ("graph-classification" if data.task == "graph" and cls.labelled else data.task)

    def clients(self, data: Data, parts: Sequence[np.ndarray], seed: int) -> Sequence[RowsClient] | None:
        """Return the clients of a split of other rows than nodes (graphs); None for other splits."""
        return None

    def choose(self, data: Data, seed: int) -> Data:
        """Return the data with the published split for this seed; unchanged for other splits."""
        return data

    def roles(self, data: Data, parts: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        """Return the role of each node (graph), int8 (N,)."""
        raise NotImplementedError


SPLITS: Registry[SplitSpec] = Registry("split")


def masks(role: np.ndarray) -> dict[str, torch.Tensor]:
    """Return bool masks by part from roles of any shape."""
    return {part: torch.from_numpy(role == code) for code, part in enumerate(PARTS)}


@SPLITS.register("none")
class NoSplit(SplitSpec):
    """No split: graphs are clustered, and training uses no labels."""

    tasks: ClassVar[tuple[Task, ...]] = ("graph",)
    labelled: ClassVar[bool] = False


@SPLITS.register("fixed")
class Fixed(SplitSpec):
    """The published split of the dataset: Planetoid's public one, OGB's official one."""

    per_seed: bool = option(
        False, "use published split number (seed mod n) of n, instead of the same split for all seeds", later=True
    )

    def check(self, dataset: DatasetSpec) -> None:
        super().check(dataset)
        if self.per_seed and (index := getattr(dataset, "split_index", 0)):
            raise UserError(
                f"split.per_seed and dataset.split_index={index} both choose the published split: leave one out"
            )

    def choose(self, data: Data, seed: int) -> Data:
        if not self.per_seed or not isinstance(data, NodeData):
            return data
        if not data.published_splits:
            raise UserError(f"dataset {data.name!r} has one published split; use split fixed without per_seed")
        return replace(data, fixed_split=data.published_splits[seed % len(data.published_splits)])

    def roles(self, data: Data, parts: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        assert isinstance(data, NodeData)
        if data.fixed_split is None:
            raise UserError(f"dataset {data.name!r} comes without a split; use split per-class or ratio")
        role = np.full(len(data.label), NONE, dtype=np.int8)
        for part, ids in data.fixed_split.items():
            role[ids.numpy()] = PARTS.index(part)
        return role


@SPLITS.register("per-class")
class PerClass(SplitSpec):
    """k random training nodes per class, then `val` and `test` random others, over the whole graph.

    A class of n nodes gives min(k, n - 1) training nodes, so that at least one of its nodes can be a test node.
    """

    k: int = option(20, "training nodes per class", ge=1)
    val: int = option(500, "number of validation nodes", ge=0)
    test: int = option(1000, "number of test nodes", ge=1)

    def roles(self, data: Data, parts: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        label = data.label.numpy()
        role = np.full(len(label), NONE, dtype=np.int8)
        for c in range(data.num_classes):
            members = rng.permutation(np.flatnonzero(label == c))
            role[members[: max(min(self.k, len(members) - 1), 0)]] = TRAIN
        rest = rng.permutation(np.flatnonzero((role == NONE) & (label >= 0)))
        if self.val + self.test > len(rest):
            raise UserError(
                f"split 'per-class': val={self.val} and test={self.test} do not fit into the {len(rest)} nodes of "
                f"{data.name!r} that do not train; give smaller counts"
            )
        role[rest[: self.val]] = VAL
        role[rest[self.val : self.val + self.test]] = TEST
        return role


@SPLITS.register("fs-per-class")
class QuotaPerClass(SplitSpec):
    """The split of the released FGSSL code: the same training quota for all classes, floor(train N / C), whole graph.

    232 nodes per class on Cora, 332 on CiteSeer, 3943 on PubMed. All nodes of a class smaller than the quota are
    training nodes, so validation and test (the rest) have none of them. Use it only to compare with FGSSL's tables;
    otherwise prefer `ratio`.
    """

    train: float = option(0.6, "sum of the quotas, as a share of all nodes", gt=0, lt=1)
    val: float = option(0.2, "validation share; the rest tests", ge=0, lt=1)

    def roles(self, data: Data, parts: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        label = data.label.numpy()
        role = np.where(label >= 0, TEST, NONE).astype(np.int8)
        quota = floor(self.train * len(label) / data.num_classes)
        for c in range(data.num_classes):
            role[rng.permutation(np.flatnonzero(label == c))[:quota]] = TRAIN
        rest = rng.permutation(np.flatnonzero(role == TEST))
        role[rest[: round(self.val * len(label))]] = VAL
        return role


@SPLITS.register("scaffold")
class Scaffold(SplitSpec):
    """All molecules of a scaffold are in one part: frequent scaffolds train, rarer ones validate, the rarest test.

    As DeepChem's ScaffoldSplitter: scaffolds, largest first, each go to the first part with enough room.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("graph",)

    train: float = option(0.8, "training share", gt=0, lt=1)
    val: float = option(0.1, "validation share; the rest tests", ge=0, lt=1)
    scope: Literal["client", "global"] = option("client", "shares of each client's molecules, or of all")

    def roles(self, data: Data, parts: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        if not isinstance(data, GraphSetData) or data.group is None:
            raise UserError(f"split 'scaffold' is for sets of molecules and {data.name!r} is none; choose ratio")
        role = np.full(len(data.label), NONE, dtype=np.int8)
        for ids in parts if self.scope == "client" else [np.arange(len(data.label))]:
            counts = np.zeros(3, dtype=int)
            most = np.array([self.train, self.train + self.val]) * len(ids)
            for group in by_size(data.group.numpy()[ids]):
                fits = counts[TRAIN] + len(group) <= most[0], counts[TRAIN] + counts[VAL] + len(group) <= most[1]
                part = TRAIN if fits[0] else VAL if fits[1] else TEST
                role[ids[group]], counts[part] = part, counts[part] + len(group)
        return role


@SPLITS.register("ratio")
class Ratio(SplitSpec):
    """Shares of each client's nodes (of a set of graphs: of each client's graphs), or of the whole graph's.

    strategy "floor": each class is cut at floor(train n), floor((train + val) n), floor((train + val + test) n) of its
    n shuffled nodes, as in OpenFGL. "quota": round(train n) of all n nodes, divided among the classes by largest
    remainder, so that a client with few nodes also has training nodes. "random": classes are ignored.

    A node that several clients hold keeps the role from the first of them, and counts in the shares of the others.
    """

    tasks: ClassVar[tuple[Task, ...]] = ("node", "graph")
    without_training: ClassVar[str] = (
        "use fewer clients or larger training shares: --set split.train=0.6 --set split.val=0.2 --set split.test=0.2"
    )

    train: float = option(0.2, "training share", gt=0, lt=1)
    val: float = option(0.4, "validation share", ge=0, lt=1)
    test: float = option(0.4, "test share; train + val + test <= 1, the rest is unused", gt=0, lt=1)
    scope: Literal["client", "global"] = option("client", "shares of each client's nodes, or of all nodes")
    strategy: Literal["floor", "quota", "random"] = option("floor", "how shares become counts; see above")
    min_train: int = option(0, "least training nodes of a client that holds enough labelled nodes", ge=0)

    @model_validator(mode="after")
    def _at_most_one(self) -> Ratio:
        if (total := self.train + self.val + self.test) > 1 + 1e-9:
            given = f"{self.train:g} + {self.val:g} + {self.test:g}"
            raise ValueError(f"train + val + test is {given} = {total:g}; make it at most 1")
        return self

    def roles(self, data: Data, parts: Sequence[np.ndarray], rng: np.random.Generator) -> np.ndarray:
        label = data.label.numpy()
        group = label if self.strategy != "random" else np.minimum(label, 0)
        role = np.full(len(label), NONE, dtype=np.int8)
        for held in parts if self.scope == "client" else [np.arange(len(label))]:
            ids = held[label[held] >= 0]
            counts = self._counts(np.bincount(group[ids], minlength=data.num_classes), rng)
            for c in range(data.num_classes):
                members = ids[group[ids] == c]
                free = rng.permutation(members[role[members] == NONE])
                for code, wanted in enumerate(counts[:, c]):
                    missing = max(int(wanted) - int((role[members] == code).sum()), 0)
                    role[free[:missing]], free = code, free[missing:]
        for held in parts:
            ids = held[label[held] >= 0]
            missing = min(self.min_train, len(ids)) - int((role[ids] == TRAIN).sum())
            if missing > 0:
                reluctance = np.array([3, 2, 1, 0])[role[ids]]  # train 3, val 2, test 1, no role 0 (-1 is the last)
                role[ids[np.lexsort((rng.random(len(ids)), reluctance))[:missing]]] = TRAIN
        return role

    def _counts(self, members: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Return the numbers of training, validation and test nodes of each group, int (3, groups). members: (groups,)
        sizes."""
        shares = (self.train, self.val, self.test)
        if self.strategy != "quota":
            cuts = np.floor(np.cumsum(shares)[:, None] * members + 1e-9).astype(np.int64)  # 0.6 * 5 is 3
            return np.diff(cuts, axis=0, prepend=0)
        left = members.copy()
        counts = []
        for share in shares:
            ideal = share * members
            count = np.minimum(np.floor(ideal + 1e-9).astype(np.int64), left)
            total = min(round(share * int(members.sum())), int(left.sum()))
            for c in np.lexsort((rng.random(len(members)), count - ideal)):
                if count.sum() < total and count[c] < left[c]:
                    count[c] += 1
            counts.append(count)
            left = left - count
        return np.stack(counts)
