"""Recorded runs on a trial federation of the contract, for tests of messages between clients and server."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fglbench.benchmark.contract.recording import Record, record
from fglbench.benchmark.contract.trial import Trial, trials
from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.device import HOST
from fglbench.benchmark.engine.outcome import Outcome
from fglbench.benchmark.engine.train import train
from fglbench.methods import METHODS

from ...sampled import SHORT


def same(a: Record, b: Record) -> bool:
    """Whether two runs have bitwise identical uploads and models."""
    pairs = list(zip(a.values, b.values, strict=True))
    return bool(pairs) and all(x[:2] == y[:2] and torch.equal(x[2], y[2]) for x, y in pairs)


def flat(model: dict[str, torch.Tensor]) -> np.ndarray:
    """(K, entries) the models of K clients."""
    rows = [value.detach().numpy().reshape(len(value), -1) for value in model.values()]
    return np.concatenate(rows, 1).astype(np.float64)


def run(trial: Trial, name: str, device: torch.device = HOST) -> Outcome:
    """Train a method on a trial of the contract."""
    return train(
        trial.federation, METHODS.build(name, SHORT.get(name)), trial.backbones, trial.config, 0, device=device
    )


def difference(first: Outcome, second: Outcome) -> float:
    """The largest difference in scores and validation of any round."""
    curves = [np.array([outcome.history[name] for name in ("val", "score")]) for outcome in (first, second)]
    np.testing.assert_array_equal(*(np.isnan(curve) for curve in curves))
    return float(np.nanmax(np.abs(curves[0] - curves[1]), initial=0))


def trial(place: int = 0, **training: Any) -> Trial:
    """A trial with three rounds. 0: four clients of unequal size, one of them without a training node."""
    return replace(trials()[place], config=TrainConfig(rounds=3, local_epochs=2, **training))


def watched(name: str, **training: Any) -> SimpleNamespace:
    """A run with the messages of each round: models down and up before any transform, the input of the server half, the
    weights (K,) and the numbers of the participants."""
    seen = SimpleNamespace(down=[], up=[], handed=[], weights=[], participants=[])

    def wrap(simulation: Any, step: Any) -> Any:
        def server(view: Any, uploads: Any) -> Any:
            seen.handed.append(flat(uploads["model"]))
            seen.weights.append(view.weights.numpy().astype(np.float64))
            seen.participants.append(list(view.participants))
            return step.server(view, uploads)

        def client(clients: Any) -> Any:
            upload = step.client(clients)
            seen.down.append(flat(clients.received["model"]))
            seen.up.append(flat(upload["model"]))
            return upload

        return replace(step, client=client, server=server)

    seen.record = record(METHODS.build(name), trial(**training), wrap=wrap)
    return seen
