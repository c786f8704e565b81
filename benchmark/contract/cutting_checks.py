"""What every partition and every split must hold to, as checks that anyone can run on one of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, TypeVar

import numpy as np
import torch

from ...datasets import PartitionSpec, SplitSpec
from ...datasets.federation import PARTS, Data, NodeData
from ...datasets.partitioning import CuttingSpec
from ...datasets.splits import SplitResult
from ...registry import UserError
from .trial import graph_federation, node_federation
from .verdicts import Inapplicable, Judgement, demand, judged, named, says_what_it_is

COUNTS = (3, 6)  # of clients; the first that a partition takes
T = TypeVar("T")


@cache
def samples() -> tuple[Data, ...]:
    """Data of either kind: a graph with clients, a split and nodes without a label; a set of graphs."""
    data = node_federation().whole
    assert isinstance(data, NodeData)
    label = torch.where(torch.arange(len(data.label)) % 9 == 0, -1, data.label)
    labelled = (label >= 0).nonzero().flatten()
    split = dict(zip(PARTS, (labelled[::3], labelled[1::3], labelled[2::3]), strict=True))
    whole = replace(data, label=label, fixed_split=split, owner=torch.arange(len(label)) % COUNTS[0])
    return whole, graph_federation().whole


def _fitting(spec: CuttingSpec) -> list[Data]:
    return [data for data in samples() if data.task in spec.tasks]


def _disturbed(seed: int) -> None:
    """Other states of the random numbers that belong to nobody."""
    np.random.seed(seed)
    torch.manual_seed(seed)


# -- partitions ------------------------------------------------------------------------------------------------------


class _Asked:
    """A partition or split asked for one sample after the other; what it refuses is remembered."""

    def __init__(self, spec: PartitionSpec | SplitSpec) -> None:
        self.spec, self.taken = spec, False
        self.reasons: list[str] = []

    def __call__(self, *sample: Any) -> Any:
        """What it makes of a sample; None where it refuses."""
        try:
            made = self.spec(*sample)
        except UserError as refused:
            self.reasons.append(str(refused))
            return None
        self.taken = True
        return made

    def demand_one(self) -> None:
        """Inapplicable when it took none of the samples."""
        if not self.taken:
            reason = self.reasons[0] if self.reasons else "it names no task"
            raise Inapplicable(f"it refuses every sample: {reason}")


def _cuts(spec: PartitionSpec, seed: int = 0) -> Iterator[tuple[Data, int, list[np.ndarray]]]:
    """(data, clients, parts) of each kind of data that it cuts. Inapplicable when it takes none of the samples."""
    asked = _Asked(spec)
    for data in _fitting(spec):
        for clients in COUNTS:
            if (parts := asked(data, clients, seed)) is not None:
                yield data, clients, parts
                break
    asked.demand_one()


def documented(spec: CuttingSpec) -> None:
    """The class has a docstring, a task, and every parameter a description."""
    says_what_it_is(type(spec), "the rule, and where it is from")
    tasks = getattr(spec, "tasks", ())
    demand(tasks and set(tasks) <= {"node", "graph"}, f"its tasks are {tasks!r}: name 'node', 'graph' or both")


def deals_real_nodes(spec: PartitionSpec) -> None:
    """As many parts as clients: sorted int64 ids of nodes that exist, none twice in a part, no part empty."""
    for data, clients, parts in _cuts(spec):
        demand(len(parts) == clients, f"makes {len(parts)} parts for {clients} clients of {data.name}")
        for client, ids in enumerate(parts):
            sound = isinstance(ids, np.ndarray) and ids.dtype == np.int64 and ids.ndim == 1 and len(ids)
            demand(sound, f"part {client} of {data.name} is no array of int64 ids with at least one of them")
            demand((np.diff(ids) > 0).all(), f"part {client} of {data.name} is not sorted, or has an id twice")
            inside = ids[0] >= 0 and ids[-1] < len(data.label)
            demand(inside, f"part {client} of {data.name} names {ids[-1]} of {len(data.label)}")


def deals_every_node_once(spec: PartitionSpec) -> None:
    """Every node is in one part, or the class says `overlapping = True` and some node is in several."""
    for data, _, parts in _cuts(spec):
        times = np.bincount(np.concatenate(parts), minlength=len(data.label))
        if spec.overlapping:
            demand((times > 1).any(), f"says overlapping, and on {data.name} no two parts share a node")
            continue
        lost, shared = np.flatnonzero(times == 0), np.flatnonzero(times > 1)
        demand(not len(lost), f"{len(lost)} of {data.name} are in no part, {lost[:1]} the first")
        demand(not len(shared), f"{len(shared)} of {data.name} are in several parts: say overlapping = True")


def repeats_itself(spec: PartitionSpec) -> None:
    """The seed decides every part: the same one gives the same, whatever the global random state is."""
    for seed in (0, 1):
        _disturbed(1)
        before = list(_cuts(spec, seed))
        _disturbed(2)
        for (data, _, left), (_, _, right) in zip(before, _cuts(spec, seed), strict=True):
            same = all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))
            demand(same, f"cuts {data.name} in two ways with seed {seed}: draw from the `rng` that it is given")


def refuses_in_one_line(spec: PartitionSpec) -> None:
    """Fewer clients than one, more than nodes, and data of another task are refused in one line."""
    cases = [(data, clients) for data in _fitting(spec) for clients in (0, len(data.label) + 1)]
    cases += [(data, COUNTS[0]) for data in samples() if data.task not in spec.tasks]
    for data, clients in cases:
        try:
            spec(data, clients, 0)
        except UserError as refused:
            demand("\n" not in str(refused), f"refuses in several lines: {refused}")
            continue
        demand(False, f"cuts {data.name} ({data.task}) into {clients} clients, which is to be refused")


def leaves_data_alone(spec: PartitionSpec) -> None:
    """Nothing is written into the data."""
    _unchanged(lambda: list(_cuts(spec)))


def _unchanged(act: object) -> None:
    before = [data.label.clone() for data in samples()]
    whole = samples()[0]
    assert isinstance(whole, NodeData)
    feat, edges = whole.feat.clone(), whole.graph.num_edges()
    act()  # type: ignore[operator]
    same = all(torch.equal(label, data.label) for label, data in zip(before, samples(), strict=True))
    demand(same, "writes into the labels")
    demand(torch.equal(feat, whole.feat) and edges == whole.graph.num_edges(), "changes features or edges")


# -- splits ----------------------------------------------------------------------------------------------------------


def _splits(spec: SplitSpec, seed: int = 0) -> Iterator[tuple[Data, Sequence[np.ndarray], SplitResult]]:
    """(data, parts, what it makes of them), with disjoint and with overlapping parts."""
    asked = _Asked(spec)
    for data in _fitting(spec):
        ids = np.arange(len(data.label))
        for parts in (np.array_split(ids, COUNTS[0]), [ids[: len(ids) // 2], ids[len(ids) // 3 :]]):
            if (found := asked(data, parts, seed)) is not None:
                yield data, parts, found
    asked.demand_one()


def gives_each_node_one_role(spec: SplitSpec) -> None:
    """One role a node (int8 (N,), -1 to 2), of labelled nodes only; at least one trains. Masks are disjoint."""
    for data, _, found in _splits(spec):
        total, role = len(data.label), found.role
        shaped = role.shape == (total,) and role.dtype == np.int8 and set(np.unique(role)) <= {-1, 0, 1, 2}
        demand(shaped, f"its roles of {data.name} are {role.dtype} {role.shape}, not -1 to 2 in int8 ({total},)")
        if not spec.labelled:
            demand((role == -1).all() and not found.whole, f"gives roles to the graphs of {data.name}")
            continue
        bare = (role >= 0) & (data.label.numpy() < 0)
        demand(not bare.any(), f"gives {int(bare.sum())} nodes of {data.name} a role that have no label")
        demand((role == 0).any(), f"leaves {data.name} no training node")
        masks = torch.stack([found.whole[part] for part in PARTS])
        demand(masks.shape == (3, total) and masks.dtype == torch.bool, "its masks are not bool (N,)")
        demand(int(masks.sum(0).max()) <= 1, f"puts a node of {data.name} into two parts")


def tells_clients_the_same(spec: SplitSpec) -> None:
    """A client's masks are the roles of the nodes that it holds: no node trains one client and tests another."""
    for data, parts, found in _splits(spec):
        demand(len(found.clients) == len(parts), f"has masks of {len(found.clients)} clients for {len(parts)}")
        for client, (ids, masks) in enumerate(zip(parts, found.clients, strict=True)):
            agree = all(torch.equal(masks[part], found.whole[part][ids]) for part in found.whole)
            demand(agree, f"client {client} of {data.name} is told other roles than the whole graph")


def splits_the_same_again(spec: SplitSpec) -> None:
    """The seed decides every role: the same one gives the same, whatever the global random state is."""
    for seed in (0, 1):
        _disturbed(1)
        before = list(_splits(spec, seed))
        _disturbed(2)
        for (data, _, left), (_, _, right) in zip(before, _splits(spec, seed), strict=True):
            same = np.array_equal(left.role, right.role)
            demand(same, f"splits {data.name} in two ways with seed {seed}: draw from the `rng` that it is given")


def leaves_its_data_alone(spec: SplitSpec) -> None:
    """Nothing is written into the data."""
    _unchanged(lambda: list(_splits(spec)))


PARTITION_CHECKS = named(
    documented, deals_real_nodes, deals_every_node_once, repeats_itself, refuses_in_one_line, leaves_data_alone,
)  # fmt: skip
SPLIT_CHECKS = named(
    documented, gives_each_node_one_role, tells_clients_the_same, splits_the_same_again, leaves_its_data_alone
)


def partition_results(spec: PartitionSpec) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) one by one."""
    return judged(PARTITION_CHECKS, spec)


def split_results(spec: SplitSpec) -> Iterator[tuple[str, Judgement, str]]:
    """(check, verdict, reason) one by one."""
    return judged(SPLIT_CHECKS, spec)
