"""Which of our rows stand for which printed figure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from ..labels import JSON_COLUMNS, parse
from ..papers import Filter, Paper, Printed, Reading, Table


@dataclass(frozen=True, eq=False)
class Ours:
    """What we have for one figure. seeds: score in [0, 1] by seed. rows: what it was taken from, failures included.

    settings: how many different cells a seed was found in; more than one when a suite has changed since.
    """

    seeds: dict[int, float] = field(default_factory=dict)
    rows: pd.DataFrame = field(default_factory=pd.DataFrame, repr=False)
    settings: int = 1

    @property
    def n(self) -> int:
        return len(self.seeds)

    @property
    def mean(self) -> float:
        return float(np.mean(list(self.seeds.values()))) if self.seeds else np.nan

    @property
    def std(self) -> float:
        """Sample standard deviation over seeds, NaN for fewer than two."""
        return float(np.std(list(self.seeds.values()), ddof=1)) if self.n > 1 else np.nan


class SuiteRows:
    """The rows of a suite, their JSON columns parsed once."""

    def __init__(self, rows: pd.DataFrame) -> None:
        self.rows = rows.reset_index(drop=True)
        self.parsed = {column: [parse(value) or {} for value in self.rows[column]] for column in sorted(JSON_COLUMNS)}

    def select(self, where: Filter) -> pd.DataFrame:
        """The rows that a filter admits."""
        keep = np.ones(len(self.rows), dtype=bool)
        for column, wanted in where.items():
            if isinstance(wanted, dict):
                keep &= [all(found.get(k) == v for k, v in wanted.items()) for found in self.parsed[column]]
            else:
                keep &= (self.rows[column] == wanted).to_numpy(dtype=bool)
        return self.rows[keep]

    def ours(self, where: Filter, column: str) -> Ours:
        """The scores of the rows that a filter admits; of several rows of one seed the one started last counts."""
        found = self.select(where)
        found = found.sort_values(["seed", "started", "key"], kind="stable")
        settings = int(found.groupby("seed")["key"].nunique().max()) if len(found) else 1
        found = found.drop_duplicates("seed", keep="last")
        scored = found[(found["status"] == "ok") & found[column].notna()]
        return Ours(dict(zip(map(int, scored["seed"]), map(float, scored[column]), strict=True)), found, settings)


def compare(paper: Paper, table: Table, reading: Reading, figure: Printed, rows: SuiteRows) -> Ours:
    """What we have for a printed figure under one reading of the protocol."""
    parts = [
        rows.ours(paper.where(table, part) | reading.where, figure.column) for part in paper.components(table, figure)
    ]
    if len(parts) == 1:
        return parts[0]
    common = set.intersection(*(set(part.seeds) for part in parts))  # a mean over cells, seed by seed
    means = {seed: float(np.mean([part.seeds[seed] for part in parts])) for seed in sorted(common)}
    return Ours(means, pd.concat([part.rows for part in parts]), max(part.settings for part in parts))


def difference(figure: Printed, ours: Ours) -> float:
    """Ours - printed, in the unit of the table; NaN where either is missing."""
    return figure.scale * ours.mean - figure.mean if figure.mean is not None else np.nan


def unit_values(figure: Printed, ours: Ours) -> tuple[Any, Any]:
    """(mean, std) of ours in the unit of the table."""
    return figure.scale * ours.mean, figure.scale * ours.std
