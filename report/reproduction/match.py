"""Which of our rows stand for which printed figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...benchmark.store.schema import Row, parameters
from ...registry import did_you_mean
from ..display_names import JSON_COLUMNS
from ..papers import Filter, Paper, Printed, Reading, Table, printed, tables


class RowInfo(NamedTuple):
    """What `Ours` has of a row. val: NaN where there is none."""

    seed: int
    status: str
    error: str
    val: float


@dataclass(frozen=True, eq=False)
class Ours:
    """What we have for one figure. seeds: score in [0, 1] by seed. rows: what it was taken from, failures included.

    settings: how many different cells a seed was found in; more than one when a suite has changed since.
    chosen: the setting that was taken, where a reading chooses one on validation.
    """

    seeds: dict[int, float] = field(default_factory=dict)
    rows: list[RowInfo] = field(default_factory=list, repr=False)
    settings: int = 1
    chosen: str = ""

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

    @property
    def val(self) -> float:
        """The mean of what validation says of the rows that have a score; least where there is none."""
        told = [row.val for row in self.rows if row.seed in self.seeds and np.isfinite(row.val)]
        return float(np.mean(told)) if told else -np.inf

    def only(self, seeds: Container[int]) -> Ours:
        """Without the scores of other seeds."""
        return replace(self, seeds={seed: score for seed, score in self.seeds.items() if seed in seeds})


class SuiteRows:
    """The rows of a suite, their JSON columns parsed once. history: that of a key's side file, unchecked."""

    def __init__(self, rows: pd.DataFrame, history: Callable[[str], dict[str, Any]] = lambda key: {}) -> None:
        self.rows = rows.sort_values(["seed", "started", "key"], kind="stable").reset_index(drop=True)
        told = (pd.to_numeric(self.rows[name]) if name == "val" else self.rows[name] for name in RowInfo._fields)
        self._told = list(map(RowInfo, *told))
        self._seeds, self._keys = ([*self.rows[column]] for column in ("seed", "key"))
        self._ok = (self.rows["status"] == "ok").to_numpy(dtype=bool)
        self.history = history
        self.parsed = {column: [parameters(value) for value in self.rows[column]] for column in sorted(JSON_COLUMNS)}
        self._numbers: dict[str, np.ndarray] = {}
        self._having: dict[str, np.ndarray] = {}  # many filters ask the same of a column

    def select(self, where: Filter, columns: list[str]) -> pd.DataFrame:
        """Columns of the rows that a filter admits, by seed and start."""
        return self.rows[columns][self._admitted(where)]

    def _admitted(self, where: Filter) -> np.ndarray:
        keep = np.ones(len(self.rows), dtype=bool)
        for column, wanted in where.items():
            for part in [{key: value} for key, value in wanted.items()] if isinstance(wanted, dict) else [wanted]:
                keep &= self._have(column, part)
        return keep

    def _have(self, column: str, wanted: str | int | dict[str, Any]) -> np.ndarray:
        """Which rows have a value, or one parameter of a column of JSON, of any of its models (null: which lack it)."""
        asked = repr((column, wanted))
        if asked not in self._having:
            if isinstance(wanted, dict):
                ((key, value),) = wanted.items()
                self._having[asked] = np.array([params.get(key) == value for params in self.parsed[column]], dtype=bool)
            else:
                self._having[asked] = (self.rows[column] == wanted).to_numpy(dtype=bool)
        return self._having[asked]

    def ours(self, where: Filter, column: str, round: str | int = "best") -> Ours:
        """The scores of the rows that a filter admits; of several rows of one seed the one started last counts.

        round: "best", the row's own score; "last" or a number, that of its history (which has the column `score`).
        """
        places = np.flatnonzero(self._admitted(where))
        cells = {(self._seeds[place], self._keys[place]) for place in places}
        settings = max(Counter(seed for seed, _ in cells).values(), default=1)
        last = sorted({self._seeds[place]: place for place in places}.values())
        if round == "best":
            figures = self._figures(column)[last]
        else:
            figures = np.array([self._at(str(self._keys[place]), column, round) for place in last], dtype=float)
        pairs = zip(last, map(float, figures), strict=True)
        seeds = {int(self._seeds[place]): figure for place, figure in pairs if self._ok[place] and figure == figure}
        return Ours(seeds, [self._told[place] for place in last], settings)

    def _figures(self, column: str) -> np.ndarray:
        if column not in self._numbers:
            self._numbers[column] = pd.to_numeric(self.rows[column]).to_numpy(dtype=float)
        return self._numbers[column]

    def _at(self, key: str, column: str, round: str | int) -> float:
        """A figure of the history at a round; NaN where the history has none."""
        curve = self.history(key).get(column)
        place = -1 if round == "last" else int(round) - 1
        value = curve[place] if isinstance(curve, list) and -len(curve) <= place < len(curve) else None
        return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else np.nan


def chosen(rows: SuiteRows, options: list[Filter], reading: Reading, column: str) -> Ours:
    """The rows of the option that validation prefers, the first of equals; of one option, its rows.

    Options are compared on the seeds that all of them have.
    """
    candidates = [rows.ours(where, column, reading.round) for where in options]
    if len(candidates) == 1:
        return candidates[0]
    common = set.intersection(*(set(ours.seeds) for ours in candidates))
    candidates = [ours.only(common) for ours in candidates]
    best = max(range(len(candidates)), key=lambda i: candidates[i].val)
    params = options[best]["method_params"]
    told = ", ".join(f"{name} {params[name]}" for name in reading.choose) if isinstance(params, dict) else ""
    return replace(candidates[best], chosen=told if common else "")


def compare(paper: Paper, table: Table, reading: Reading, figure: Printed, rows: SuiteRows) -> Ours:
    """What we have for a printed figure under one reading of the protocol."""
    means = paper.meanings(table, figure)
    parts = [chosen(rows, paper.cells(table, reading, words), reading, figure.column) for words in means]
    if len(parts) == 1:
        return parts[0]
    common = set.intersection(*(set(part.seeds) for part in parts))  # a mean over cells, seed by seed
    averages = {seed: float(np.mean([part.seeds[seed] for part in parts])) for seed in sorted(common)}
    return Ours(averages, [row for part in parts for row in part.rows], max(part.settings for part in parts))


def difference(figure: Printed, ours: Ours) -> float:
    """Ours - printed, in the unit of the table; NaN where either is missing."""
    return figure.scale * ours.mean - figure.mean if figure.mean is not None else np.nan


def unit_values(figure: Printed, ours: Ours) -> tuple[Any, Any]:
    """(mean, std) of ours in the unit of the table."""
    return figure.scale * ours.mean, figure.scale * ours.std


def keys_of_readings(suite: str, names: Sequence[str], rows: Iterable[Row]) -> set[str]:
    """The keys of those of a suite's rows that stand for a printed figure under one of the readings, by its short name.

    A reading that differs from the first in the round alone has the first one's cells. UserError for an unknown name.
    """
    paper, table = tables()[suite]
    known = {reading.id: reading for reading in paper.readings_of(table) if reading.id}
    for name in names:
        if name not in known:
            raise did_you_mean(name, known, f"reading of {suite}")
    words = [words_of for figure in paper.rows(table, printed()) for words_of in paper.meanings(table, figure)]
    filters = [where for name in names for words_of in words for where in paper.cells(table, known[name], words_of)]
    suite_rows = SuiteRows(pd.DataFrame([row.model_dump() for row in rows], columns=list(Row.model_fields)))
    return {str(key) for where in filters for key in suite_rows.select(where, ["key"])["key"]}
