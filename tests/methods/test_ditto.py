"""Ditto against its algorithm in slow loops, and without its regularisation."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fglbench.benchmark.engine.backbones import Params

from .rounds import close, descend, start

PLAIN: dict[str, Any] = {"kinds": ["gin"], "backbone": {"dropout": 0.0}, "optimiser": "sgd", "weight_decay": 0.0}
WORLDS = [("federation", (13, 7, 10)), ("labelled_sets", (9, 6, 8))]


@pytest.mark.parametrize(("kind", "counts"), WORLDS)
def test_without_regularisation_it_is_fedavg_and_local_training(
    kind: str, counts: tuple[int, ...], request: pytest.FixtureRequest
) -> None:
    world = request.getfixturevalue(kind)(counts)
    both, mean, alone = (
        start(world, name, params, **PLAIN, lr=0.05)
        for name, params in (("ditto", {"lam": 0.0}), ("fedavg", {}), ("local", {}))
    )
    for number in (1, 2, 3):
        mine, theirs = both.round(number)["model"], mean.round(number)["model"]
        alone.round(number)
        assert all(torch.equal(value, theirs[name]) for name, value in mine.items())
    (personal,), (local,) = both.simulation.personal_models(), alone.simulation.personal_models()
    for name, value in local.items():
        assert torch.equal(personal[name], value)
    assert not torch.equal(
        personal["head.weight" if "head.weight" in personal else "0.inner.weight"], next(iter(mine.values()))
    )


@pytest.mark.parametrize(("kind", "counts"), WORLDS)
def test_a_round_equals_slow_loops(kind: str, counts: tuple[int, ...], request: pytest.FixtureRequest) -> None:
    """Round 2 per client: FedAvg's steps, then regularised steps of the personal model, SGD by hand."""
    world, rate, lam = request.getfixturevalue(kind)(counts), 0.05, 0.7
    run = start(world, "ditto", {"lam": lam}, **PLAIN, lr=rate)
    alone = start(world, "local", clients_per_batch=1, **PLAIN)
    run.round(1)
    w = {n: v.clone() for n, v in run.simulation.server.state["model"].items()}
    (before,) = run.simulation.personal_models()
    before = {n: v.clone() for n, v in before.items()}
    uploads = run.round(2)["model"]
    (after,) = run.simulation.personal_models()

    def penalty(model: Params) -> torch.Tensor:
        return lam / 2 * sum(((v - w[n]) ** 2).sum() for n, v in model.items())

    for k, clients in enumerate(alone.simulation.client_batches):
        close(uploads, descend(clients, w, 2, rate), k, rtol=1e-4)
        close(after, descend(clients, {n: v[k] for n, v in before.items()}, 2, rate, penalty), k, rtol=1e-4)
