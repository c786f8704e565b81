"""Runs on a trial federation of the contract that are recorded, for tests of what is between clients and server."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from fglbench.benchmark.contract.recording import Record, record
from fglbench.benchmark.contract.trial import Trial
from fglbench.methods import METHODS


def same(a: Record, b: Record) -> bool:
    """Whether two runs have the same uploads and models, bit for bit."""
    pairs = list(zip(a.values, b.values, strict=True))
    return bool(pairs) and all(x[:2] == y[:2] and torch.equal(x[2], y[2]) for x, y in pairs)


def flat(model: dict[str, torch.Tensor]) -> np.ndarray:
    """(K, entries) the models of K clients."""
    rows = [value.detach().numpy().reshape(len(value), -1) for value in model.values()]
    return np.concatenate(rows, 1).astype(np.float64)


def watched(name: str, trial: Trial) -> SimpleNamespace:
    """A run with what crossed in each round: models down and up before any transform, what the server's function got,
    the weights (K,) and the numbers of the participants."""
    seen = SimpleNamespace(down=[], up=[], handed=[], weights=[], participants=[])

    def wrap(simulation: Any, step: Any) -> Any:
        def server(own: Any, uploads: Any) -> Any:
            seen.handed.append(flat(uploads["model"]))
            seen.weights.append(own.weights.numpy().astype(np.float64))
            seen.participants.append(list(own.participants))
            return step.server(own, uploads)

        def client(clients: Any) -> Any:
            upload = step.client(clients)
            seen.down.append(flat(clients.received["model"]))
            seen.up.append(flat(upload["model"]))
            return upload

        return replace(step, client=client, server=server)

    seen.record = record(METHODS.build(name), trial, wrap=wrap)
    return seen
