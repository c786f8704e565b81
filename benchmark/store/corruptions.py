"""The stress conditions that a row was run under: those of the training configuration that are part of the task."""

from __future__ import annotations

from collections.abc import Mapping

from .json_columns import mapping

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
