"""Which round counts, and when a run stops."""

from __future__ import annotations

import math

import pytest
import torch

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.evaluate import Models, Scored
from fglbench.benchmark.engine.outcome import BestRound, Round
from fglbench.benchmark.engine.target import Target

NOBODY = Target({}, {}, {}, 0)


def run(config: TrainConfig, *values: float, loss: tuple[float, ...] = ()) -> BestRound:
    selection, model = BestRound(config), torch.zeros(1)
    for number, value in enumerate(values, 1):
        model.fill_(number)  # training in place
        figures = {"val": value} | ({"val_loss": loss[number - 1]} if loss else {})
        scored = Scored(torch.empty(0), torch.empty(0), None, None, NOBODY)
        selection.add(Round(number, figures, scored, Models(None, [{"w": model}])))
        if selection.stops:
            break
    return selection


@pytest.mark.parametrize(
    ("settings", "values", "loss", "best"),
    [
        ({}, (0.5, 0.7, 0.7), (), 2),  # the first of equals
        ({"select_by": "val_loss"}, (0.5, 0.7, 0.6), (2.0, 3.0, 1.0), 3),
        ({"select_by": "last"}, (0.9, 0.7, 0.5), (), 3),
        ({}, (math.nan, math.nan), (), 2),  # no client has a validation node
        ({"select_by": "val_loss"}, (0.5, 0.5), (math.inf, math.inf), 1),
    ],
)
def test_the_round_that_counts(settings: dict, values: tuple, loss: tuple, best: int) -> None:
    found = run(TrainConfig(**settings), *values, loss=loss)
    assert found.best.number == best and found.rounds == len(values)
    assert found.best.models.personal[0]["w"].item() == best  # as it was then, not later


def test_patience_counts_rounds_without_a_better_value() -> None:
    found = run(TrainConfig(patience=2), 0.5, 0.6, 0.6, 0.4, 0.9)
    assert (found.rounds, found.best.number) == (4, 2)
    assert found.history == {"round": [1, 2, 3, 4], "val": [0.5, 0.6, 0.6, 0.4]}
