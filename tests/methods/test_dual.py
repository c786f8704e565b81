"""Two models of a client: a training pass drops units of both, a pass that only asks drops none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from fglbench.datasets.federation import Federation

Make = Callable[..., Federation]


@pytest.mark.parametrize("name", ["fml", "fedkd", "fedgkc"])
def test_a_training_pass_drops_units_of_both_models(name: str, federation: Make, start: Callable[..., Any]) -> None:
    run = start(federation(), name, backbone={"dropout": 0.5})
    run.round(1)
    cohort, method = run.simulation.client_batches[0], run.method
    one, other = method.pair(cohort), method.pair(cohort)
    assert not torch.equal(one.private.logits, other.private.logits)
    assert not torch.equal(one.shared.logits, other.shared.logits)
    asked = [method.shared_forward(cohort, training=False).logits for _ in range(2)]
    torch.testing.assert_close(*asked)


def test_without_dropout_a_training_pass_is_the_one_that_asks(federation: Make, start: Callable[..., Any]) -> None:
    run = start(federation(), "fml", backbone={"dropout": 0})
    run.round(1)
    cohort = run.simulation.client_batches[0]
    asked = run.method.shared_forward(cohort, training=False)
    torch.testing.assert_close(run.method.pair(cohort).shared.logits, asked.logits)
