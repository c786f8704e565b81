"""What a cell gives a method to train with, and whether a run took more: then it is shown, not ranked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .json_columns import mapping

MODELS = 2  # trained side by side, each for every epoch, as in mutual distillation: the most of the field's papers


def excess(row: Mapping[str, Any]) -> str:
    """What a run took beyond its cell's budget, in words; empty where it kept within, or where that is not known.

    row: the columns of a result row by name. A run may take no more scored rounds and no more participation than
    `training` says, no more steps on one parameter than plain FedAvg takes (`budget_steps`), and not more than MODELS
    times as many in all. Rows of a schema before 3 do not say what they took, so only rounds are compared.
    """
    asked, effective = mapping(row.get("training")), mapping(row.get("effective_training"))
    budget = _number(row.get("budget_steps"))
    found = [
        ("scored rounds", row.get("rounds"), asked.get("rounds")),
        ("of the clients in a round", effective.get("participation"), asked.get("participation", 1.0)),
        ("steps of a model", row.get("model_steps"), budget),
        ("optimiser steps", row.get("optimiser_steps"), MODELS * budget),
    ]
    counts = [(what, _number(took), _number(given)) for what, took, given in found]
    return "; ".join(f"{took:g} {what}, {given:g} given" for what, took, given in counts if given and took > given)


def _number(value: object) -> float:
    """0 for what is no number, or none that can be compared."""
    fits = isinstance(value, int | float) and abs(value) < 1e18  # neither nan nor more than a float can hold
    return float(value) if fits else 0.0  # type: ignore[arg-type]
