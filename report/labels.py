"""Names for tasks and entrants: the shortest text that tells each from the others of its board."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from .text import ABSENT

# What a task is, and what a method may bring to it. Everything else in a row is an outcome or provenance.
TASK_COLUMNS = [
    "task", "dataset", "dataset_params", "partition", "partition_params", "clients", "split", "split_params",
]  # fmt: skip
ENTRANT_COLUMNS = ["backbone", "backbone_params", "method_params", "training"]
JSON_COLUMNS = {"dataset_params", "partition_params", "split_params", "backbone_params", "method_params", "training"}


def task_labels(rows: pd.DataFrame) -> pd.Series:
    """One label a row: the dataset, and where a dataset has several tasks, what sets them apart."""
    names: dict[tuple[Any, ...], str] = {}
    tasks = rows[TASK_COLUMNS].drop_duplicates().sort_values(TASK_COLUMNS)
    for dataset, variants in tasks.groupby("dataset", sort=True):
        parts = distinguish(variants.drop(columns="dataset"))
        for row, part in zip(variants.itertuples(index=False, name=None), parts, strict=True):
            names[row] = f"{dataset} ({part})" if part else str(dataset)
    return pd.Series([names[row] for row in rows[TASK_COLUMNS].itertuples(index=False, name=None)], index=rows.index)


def entrant_labels(rows: pd.DataFrame, tasks: pd.Series) -> pd.Series:
    """One label a row: the method, and where it competes with itself on one task, the settings that differ there.

    A setting that changes from task to task only (a backbone for graphs, another for nodes) does not split a method.
    """
    labels = pd.Series(rows["method"], dtype=object)
    for method, own in rows.groupby("method", sort=True):
        differing = [c for c in ENTRANT_COLUMNS if own.groupby(tasks[own.index])[c].nunique().max() > 1]
        if not differing:
            continue
        variants = own[differing].drop_duplicates().sort_values(differing)
        names = dict(zip(variants.itertuples(index=False, name=None), distinguish(variants), strict=True))
        for place, variant in zip(own.index, own[differing].itertuples(index=False, name=None), strict=True):
            labels[place] = f"{method} ({names[variant]})"
    return labels


def distinguish(variants: pd.DataFrame) -> list[str]:
    """For distinct rows of settings, the values in which they differ: 'metis, 10 clients', 'mu=0.1'. '' if one row."""
    parts: list[list[str]] = [[] for _ in range(len(variants))]
    for column in variants.columns:
        values = list(variants[column])
        if len(set(values)) == 1:
            continue
        parsed = [parse(value) for value in values] if column in JSON_COLUMNS else [None]
        if any(p is None for p in parsed):
            for part, value in zip(parts, values, strict=True):
                part.append(f"{value} clients" if column == "clients" else str(value))
            continue
        for key in sorted({key for p in parsed if p for key in p}):
            found = [json.dumps(p[key]).strip('"') if p and key in p else ABSENT for p in parsed]
            if len(set(found)) > 1:
                for part, value in zip(parts, found, strict=True):
                    part.append(f"{key}={value}")
    return [", ".join(part) for part in parts]


def parse(value: Any) -> dict[str, Any] | None:
    """The object that a JSON column holds, or None when it holds something else."""
    try:
        found = json.loads(value)
    except (TypeError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
