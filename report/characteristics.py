"""Which kind of method suits which kind of data: properties of datasets, and the gain of each family over `local`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
from scipy import stats

from ..benchmark.store.schema import mapping
from ..benchmark.suites.catalogue import TASK, TRAINED, Task, read_properties
from .board import FEDAVG, LOCAL, Board
from .cells import Cell, Column, Table, numbers_by_name
from .groups import family, kind_of_data
from .text import count, p_value, plain, points, slug

SPLIT = "label skew"  # the property that divides datasets into groups
LABELS = "labels per class"  # nodes of a client times the training share, per class
MIN_CORRELATED = 6  # datasets
MIN_DATASETS = 3  # datasets of a group
GRAPH = {"homophily": "edge homophily", "lost_edges": "lost edges"}  # column of properties.csv -> property
LEGEND = (
    "Gain of the median method of each family (n methods) over `local`, in points. Labels per class: nodes per client "
    "and class times the training share. Label skew: mean total variation distance between the labels of a client and "
    "of all clients (0 to 1). Majority share: share of the largest class of a client. Edge homophily: share of edges "
    "within a class. Lost edges: share of edges that no client has."
)
NAMES = {2: ["more alike", "less alike"], 3: ["most alike", "in between", "least alike"]}


def label_properties(counts: np.ndarray) -> dict[str, float]:
    """Properties of label counts (clients, classes), means over clients with labels.

    "label skew": total variation distance between the labels of the client and of all clients (0: equal shares, 1: no
    class in common). "majority share": share of the client's largest class.
    """
    known = counts[counts.sum(axis=1) > 0].astype(float)
    shares = known / known.sum(axis=1, keepdims=True)
    distance = np.abs(shares - known.sum(axis=0) / known.sum()).sum(axis=1) / 2
    return {"label skew": float(distance.mean()), "majority share": float(shares.max(axis=1).mean())}


@dataclass(frozen=True, eq=False)
class Characteristics:
    """Properties of the datasets of a board, and the gains of the families of its ranked methods."""

    board: Board

    @cached_property
    def properties(self) -> pd.DataFrame:
        """Datasets x properties, means over tasks and over seeds with label counts."""
        known = read_properties()
        measured = {task: self._measured(task, known) for task in self.board.tasks}
        table = pd.DataFrame.from_dict(measured, orient="index").dropna(how="all")
        return self.board.averaged(table) if len(table) else table

    @cached_property
    def gains(self) -> pd.DataFrame:
        """Datasets x families: the median score of the family minus the score of `local`; empty without `local`."""
        scores = self.board.by_dataset
        if LOCAL not in scores:
            return pd.DataFrame(index=scores.index)
        kinds = [family(self.board.method_of[name]) for name in scores.columns]
        gains = scores.T.groupby(kinds).median().T.sub(scores[LOCAL], axis=0)
        return gains.drop(columns=family(LOCAL))

    @cached_property
    def skew_groups(self) -> dict[str, list[str]]:
        """Group name -> datasets, by label skew: three groups, two for fewer than nine datasets, none below six."""
        if SPLIT not in self.properties or self.gains.empty:
            return {}
        skew = self.properties[SPLIT].reindex(self.gains.index).dropna().sort_values(kind="stable")
        names = NAMES.get(min(len(skew) // MIN_DATASETS, 3), [])
        return dict(zip(names, map(list, np.array_split(skew.index, len(names))), strict=True)) if names else {}

    @cached_property
    def correlations(self) -> dict[str, tuple[float, float]]:
        """Property -> Spearman's rank correlation with the gain of FedAvg over `local`, over the datasets of the main
        metric, and its p. Empty without these methods, or with fewer than MIN_CORRELATED datasets."""
        scores = self.board.by_dataset
        if not {FEDAVG, LOCAL} <= set(scores):
            return {}
        gain = (scores[FEDAVG] - scores[LOCAL]).loc[self.board.datasets_of(self.board.metric)]
        known = self.properties.reindex(gain.index).dropna(axis=1)
        if len(gain) < MIN_CORRELATED:
            return {}
        varied = [str(name) for name in known if known[name].nunique() > 1]
        tests = {name: stats.spearmanr(known[name], gain) for name in varied}
        return {name: (float(test.statistic), float(test.pvalue)) for name, test in tests.items()}

    @cached_property
    def sentences(self) -> list[str]:
        """The correlations in words; empty if none is known."""
        if not self.correlations:
            return []
        parts = [f"{name} {rho:+.2f} ({p_value(p)})" for name, (rho, p) in self.correlations.items()]
        size = len(self.board.datasets_of(self.board.metric))
        return [
            "Spearman's rank correlation between the gain of FedAvg over local training and properties of the dataset, "
            f"over {count(size, 'dataset')}: {', '.join(parts)}. The properties were chosen after the scores were "
            "known, and p is not corrected for several properties: this is an indication, not a test."
        ]

    def _measured(self, task: str, table: Mapping[Task, Mapping[str, float]]) -> dict[str, float]:
        rows, by_seed = self.board.rows_of(task), dict[int, dict[str, float]]()
        row = rows.iloc[0]
        for seed, key in zip(rows["seed"], rows["key"], strict=True):
            if seed not in by_seed and (counts := self.board.label_counts(key)) is not None:
                labels = float(counts.sum() / counts.size) * training_share(row)
                by_seed[seed] = {**label_properties(counts), LABELS: labels}
        known = table.get(tuple(str(row[name]) for name in TASK), {})
        graph = {shown: known[name] for name, shown in GRAPH.items() if name in known}
        return {**pd.DataFrame(by_seed.values()).mean().to_dict(), **graph}


def groups_of(characteristics: Characteristics, task: str) -> tuple[str, ...]:
    """The groups by which a reader can choose a task: its kind of data and its level of label skew."""
    board = characteristics.board
    skew = [name for name, datasets in characteristics.skew_groups.items() if board.dataset_of[task] in datasets]
    return (kind_of_data(str(board.task_row(task)["dataset"])), *(f"labels {name}" for name in skew))


def training_share(row: pd.Series) -> float:
    """The training share of a task's split; NaN if unknown."""
    if row["split"] == "fixed":
        return TRAINED.get(str(row["dataset"]), np.nan)
    return float(mapping(row["split_params"]).get("train", np.nan)) if row["split"] == "ratio" else np.nan


def characteristics_table(characteristics: Characteristics) -> Table:
    """Datasets by labels per class (by label skew if these are unknown): properties, and gains of families."""
    board, properties, gains = characteristics.board, characteristics.properties, characteristics.gains
    members = Counter(family(board.method_of[name]) for name in board.ranked)
    columns = [Column("Dataset", lambda name: Cell(plain(name), name), "text")]
    columns += [Column(str(name).capitalize(), numbers_by_name(properties[name])) for name in properties]
    columns += [
        Column(f"{kind.capitalize()} (n={members[kind]})", numbers_by_name(gains[kind], points), falling=True)
        for kind in map(str, gains)
    ]
    known = [name for name in (LABELS, SPLIT) if name in properties and properties[name].notna().any()]
    order = properties[known[0]].reindex(gains.index).sort_values(kind="stable").index if known else gains.index
    return Table.of(f"regimes:{slug(board.suite)}", f"Data and families on board {board.suite}", columns, order)
