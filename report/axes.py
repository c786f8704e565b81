"""What scores are drawn against: the strength of a stress condition, or a setting of the task that a board varies."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pandas as pd

from ..benchmark.store.jsoncolumn import mapping
from .labels import TASK_COLUMNS, task_labels

LEAST = 4  # values of a setting that make a curve: a board may try three numbers of clients for another reason


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
        found = [float(value) if isinstance(value, int | float) else None for value in values]
        return pd.Series(found, index=rows.index, dtype=float).dropna()

    def without(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows with this setting left out of their task."""
        if not self.setting:
            return rows.assign(**{self.column: 0})
        kept = [{k: v for k, v in mapping(text).items() if k != self.setting} for text in rows[self.column]]
        return rows.assign(**{self.column: [json.dumps(own, sort_keys=True) for own in kept]})


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
    """Those rows of a board that differ from others in this setting of their task alone, with `value`, and with the
    label of what is left of the task as `task`; at least LEAST values each. Rows under a condition are none of them."""
    plain = rows[rows["conditions"] == "{}"]
    values = axis.of(plain)
    values = values if values.nunique() >= LEAST else values[:0]
    rest = axis.without(plain.loc[values.index]).assign(value=values)
    many = rest.groupby(TASK_COLUMNS)["value"].transform("nunique")
    kept = rest[many >= LEAST]
    return kept.assign(task=task_labels(kept) if len(kept) else [])


def harder(rows: pd.DataFrame) -> set[int]:
    """The index of the rows whose task lies on an axis, and not at its mild end."""
    found: set[int] = set()
    for one in AXES.values():
        for _, own in along(rows, one).groupby("task"):
            found |= {*own.index[own["value"] != one.mildest(pd.Index(own["value"]))]}
    return found
