"""Settings that a board varies: axes of a task (clients, alpha, homophily) and sweeps of a method's parameters."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..benchmark.store.schema import mapping, parse
from .display_names import ENTRANT_COLUMNS, TASK_COLUMNS, task_labels, without

MIN_AXIS_VALUES = 4  # values of a curve: a board may have three numbers of clients for another reason


@dataclass(frozen=True)
class Axis:
    """The x-axis of a curve. column: of rows; setting: key in that column's JSON. Both are empty for a condition.

    falling: the task is mildest at the greatest value, for example at the greatest alpha. ratios: logarithmic scale.
    """

    name: str
    column: str = ""
    setting: str = ""
    falling: bool = False
    ratios: bool = False

    def mildest(self, values: pd.Index) -> float:
        return float(values.max() if self.falling else values.min())

    def of(self, rows: pd.DataFrame) -> pd.Series:
        """The value in each row that has one."""
        stored = rows[self.column].tolist()
        values = [mapping(text).get(self.setting) for text in stored] if self.setting else stored
        numbers = [float(value) if isinstance(value, int | float) else None for value in values]
        return pd.Series(numbers, index=rows.index, dtype=float).dropna()

    def without(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows without this setting in their task."""
        return rows.assign(**{self.column: without([self.setting], rows[self.column]) if self.setting else 0})


AXES = {
    axis.name: axis
    for axis in (
        Axis("clients", "clients", ratios=True),
        Axis("alpha", "partition_params", "alpha", falling=True, ratios=True),
        Axis("homophily", "dataset_params", "homophily", falling=True),
    )
}


def axis(name: str) -> Axis:
    """The axis with this name; for a stress condition the axis of its strength."""
    return AXES.get(name) or Axis(name)


def along(rows: pd.DataFrame, axis: Axis) -> pd.DataFrame:
    """Return the rows of tasks that differ only in this setting, with its `value` and the label `task` without it.

    A task needs at least MIN_AXIS_VALUES values. Rows under a stress condition are left out.
    """
    plain = rows[rows["conditions"] == "{}"]
    values = axis.of(plain)
    values = values if values.nunique() >= MIN_AXIS_VALUES else values[:0]
    rest = axis.without(plain.loc[values.index]).assign(value=values)
    counts = rest.groupby(TASK_COLUMNS)["value"].transform("nunique")
    kept = rest[counts >= MIN_AXIS_VALUES]
    return kept.assign(task=task_labels(kept) if len(kept) else [])


def harder(rows: pd.DataFrame) -> set[int]:
    """The index of the rows whose task is on an axis, but not at its mildest value."""
    index: set[int] = set()
    for axis in AXES.values():
        for _, runs in along(rows, axis).groupby("task"):
            index |= {*runs.index[runs["value"] != axis.mildest(pd.Index(runs["value"]))]}
    return index


MIN_SWEEP_VALUES = 3


@dataclass(frozen=True)
class Sweep:
    """Entries of a method that differ in one parameter.

    points: `(value, entrant)`, values increasing. centre: the one entry that is in all sweeps of the method on this
    task, or None.
    """

    task: str
    method: str
    parameter: str
    points: tuple[tuple[float, str], ...]
    centre: str | None


def find_sweeps(rows: pd.DataFrame) -> list[Sweep]:
    """Find the sweeps among rows of a board (columns as in `Board.rows`), in order of task, method, parameter.

    parameter: of the method, or "training.…", "backbone.…". If the other parameters have several values too, the sweep
    with most values counts.
    """
    sweeps = []
    place = ["task_label", "method"]
    entrants = rows[[*place, "entrant", *ENTRANT_COLUMNS]].drop_duplicates([*place, "entrant"])
    entrants = entrants[entrants.groupby(place)["entrant"].transform("size") >= MIN_SWEEP_VALUES]
    for (task, method), variants in entrants.groupby(place, sort=True):
        settings = {str(row["entrant"]): _all_settings(row) for row in variants.to_dict("records")}
        names = sorted(set().union(*settings.values()))
        lines = {name: line for name in names if (line := _longest_sweep(settings, name))}
        shared = set.intersection(*(set(line.values()) for line in lines.values())) if lines else set()
        centre = shared.pop() if len(shared) == 1 else None
        sweeps += [Sweep(task, method, name, tuple(sorted(line.items())), centre) for name, line in lines.items()]
    return sweeps


def _all_settings(row: dict[Any, Any]) -> dict[str, Any]:
    settings: dict[str, Any] = {"backbone": row["backbone"]}
    for column, prefix in (("method_params", ""), ("training", "training."), ("backbone_params", "backbone.")):
        values = parse(row[column])
        settings |= {column: row[column]} if values is None else {f"{prefix}{key}": v for key, v in values.items()}
    return settings


def _longest_sweep(settings: dict[str, dict[str, Any]], parameter: str) -> dict[float, str]:
    """Value -> entry of the longest sweep of a parameter; empty if there is none."""
    lines: dict[str, dict[float, str]] = {}
    values = {entrant: chosen.get(parameter) for entrant, chosen in sorted(settings.items())}
    numeric = {k: float(v) for k, v in values.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    if len(set(numeric.values())) < MIN_SWEEP_VALUES:
        return {}
    for entrant, value in numeric.items():
        rest = json.dumps({name: v for name, v in settings[entrant].items() if name != parameter}, sort_keys=True)
        lines.setdefault(rest, {})[value] = entrant
    longest = max((lines[rest] for rest in sorted(lines)), key=len, default={})
    return longest if len(longest) >= MIN_SWEEP_VALUES else {}
