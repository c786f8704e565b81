"""What scores are drawn against: the strength of a stress condition, or a setting of the task that a board varies."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..benchmark.store.schema import mapping, parse
from .display_names import ENTRANT_COLUMNS, TASK_COLUMNS, task_labels

MIN_AXIS_VALUES = (
    4  # values of a setting that make a curve: a board may try three numbers of clients for another reason
)


@dataclass(frozen=True)
class Axis:
    """What a curve runs along. column: of a row, and setting: in that column's object; neither for a condition.

    falling: the task is mildest at the greatest value, as with the skew of labels at the greatest alpha. ratios: equal
    ratios of values are equal steps.
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
        told = rows[self.column].tolist()
        values = [mapping(text).get(self.setting) for text in told] if self.setting else told
        numbers = [float(value) if isinstance(value, int | float) else None for value in values]
        return pd.Series(numbers, index=rows.index, dtype=float).dropna()

    def without(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows with this setting left out of their task."""
        if not self.setting:
            return rows.assign(**{self.column: 0})
        kept = [{k: v for k, v in mapping(text).items() if k != self.setting} for text in rows[self.column]]
        return rows.assign(**{self.column: [json.dumps(settings, sort_keys=True) for settings in kept]})


AXES = {
    axis.name: axis
    for axis in (
        Axis("clients", "clients", ratios=True),
        Axis("alpha", "partition_params", "alpha", falling=True, ratios=True),
        Axis("homophily", "dataset_params", "homophily", falling=True),
    )
}


def axis(name: str) -> Axis:
    """The axis of that name; a stress condition's runs along its strength."""
    return AXES.get(name) or Axis(name)


def along(rows: pd.DataFrame, axis: Axis) -> pd.DataFrame:
    """Return the rows that differ from others only in this setting of their task, with its `value` and a label `task`.

    A task needs at least MIN_AXIS_VALUES values. Rows under a corruption are left out.
    """
    plain = rows[rows["conditions"] == "{}"]
    values = axis.of(plain)
    values = values if values.nunique() >= MIN_AXIS_VALUES else values[:0]
    rest = axis.without(plain.loc[values.index]).assign(value=values)
    many = rest.groupby(TASK_COLUMNS)["value"].transform("nunique")
    kept = rest[many >= MIN_AXIS_VALUES]
    return kept.assign(task=task_labels(kept) if len(kept) else [])


def harder(rows: pd.DataFrame) -> set[int]:
    """The index of the rows whose task is on an axis, and not at its mild end."""
    index: set[int] = set()
    for axis in AXES.values():
        for _, runs in along(rows, axis).groupby("task"):
            index |= {*runs.index[runs["value"] != axis.mildest(pd.Index(runs["value"]))]}
    return index


MIN_SWEEP_VALUES = 3  # values that make a sweep


@dataclass(frozen=True)
class Sweep:
    """points: `(value, entrant)`, values increasing. centre: the entry from which all sweeps of the method on this
    task depart, None where there is but one sweep to tell it from."""

    task: str
    method: str
    parameter: str
    points: tuple[tuple[float, str], ...]
    centre: str | None


def find_sweeps(rows: pd.DataFrame) -> list[Sweep]:
    """The sweeps among rows of a board (columns as in `Board.rows`), in order of task, method, parameter.

    A parameter is one of the method's own, or "training.…", "backbone.…". Where the other parameters took several
    values too, the sweep with most values counts.
    """
    sweeps = []
    place = ["task_label", "method"]
    entrants = rows[[*place, "entrant", *ENTRANT_COLUMNS]].drop_duplicates([*place, "entrant"])
    entrants = entrants[entrants.groupby(place)["entrant"].transform("size") >= MIN_SWEEP_VALUES]
    for (task, method), variants in entrants.groupby(place, sort=True):
        settings = {str(row["entrant"]): _flat(row) for row in variants.to_dict("records")}
        lines = {name: line for name in sorted(set().union(*settings.values())) if (line := _line(settings, name))}
        shared = set.intersection(*(set(line.values()) for line in lines.values())) if lines else set()
        centre = shared.pop() if len(shared) == 1 else None
        sweeps += [Sweep(task, method, name, tuple(sorted(line.items())), centre) for name, line in lines.items()]
    return sweeps


def _flat(row: dict[Any, Any]) -> dict[str, Any]:
    """All settings of an entry by name."""
    settings: dict[str, Any] = {"backbone": row["backbone"]}
    for column, prefix in (("method_params", ""), ("training", "training."), ("backbone_params", "backbone.")):
        values = parse(row[column])
        settings |= {column: row[column]} if values is None else {f"{prefix}{key}": v for key, v in values.items()}
    return settings


def _line(settings: dict[str, dict[str, Any]], parameter: str) -> dict[float, str]:
    """The entries of the longest sweep of a parameter by its value; empty if there is none."""
    lines: dict[str, dict[float, str]] = {}
    told = {entrant: values.get(parameter) for entrant, values in sorted(settings.items())}
    numeric = {k: float(v) for k, v in told.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    if len(set(numeric.values())) < MIN_SWEEP_VALUES:
        return {}
    for entrant, value in numeric.items():
        rest = json.dumps({name: v for name, v in settings[entrant].items() if name != parameter}, sort_keys=True)
        lines.setdefault(rest, {})[value] = entrant
    longest = max((lines[rest] for rest in sorted(lines)), key=len, default={})
    return longest if len(longest) >= MIN_SWEEP_VALUES else {}
