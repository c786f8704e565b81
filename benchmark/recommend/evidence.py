"""Results of the leaderboard on tasks like the user's data, and the properties by which tasks are compared."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...datasets import DATASETS
from ...datasets.describe import label_counts, parts_of, properties
from ...datasets.federation import Federation, NodeClient, NodeData
from ...datasets.own_data import words_of
from ...registry import UserError
from ...report.statistics import Difference, paired_difference
from ...report.text import points
from ..runner.execute import FederationCache
from ..suites.catalogue import PublishedTask, entry, published_tasks
from ..suites.cell import Cell

NEAREST = 5  # datasets
BASELINE, ALONE = "fedavg", "local"
# Property -> the difference that counts as one unit of distance: about a standard deviation over the leaderboard.
SCALES = {"adjusted_homophily": 0.35, "label_skew": 0.2, "majority": 0.2}
LABELS = math.log(4)  # a factor of 4 in training nodes per class and client is one unit


@dataclass(frozen=True)
class Evidence:
    """tasks: the nearest tasks, one per dataset, the nearest first. gains: method -> difference from `local` over these
    datasets, as fractions, the largest first. measure: the measure of these differences."""

    tasks: Sequence[PublishedTask]
    gains: Mapping[str, Difference]
    measure: str

    def lines(self) -> list[str]:
        """The evidence in words."""
        where = ", ".join(map(str, self.tasks))
        best = [(name, gain) for name, gain in self.gains.items() if name != ALONE]
        lines = [f"Leaderboard tasks most like yours: {where}"]
        lines += [
            f"  {name}: {points(gain.mean)} points of {self.measure} over local training "
            f"(95% interval {points(gain.low)} to {points(gain.high)}, over {len(self.tasks)} datasets)"
            for name, gain in best[:4]
        ]
        if not any(gain.low > 0 for _, gain in best):
            lines.append("  No method is significantly better than local training on these tasks.")
        return lines

    def as_data(self) -> dict[str, Any]:
        """The evidence as JSON values. gains: fractions, as in `gains`."""
        tasks = [{"dataset": each.dataset, "partition": each.partition, "clients": each.clients} for each in self.tasks]
        gains = {name: gain._asdict() for name, gain in self.gains.items() if name != ALONE}
        return {"tasks": tasks, "measure": self.measure, "gains": gains}

    def candidates(self) -> list[str]:
        """Methods in the order of their gains, but the best of each family before all others.

        Methods of one family have nearly the same scores, so one of each family is more informative.
        """
        families = {name: entry("method", name).get("family", name) for name in self.gains}
        first = {family: name for name, family in reversed(families.items())}
        return sorted(self.gains, key=lambda name: first[families[name]] != name)


def distance(one: Mapping[str, float], other: Mapping[str, float]) -> float:
    """The distance of two tasks by labels per class and client, adjusted homophily, label skew and largest class."""
    terms = [(one[name] - other[name]) / scale for name, scale in SCALES.items()]
    terms.append(math.log(max(one["labels"], 0.5) / max(other["labels"], 0.5)) / LABELS)
    return math.sqrt(sum(term**2 for term in terms))


def evidence_for(properties: Mapping[str, float], metric: str, without: Collection[str] = ()) -> Evidence:
    """The evidence of the tasks nearest to these properties, one per dataset. without: datasets to leave out.

    Methods are compared by macro-F1 if this is the user's metric, else by the leaderboard's measure (accuracy; ROC AUC
    for two datasets).
    """
    ordered = sorted(published_tasks(), key=lambda task: distance(properties, task.properties))
    nearest = {task.dataset: task for task in reversed(ordered) if task.dataset not in without}
    tasks = sorted(nearest.values(), key=lambda task: distance(properties, task.properties))[:NEAREST]
    column = "macro_f1" if metric == "macro-f1" else "score"
    names = set.intersection(*(set(task.methods) for task in tasks))
    alone = [task.methods[ALONE][column] for task in tasks]
    gains = {name: paired_difference([task.methods[name][column] for task in tasks], alone) for name in names - {ALONE}}
    ranked = dict(sorted(gains.items(), key=lambda each: (-each[1].mean, each[0])))
    return Evidence(tasks, ranked, "macro-F1" if column == "macro_f1" else "the leaderboard's score")


FEW = 20  # training nodes per class and client, below which the leaderboard's methods gain over local training


@dataclass(frozen=True)
class Facts:
    """properties: those of `datasets.describe`, and `labels` (mean training nodes per class and client). classes,
    sites: names. shares: of each class among the labelled nodes. sizes: nodes per site. training: (sites, classes)
    training nodes."""

    dataset: str
    properties: dict[str, float]
    classes: list[str]
    sites: list[str]
    shares: list[float]
    sizes: list[int]
    training: np.ndarray
    partition: str
    split: str

    def lines(self) -> list[str]:
        """The facts in words."""
        facts, rare = self.properties, int(np.argmin(self.shares))
        counts = ", ".join(f"{name} {size:,}" for name, size in zip(self.sites, self.sizes, strict=True))
        least = int(self.training.min(axis=0)[rare])
        return [
            f"Your data: {facts['nodes']:,.0f} nodes, {facts['edges']:,.0f} edges, {facts['features']:.0f} features, "
            f"{len(self.sites)} clients ({self.partition}), split: {self.split}",
            f"Nodes per client: {counts}",
            "Classes: " + ", ".join(f"{name} {100 * share:.0f}%" for name, share in zip(
                self.classes, self.shares, strict=True)) + f" ({_balance(self.shares)})",
            f"Labelled training nodes per class and client: {facts['labels']:.0f} on average; of {self.classes[rare]}, "
            f"the smallest class, {self.training[:, rare].mean():.0f} on average and {least} at one client",
            f"Edge homophily {facts['homophily']:.2f} (adjusted {facts['adjusted_homophily']:.2f}): "
            f"{_mixing(facts['adjusted_homophily'])}",
            f"Label skew between clients {facts['label_skew']:.2f} (0: same labels everywhere, 1: nothing in common); "
            f"edges between clients, which no client has: {100 * facts['lost_edges']:.0f}%",
        ]  # fmt: skip


def _balance(shares: list[float]) -> str:
    ratio = max(shares) / max(min(shares), 1e-9)
    return "balanced" if ratio < 2 else f"imbalanced: the largest has {ratio:.0f} times the smallest"


def _mixing(adjusted: float) -> str:
    if adjusted >= 0.4:
        return "neighbours mostly share their class"
    return "neighbours share their class little more than at random" if adjusted < 0.1 else "between the two"


def facts_of(cell: Cell) -> Facts:
    """The facts of a federation. UserError if data are unavailable, or no node is for training or validation."""
    name = cell.dataset.name
    if cell.task != "node":
        raise UserError(f"`recommend` is for node classification; split {cell.split.name} is for {cell.task}")
    data = cell.dataset.build(DATASETS).load()
    federation = FederationCache().get(cell)
    assert isinstance(data, NodeData)  # by its task
    training = training_counts(federation, data.num_classes)
    if not training.sum():
        raise UserError(f"{name}: no client has a training node; give a column split, or --split")
    if not federation.masks["val"].any():
        fix = "write val in column split for some, or give --split ratio"
        raise UserError(f"{name}: no node is for validation, which selects the method; {fix}")
    parts = parts_of(federation)
    values = properties(data, parts) | {"labels": float(training.sum() / training.size)}
    every = label_counts(data, [np.arange(len(data.label))])[0]
    classes, sites = words_of(name)
    none = "" if sites else ": your data name none"
    if cell.partition.name != "own" or len(sites) != len(parts):
        sites = [f"client {k}" for k in range(len(parts))]
    if len(classes) != data.num_classes:
        classes = [f"class {c}" for c in range(data.num_classes)]
    sizes = [len(ids) for ids in parts]
    if len(sizes) == 1:
        raise UserError(
            f"{name} has one client, and federated learning needs several; name the site of each node in a column "
            "client, or make a partition: -p louvain -k 5"
        )
    partition = "your own" if cell.partition.name == "own" else f"made by {cell.partition.name}{none}"
    params = ", ".join(f"{name}={value}" for name, value in cell.split.params.items())
    split = "your own" if cell.split.name == "fixed" else f"{cell.split.name} ({params})"
    return Facts(name, values, classes, sites, (every / every.sum()).tolist(), sizes, training, partition, split)


def training_counts(federation: Federation, classes: int) -> np.ndarray:
    """(clients, classes) the number of training nodes."""
    counts = []
    for client in federation.clients:
        assert isinstance(client, NodeClient)
        label = client.graph.ndata["label"][client.graph.ndata["train_mask"].bool()].numpy()
        counts.append(np.bincount(label[label >= 0], minlength=classes))
    return np.stack(counts)
