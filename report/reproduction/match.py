"""Find our rows of each printed figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ...benchmark.store.schema import Row, parameters
from ...registry import did_you_mean
from ..display_names import JSON_COLUMNS
from ..papers import COLUMNS, Filter, Paper, Printed, Reading, Table, tables


class RowInfo(NamedTuple):
    """The columns of a row that `Ours` keeps. val: NaN if missing."""

    seed: int
    status: str
    error: str
    val: float


@dataclass(frozen=True, eq=False)
class Ours:
    """Our value of one figure. seeds: score in [0, 1] by seed. rows: its rows, including failures.

    settings: the largest number of cells of one seed; more than one if the suite has changed. chosen: the setting that
    validation chose, if the reading has a choice.
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
        """The mean validation score of the rows with a score; minus infinity without any."""
        known = [row.val for row in self.rows if row.seed in self.seeds and np.isfinite(row.val)]
        return float(np.mean(known)) if known else -np.inf


class SuiteRows:
    """The rows of a suite, with parsed JSON columns. history: reads the history of a key, which is not checked."""

    def __init__(self, rows: pd.DataFrame, history: Callable[[str], dict[str, Any]] = lambda key: {}) -> None:
        self.rows = rows.sort_values(["seed", "started", "key"], kind="stable").reset_index(drop=True)
        fields = (pd.to_numeric(self.rows[name]) if name == "val" else self.rows[name] for name in RowInfo._fields)
        self._infos = list(map(RowInfo, *fields))
        self._seeds, self._keys = ([*self.rows[column]] for column in ("seed", "key"))
        self._ok = (self.rows["status"] == "ok").to_numpy(dtype=bool)
        self.history = history
        self.parsed = {column: [parameters(value) for value in self.rows[column]] for column in sorted(JSON_COLUMNS)}
        self._numbers = {column: pd.to_numeric(self.rows[column]).to_numpy(dtype=float) for column in COLUMNS.values()}
        self._matches: dict[str, np.ndarray] = {}  # many filters have the same conditions

    @classmethod
    def of(cls, rows: Iterable[Row], history: Callable[[str], dict[str, Any]] = lambda key: {}) -> SuiteRows:
        return cls(pd.DataFrame([row.model_dump() for row in rows], columns=list(Row.model_fields)), history)

    def select(self, where: Filter, columns: list[str]) -> pd.DataFrame:
        """Columns of the rows that match a filter, by seed and start."""
        return self.rows[columns][self._match(where)]

    def _match(self, where: Filter) -> np.ndarray:
        keep = np.ones(len(self.rows), dtype=bool)
        for column, wanted in where.items():
            for key, value in wanted.items() if isinstance(wanted, dict) else [("", wanted)]:
                keep &= self._match_one(column, key, value)
        return keep

    def _match_one(self, column: str, key: str, value: Any) -> np.ndarray:
        """Whether each row has a value of a column, or of the parameter `key` of a column of JSON (None: lacks it)."""
        condition = repr((column, key, value))
        if condition not in self._matches:
            matches = [each.get(key) == value for each in self.parsed[column]] if key else self.rows[column] == value
            self._matches[condition] = np.asarray(matches, dtype=bool)
        return self._matches[condition]

    def ours(self, where: Filter, column: str, round: str | int = "best") -> Ours:
        """Our value from the rows that match a filter; of several rows of one seed the one started last counts.

        round: "best" for the score of the row; "last" or a number for a round of its history (column `score` only).
        """
        places = np.flatnonzero(self._match(where))
        cells = {(self._seeds[place], self._keys[place]) for place in places}
        settings = max(Counter(seed for seed, _ in cells).values(), default=1)
        last = sorted({self._seeds[place]: place for place in places}.values())
        if round == "best":
            figures = self._numbers[column][last]
        else:
            figures = np.array([self._at(str(self._keys[place]), column, round) for place in last], dtype=float)
        pairs = zip(last, map(float, figures), strict=True)
        seeds = {int(self._seeds[place]): figure for place, figure in pairs if self._ok[place] and figure == figure}
        return Ours(seeds, [self._infos[place] for place in last], settings)

    def _at(self, key: str, column: str, round: str | int) -> float:
        """The value of the history at a round; NaN without a value in [0, 1]."""
        curve = self.history(key).get(column)
        place = -1 if round == "last" else int(round) - 1
        value = curve[place] if isinstance(curve, list) and -len(curve) <= place < len(curve) else None
        return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else np.nan


def chosen(rows: SuiteRows, options: list[Filter], reading: Reading, column: str) -> Ours:
    """Our value under the option with the highest validation score, of equals the first.

    If there are several options, only the seeds of all of them count.
    """
    candidates = [rows.ours(where, column, reading.round) for where in options]
    if len(candidates) == 1:
        return candidates[0]
    common = set.intersection(*(set(ours.seeds) for ours in candidates))
    candidates = [
        replace(ours, seeds={seed: score for seed, score in ours.seeds.items() if seed in common})
        for ours in candidates
    ]
    best = max(range(len(candidates)), key=lambda i: candidates[i].val)
    params = options[best]["method_params"]
    chosen = ", ".join(f"{name} {params[name]}" for name in reading.choose) if isinstance(params, dict) else ""
    return replace(candidates[best], chosen=chosen if common else "")


def compare(paper: Paper, table: Table, reading: Reading, figure: Printed, rows: SuiteRows) -> Ours:
    """Our value of a printed figure under one reading."""
    means = paper.meanings(table, figure)
    parts = [chosen(rows, paper.cells(table, reading, words), reading, figure.column) for words in means]
    if len(parts) == 1:
        return parts[0]
    common = set.intersection(*(set(part.seeds) for part in parts))  # a mean over cells, seed by seed
    averages = {seed: float(np.mean([part.seeds[seed] for part in parts])) for seed in sorted(common)}
    return Ours(averages, [row for part in parts for row in part.rows], max(part.settings for part in parts))


def difference(figure: Printed, ours: Ours) -> float:
    """Ours - printed, in the unit of the table; NaN if one is missing."""
    return figure.scale * ours.mean - figure.mean if figure.mean is not None else np.nan


def keys_of_readings(suite: str, names: Sequence[str], rows: Iterable[Row]) -> set[str]:
    """The keys of a suite's rows that belong to a printed figure under one of the readings. names: their ids.

    A reading that differs from the base in the round only has the rows of the base. UserError for an unknown name.
    """
    paper, table = tables()[suite]
    known = {reading.id: reading for reading in paper.readings_of(table) if reading.id}
    for name in names:
        if name not in known:
            raise did_you_mean(name, known, f"reading of {suite}")
    words = [words_of for figure in paper.figures(table) for words_of in paper.meanings(table, figure)]
    filters = [where for name in names for words_of in words for where in paper.cells(table, known[name], words_of)]
    suite_rows = SuiteRows.of(rows)
    return {str(key) for where in filters for key in suite_rows.select(where, ["key"])["key"]}
