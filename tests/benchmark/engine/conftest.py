"""A pretended device, registered with torch once per process; each backbone under several options."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest
import torch

from fglbench.benchmark.engine import BACKBONES, evaluate
from fglbench.benchmark.engine.backbones import Backbone
from fglbench.benchmark.engine.graphs import clustering

from . import pretend

AtHand = Callable[[], AbstractContextManager[torch.device]]


@pytest.fixture(scope="session")
def at_hand() -> AtHand:
    """`pretend.at_hand`: within it tensors can be made on the device and moved to it."""
    return pretend.at_hand


@pytest.fixture
def wrapped_predictions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluator accepts plain tensors only; the pretended device has its own tensor class."""
    for module in (evaluate, clustering):
        monkeypatch.setattr(module, "demanded", lambda method, predictions, *_: predictions)


@pytest.fixture
def far(at_hand: AtHand) -> Iterator[torch.device]:
    with at_hand() as device:
        yield device


@pytest.fixture(
    params=[("gat", {"heads": 2}), ("sage", {}), ("gin", {"train_eps": True}), ("gin", {"batch_norm": True}),
            ("sgc", {}), ("mlp", {}), ("ortho-gcn", {}), ("gcn", {"input_dropout": 0.3})],
    ids=lambda param: " ".join([param[0], *param[1]]),
)  # fmt: skip
def backbone(request: pytest.FixtureRequest) -> Backbone:
    """Every backbone of the package, narrow, with the options that have a separate code path."""
    name, params = request.param
    return BACKBONES.build(name, {"hidden": 8, **params})
