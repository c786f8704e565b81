"""JSON in columns of a row and in small files, and the stress conditions that the column `training` names.

A stranger may have put any text there, so reading raises nothing."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def mapping(text: object) -> dict[str, Any]:
    """The object that a text holds; empty where it holds something else."""
    return parse(text) or {}


def parse(text: object) -> dict[str, Any] | None:
    """The object that a text holds, or None where it holds something else."""
    found = loaded(text)
    return found if isinstance(found, dict) else None


def parameters(text: object) -> dict[str, Any]:
    """The object that a text holds; of a list of them, as of mixed architectures, all that they say together, of two
    values for one name the later; else nothing."""
    found = loaded(text)
    objects = found if isinstance(found, list) else [found]
    return {name: own for each in objects if isinstance(each, dict) for name, own in each.items()}


def loaded(text: object) -> Any:
    """What a text holds, or None where it is no JSON."""
    try:
        return json.loads(text)  # type: ignore[arg-type]
    except (TypeError, ValueError, RecursionError):
        return None


NEUTRAL: Mapping[str, float] = {  # a condition -> the value at which it is none; a test holds it against the engine's
    "feature_noise": 0.0,
    "missing_features": 0.0,
    "edge_noise": 0.0,
    "dropped_edges": 0.0,
    "label_noise": 0.0,
    "missing_labels": 0.0,
    "participation": 1.0,
    "failure": 0.0,
    "straggle": 0.0,
    "label_flip": 0.0,
    "sign_flip": 0.0,
    "gaussian": 0.0,
    "small_deviation": 0.0,
}


def conditions(training: object) -> dict[str, float]:
    """The conditions of a row's `training` column that are set, by name; none where the column has another text."""
    asked = mapping(training)
    found = {name: asked[name] for name in NEUTRAL if isinstance(asked.get(name), int | float)}
    return {name: float(value) for name, value in found.items() if value != NEUTRAL[name]}


def strength(condition: str, value: float) -> float:
    """How strong a condition is: its distance from none, as participation 0.3 is 0.7."""
    return round(abs(value - NEUTRAL[condition]), 9)


def wording(found: Mapping[str, float]) -> str:
    """'label noise 0.4', or 'plain' without a condition."""
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in found.items()) or "plain"
