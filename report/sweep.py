"""Sweeps: where one method was run with several values of one numeric parameter and everything else equal."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ..benchmark.store.jsoncolumn import parse
from .labels import ENTRANT_COLUMNS

LEAST = 3  # values that make a sweep


@dataclass(frozen=True)
class Sweep:
    """points: (value, entrant), values increasing. centre: the entrant from which all sweeps of the method on this
    task depart, None where there is but one sweep to tell it from."""

    task: str
    method: str
    parameter: str
    points: tuple[tuple[float, str], ...]
    centre: str | None


def find(rows: pd.DataFrame) -> list[Sweep]:
    """The sweeps among rows of a board (columns as in `Board.rows`), in order of task, method, parameter.

    A parameter is one of the method's own, or "training.…", "backbone.…". Where the other parameters took several
    values too, the sweep with most values counts.
    """
    found = []
    place = ["task_label", "method"]
    entrants = rows[[*place, "entrant", *ENTRANT_COLUMNS]].drop_duplicates([*place, "entrant"])
    entrants = entrants[entrants.groupby(place)["entrant"].transform("size") >= LEAST]
    for (task, method), own in entrants.groupby(place, sort=True):
        settings = {str(row["entrant"]): _flat(row) for row in own.to_dict("records")}
        lines = {name: line for name in sorted(set().union(*settings.values())) if (line := _line(settings, name))}
        shared = set.intersection(*(set(line.values()) for line in lines.values())) if lines else set()
        centre = shared.pop() if len(shared) == 1 else None
        found += [Sweep(task, method, name, tuple(sorted(line.items())), centre) for name, line in lines.items()]
    return found


def _flat(row: dict[Any, Any]) -> dict[str, Any]:
    """All settings of an entrant by name."""
    found: dict[str, Any] = {"backbone": row["backbone"]}
    for column, prefix in (("method_params", ""), ("training", "training."), ("backbone_params", "backbone.")):
        values = parse(row[column])
        found |= {column: row[column]} if values is None else {f"{prefix}{key}": v for key, v in values.items()}
    return found


def _line(settings: dict[str, dict[str, Any]], parameter: str) -> dict[float, str]:
    """The entrants of the longest sweep of a parameter by its value; empty if there is none."""
    lines: dict[str, dict[float, str]] = {}
    told = {entrant: values.get(parameter) for entrant, values in sorted(settings.items())}
    numeric = {k: float(v) for k, v in told.items() if isinstance(v, int | float) and not isinstance(v, bool)}
    if len(set(numeric.values())) < LEAST:
        return {}
    for entrant, value in numeric.items():
        rest = json.dumps({name: v for name, v in settings[entrant].items() if name != parameter}, sort_keys=True)
        lines.setdefault(rest, {})[value] = entrant
    longest = max((lines[rest] for rest in sorted(lines)), key=len, default={})
    return longest if len(longest) >= LEAST else {}
