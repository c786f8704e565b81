"""Which kind of method suits which kind of data: properties of the tasks beside what each family gains over `local`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from ..benchmark.suites.tasktable import TASK, Task, read_properties
from .board import LOCAL, Board
from .groups import family, kind_of_data
from .statistics import ALPHA, MIN_SEEDS, Difference, adjusted, stratified_difference
from .table import Cell, Column, Line, Table
from .text import finite, number, plain, points, slug

SPLIT = "label skew"  # what makes two characteristics of a board
MIN_DATASETS = 3  # datasets of a regime
GRAPH = {"homophily": "edge homophily", "lost_edges": "lost edges"}  # column of the table of tasks -> its name here
NAMES = {2: ["more alike", "less alike"], 3: ["most alike", "in between", "least alike"]}


def label_properties(counts: np.ndarray) -> dict[str, float]:
    """Of label counts, clients x classes: mean over clients of the share of the largest class, and of the total
    variation distance between a client's labels and all clients' (0: alike, 1: nothing in common)."""
    held = counts[counts.sum(axis=1) > 0].astype(float)
    shares = held / held.sum(axis=1, keepdims=True)
    distance = np.abs(shares - held.sum(axis=0) / held.sum()).sum(axis=1) / 2
    return {"label skew": float(distance.mean()), "majority share": float(shares.max(axis=1).mean())}


@dataclass(frozen=True, eq=False)
class Characteristics:
    """The families of a board's ranked methods on its tasks."""

    board: Board

    @cached_property
    def properties(self) -> pd.DataFrame:
        """Datasets x properties, means over the tasks of a dataset and the seeds that have stored them."""
        known = read_properties()
        found = {task: self._measured(task, known) for task in self.board.tasks}
        table = pd.DataFrame.from_dict(found, orient="index").dropna(how="all")
        return self.board.averaged(table) if len(table) else table

    @cached_property
    def gains(self) -> pd.DataFrame:
        """Datasets x families: the score of the family's median method less that of `local`; empty without it."""
        return self._families(self.board.by_dataset)

    def _families(self, scores: pd.DataFrame) -> pd.DataFrame:
        if LOCAL not in scores:
            return pd.DataFrame(index=scores.index)
        kinds = [family(self.board.method_of[name]) for name in scores.columns]
        gains = scores.T.groupby(kinds).median().T.sub(scores[LOCAL], axis=0)
        return gains.drop(columns=family(LOCAL))

    @cached_property
    def skew_groups(self) -> dict[str, list[str]]:
        """Datasets by label skew in three parts, or two where there are few; none below six."""
        if SPLIT not in self.properties or self.gains.empty:
            return {}
        skew = self.properties[SPLIT].reindex(self.gains.index).dropna().sort_values(kind="stable")
        names = NAMES.get(min(len(skew) // MIN_DATASETS, 3), [])
        return dict(zip(names, map(list, np.array_split(skew.index, len(names))), strict=True)) if names else {}

    def gain(self, datasets: Sequence[str]) -> dict[str, Difference]:
        """What each family gains over `local` on these datasets, the most first: over the seeds of their tasks, with
        Holm's p over the families. Empty where a task has too few seeds."""
        scores = self.board.scored[self.board.scored["dataset"].isin(datasets)]
        cube = scores.pivot(index=["dataset", "task_label", "seed"], columns="entrant", values="score")
        gains = self._families(cube[self.board.ranked])
        strata = [own for _, own in gains.groupby(level="task_label", sort=True)]
        if min(map(len, strata)) < MIN_SEEDS:
            return {}
        names = [own.index[0][0] for own in strata]
        weights = [1 / (names.count(name) * len(set(names))) for name in names]
        found = {str(kind): stratified_difference([own[kind] for own in strata], weights) for kind in gains}
        return adjusted(dict(sorted(found.items(), key=lambda each: -each[1].mean)))

    @cached_property
    def sentences(self) -> list[str]:
        """One a regime: which families are told above training alone there, which below, and which neither."""
        found = {name: self.gain(datasets) for name, datasets in self.skew_groups.items()}
        return [self._sentence(name, gains) for name, gains in found.items() if gains]

    def _sentence(self, name: str, gains: dict[str, Difference]) -> str:
        skew = self.properties.loc[self.skew_groups[name], SPLIT]
        told = {kind: np.sign(own.mean) if own.p <= ALPHA else 0 for kind, own in gains.items()}
        shown = {kind: _gained(kind, own) for kind, own in gains.items()}
        sides = {"above": 1, "below": -1, "neither above nor below": 0}
        parts = [f"{side} training alone: {', '.join(own)}" for side, sign in sides.items()
                 if (own := [shown[kind] for kind in gains if told[kind] == sign])]  # fmt: skip
        datasets = ", ".join(map(plain, sorted(self.skew_groups[name])))
        return (
            f"Where the labels of clients are {name} (skew {number(skew.min())} to {number(skew.max())}: "
            f"{datasets}), in points over the seeds of these tasks, the "
            f"median method of a family is {'; '.join(parts)}."
        )

    def _measured(self, task: str, table: Mapping[Task, Mapping[str, float]]) -> dict[str, float]:
        """Means over the seeds whose label counts some run has stored, and what is known of the graph and its cut."""
        found: dict[int, dict[str, float]] = {}
        for row in self.board.rows_of(task)[["seed", "key"]].itertuples(index=False):
            if row.seed not in found:
                counts = self.board.label_counts(row.key)
                if counts is not None:
                    found[row.seed] = label_properties(counts)
        row = self.board.rows_of(task).iloc[0]
        known = table.get(tuple(str(row[name]) for name in TASK), {})
        graph = {told: known[name] for name, told in GRAPH.items() if name in known}
        return {**_means(found.values()), **graph}


def groups_of(characteristics: Characteristics, task: str) -> tuple[str, ...]:
    """Groups of a task that a reader can choose: its kind of data and its level of label skew."""
    dataset = str(characteristics.board.task_row(task)["dataset"])
    alike = [name for name, datasets in characteristics.skew_groups.items() if dataset in datasets]
    return (kind_of_data(dataset), *(f"labels {name}" for name in alike))


def _gained(kind: str, gain: Difference) -> str:
    return f"{kind} {points(gain.mean)} ({points(gain.low)} to {points(gain.high)})"


def _means(found: Iterable[dict[str, float]]) -> dict[str, float]:
    return {str(name): float(value) for name, value in pd.DataFrame(found).mean().items()}


def characteristics_table(characteristics: Characteristics) -> Table:
    """Datasets by label skew: their properties, and what each family gains."""
    properties, gains = characteristics.properties, characteristics.gains
    columns = [Column("Dataset", lambda name: Cell(plain(name), name), "text")]
    columns += [Column(str(name).capitalize(), _column(properties[name], number)) for name in properties]
    columns += [
        Column(f"{kind.capitalize()} (n={_members(characteristics, kind)})", _column(gains[kind], points), falling=True)
        for kind in map(str, gains)
    ]
    order = properties[SPLIT].reindex(gains.index).sort_values(kind="stable").index
    lines = [Line([column.cell(name) for column in columns]) for name in order]
    suite = characteristics.board.suite
    return Table(f"regimes:{slug(suite)}", f"Data and families on board {suite}", columns, lines)


def _members(characteristics: Characteristics, kind: str) -> int:
    return sum(family(characteristics.board.method_of[name]) == kind for name in characteristics.board.ranked)


def _column(values: pd.Series, show: Callable[[float], str]) -> Callable[[str], Cell]:
    def cell(name: str) -> Cell:
        value = float(values.get(name, np.nan))
        return Cell(show(value), value if finite(value) else None)

    return cell
