"""Draws for tests that would otherwise try all combinations: the same in every run, different per method."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterable
from typing import Any

import pytest

from fglbench.benchmark.contract.recording import fitting
from fglbench.benchmark.contract.trial import Trial
from fglbench.benchmark.engine import Method
from fglbench.methods import METHODS

# Short preparations for tests that only compare numbers.
SHORT: dict[str, dict[str, Any]] = {
    "fedsage+": {"generator_epochs": 3, "exchange_epochs": 2},
    "feddep": {"encoder_epochs": 5, "generator_epochs": 3, "exchange_epochs": 2},
    "fedlog": {"generator_epochs": 3},
    "feroma": {"warm_up": 1},
    "o-pfgl": {"condense_steps": 60},
}


def with_code(names: Iterable[str]) -> list[object]:
    """Names of methods as parameters of a test. Methods whose class has no function (settings of another method under a
    new name) are slow tests: test_golden.py has their numbers."""
    with_functions = {name for name in names if any(map(inspect.isroutine, _written(METHODS.cls(name))))}
    return [pytest.param(name, marks=[pytest.mark.slow] * (name not in with_functions)) for name in names]


def _written(cls: type) -> list[object]:
    """The functions that a class body defines."""
    functions = [getattr(value, "__func__", getattr(value, "fget", value)) for value in vars(cls).values()]
    return [value for value in functions if getattr(value, "__module__", "") == cls.__module__]


def sampled_trials(method: Method) -> list[Trial]:
    """One trial federation per task, of those that the method does not skip."""
    by_task: dict[str, list[Trial]] = {}
    for trial in fitting(method):
        by_task.setdefault(trial.federation.task, []).append(trial)
    return [random.Random(method.name).choice(trials) for trials in by_task.values()]


def sampled_pairs(names: Iterable[str], cases: Iterable[str], number: int) -> list[object]:
    """(name, case) as parameters of a test; all but `number` cases of each name are slow."""
    cases = list(cases)
    return [
        pytest.param(*parameter.values, case, marks=parameter.marks or [pytest.mark.slow] * (case not in drawn))  # type: ignore[attr-defined]
        for parameter in with_code(names)
        for drawn in [random.Random(parameter.values[0]).sample(cases, number)]  # type: ignore[attr-defined]
        for case in cases
    ]
