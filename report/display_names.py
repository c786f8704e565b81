"""Names for tasks and entries: the shortest text that is unique on its board."""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable
from typing import Any

import pandas as pd

from ..benchmark.store.schema import NEUTRAL, mapping, parse, wording
from ..registry import DOMAINS
from .text import ABSENT

# The settings of a task and of an entry; the other columns are outcomes and provenance. `Board.build` makes
# `conditions` from the training configuration and `decoder` (how a network scores pairs of nodes) from the backbone.
TASK_COLUMNS = [
    "task", "dataset", "dataset_params", "partition", "partition_params", "clients", "split", "split_params",
    "conditions", "decoder",
]  # fmt: skip
ENTRANT_COLUMNS = ["backbone", "backbone_params", "method_params", "training"]
JSON_COLUMNS = {"dataset_params", "partition_params", "split_params", "backbone_params", "method_params", "training"}


def task_labels(rows: pd.DataFrame) -> pd.Series:
    """One label per row: the dataset, and the settings in which tasks of one dataset differ."""
    labels, settings = rows["dataset"].astype(object).copy(), rows[TASK_COLUMNS].drop(columns="dataset")
    names = _short_names(rows["dataset"].unique())
    for dataset, index in rows.groupby("dataset").groups.items():
        name = names[str(dataset)]
        labels[index] = [f"{name} ({part})" if part else name for part in _differences(settings.loc[index])]
    return labels


def _short_names(datasets: Iterable[str]) -> dict[str, str]:
    """The names of datasets. Of a federation of graph sets: their number, the first and the last, if that is unique."""
    names = {}
    for name in datasets:
        sets = name.removeprefix(DOMAINS).split("+")
        names[name] = f"{len(sets)} sets, {sets[0]} to {sets[-1]}" if name.startswith(DOMAINS) else name
    return {name: short if list(names.values()).count(short) == 1 else name for name, short in names.items()}


def entrant_labels(rows: pd.DataFrame, tasks: pd.Series) -> pd.Series:
    """One label per row: the method, and if it has several settings on one task, the settings that differ.

    Settings that differ between tasks only (one backbone for graphs, another for nodes) do not split a method. Tuned
    rows of a method are one entry with any settings.
    """
    labels = rows["method"].astype(object).copy()  # pandas 2 would write through to the methods
    rows = rows.assign(
        training=without(NEUTRAL, rows["training"]), backbone_params=without(["decoder"], rows["backbone_params"])
    )
    tuned = rows.get("tuning", pd.Series("", index=rows.index)).fillna("") != ""
    both = tuned & rows["method"].isin(rows.loc[~tuned, "method"])
    labels[both] = labels[both] + " (tuned)"
    free = rows.loc[~tuned, ["method", *ENTRANT_COLUMNS]]
    most = free.groupby(["method", tasks[free.index]])[ENTRANT_COLUMNS].nunique().groupby("method").max()
    for method, of_method in free.groupby("method"):
        differing = [column for column in ENTRANT_COLUMNS if most.at[method, column] > 1]
        if differing:
            labels[of_method.index] = [f"{method} ({part})" for part in _differences(of_method[differing])]
    return labels


def _differences(settings: pd.DataFrame) -> list[str]:
    """`distinguish` for rows that may be equal."""
    variants = settings.drop_duplicates()
    names = dict(zip(variants.itertuples(index=False, name=None), distinguish(variants), strict=True))
    return [names[row] for row in settings.itertuples(index=False, name=None)]


def distinguish(variants: pd.DataFrame) -> list[str]:
    """One text per row of distinct settings: the values that differ ('metis, 10 clients', 'mu=0.1'). '' if one row."""
    owners = {f"{name}_params": [*values] for name, values in variants.items()}
    columns = []
    for name, values in variants.items():
        columns += _differing(str(name), [*values], owners.get(str(name)))
    return [", ".join(filter(None, parts)) for parts in zip(*columns, strict=True)] or [""] * len(variants)


def _differing(name: str, values: list[Any], owners: list[Any] | None) -> list[list[str]]:
    """The texts of a column of settings by row: no list if the rows are equal, else its values or its parameters.

    owners: the owner of the parameters by row, for example the partition. Parameters are compared between rows of one
    owner only.
    """
    if len(set(values)) == 1:
        return []
    if name == "conditions":
        return [[wording(mapping(value)) for value in values]]
    objects = [settings for value in values if (settings := parse(value)) is not None] if name in JSON_COLUMNS else []
    if len(objects) < len(values):
        return [[f"{value} clients" if name == "clients" else str(value) for value in values]]
    texts = [[f"{key}={_value(settings, key)}" for settings in objects] for key in sorted(set().union(*objects))]
    return [column for each in texts if any(column := _differing_by_owner(each, owners or values[:1] * len(values)))]


def _differing_by_owner(texts: list[str], owners: list[Any]) -> list[str]:
    """The texts, "" instead of those that all rows of the owner share."""
    by_owner: dict[Any, set[str]] = {}
    for owner, text in zip(owners, texts, strict=True):
        by_owner.setdefault(owner, set()).add(text)
    return [text if len(by_owner[owner]) > 1 else "" for owner, text in zip(owners, texts, strict=True)]


def by_text(texts: pd.Series, change: Callable[[Any], object]) -> pd.Series:
    """Map `change` over texts, with one call per distinct text: many rows have the same settings."""
    return texts.map({text: change(text) for text in texts.unique()})


def without(names: Container[str], texts: pd.Series) -> pd.Series:
    """Settings (JSON) without `names`; other texts as they are."""

    def rest(text: str) -> str:
        settings = parse(text)
        kept = {name: value for name, value in (settings or {}).items() if name not in names}
        return text if settings is None else json.dumps(kept, sort_keys=True)

    return by_text(texts, rest)


def _value(settings: dict[str, Any], key: str) -> str:
    return json.dumps(settings[key]).strip('"') if key in settings else ABSENT
