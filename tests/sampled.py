"""Draws for tests that would try every method on everything: the same at every run, other ones for another method."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest

from fglbench.benchmark.contract.trial import Trial
from fglbench.benchmark.contract.verdicts import fitting
from fglbench.benchmark.engine import Method

# Preparations that take long and gain nothing from it where numbers are only compared.
SHORT: dict[str, dict[str, Any]] = {
    "fedsage+": {"generator_epochs": 3, "exchange_epochs": 2},
    "feddep": {"encoder_epochs": 5, "generator_epochs": 3, "exchange_epochs": 2},
    "fedlog": {"generator_epochs": 3},
    "o-pfgl": {"condense_steps": 60},
}


def sampled_trials(method: Method) -> list[Trial]:
    """One trial federation of each task, of those that the method does not skip."""
    by_task: dict[str, list[Trial]] = {}
    for trial in fitting(method):
        by_task.setdefault(trial.federation.task, []).append(trial)
    return [random.Random(method.name).choice(own) for own in by_task.values()]


def sampled_pairs(names: Iterable[str], cases: Iterable[str], number: int) -> list[object]:
    """(name, case) as parameters of a test; all but `number` cases of each name are slow."""
    cases = list(cases)
    drawn = {name: random.Random(name).sample(cases, number) for name in names}
    return [
        pytest.param(name, case, marks=[pytest.mark.slow] * (case not in own))
        for name, own in drawn.items()
        for case in cases
    ]
