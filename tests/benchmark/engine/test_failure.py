"""Clients that fail: nothing of theirs crosses, they keep their state, and every method continues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fglbench.benchmark.contract.recording import record
from fglbench.benchmark.contract.trial import Trial, trials
from fglbench.benchmark.engine import METHODS, Diverged, Params, Server, TrainConfig, stream, train
from fglbench.methods.fedavg import FedAvg

from .recorded import same

CLIENTS, ROUNDS, FAILURE = 4, 5, 0.5


def trial(**training: Any) -> Trial:
    return replace(trials()[0], config=TrainConfig(rounds=ROUNDS, local_epochs=1, **training))


def fates(seed: int = 0) -> list[list[int]]:
    """Who works in each round, drawn as it is written: one number per client and round, from a stream of its own."""
    draw = stream(seed, "failure")
    return [[k for k, u in enumerate(draw.random(CLIENTS)) if u >= FAILURE] for _ in range(ROUNDS)]


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "fedproto", "fedgta", "fml"])
def test_where_nobody_fails_and_all_take_part_it_is_the_plain_method_bit_for_bit(name: str) -> None:
    plain = record(METHODS.build(name), trials()[0])
    for training in ({"failure": 0.0}, {"failure": 1e-12}, {"participation": 1.0}):
        config = trials()[0].config.model_copy(update=training)
        assert same(plain, record(METHODS.build(name), replace(trials()[0], config=config))), training


def test_who_fails_sends_and_gets_nothing_and_keeps_its_model() -> None:
    models: list[torch.Tensor] = []

    def wrap(simulation: Any, step: Any) -> Any:
        def server(own: Any, uploads: Any) -> Any:
            assert len(next(iter(uploads["model"].values()))) == len(own.participants)
            assert float(own.weights.sum()) == pytest.approx(1)
            return step.server(own, uploads)

        before = simulation.round

        def watched(phase: Any, number: int) -> None:
            before(phase, number)
            (cohort,) = simulation.client_batches
            models.append(torch.cat([value.flatten(1) for value in cohort.params.values()], 1).clone())

        if not models and number_of(simulation) == 0:
            simulation.round = watched
        return replace(step, server=server)

    def number_of(simulation: Any) -> int:
        return int("round" in vars(simulation))

    working = fates()
    assert any(len(each) < CLIENTS for each in working)
    assert all(working), "the seed of this test leaves someone in every round"
    found = record(METHODS.build("fedavg"), trial(failure=FAILURE), wrap=wrap)
    for who, (_, up, down) in zip(working, found.traffic, strict=True):
        assert [client for client in range(CLIENTS) if up[client]] == who
        assert [client for client in range(CLIENTS) if down[client]] == who
    assert len(models) >= ROUNDS - 1
    for who, before, after in zip(working[-len(models) + 1 :], models, models[1:], strict=False):
        kept = {client for client in range(CLIENTS) if torch.equal(before[client], after[client])}
        assert kept == set(range(CLIENTS)) - set(who)


def test_a_round_in_which_everyone_fails_changes_nothing() -> None:
    config = trial(failure=0.999999).config
    outcome = train(trials()[0].federation, METHODS.build("fedavg"), trials()[0].backbones, config, 0)
    assert outcome.rounds == ROUNDS
    assert (outcome.upload_bytes, outcome.optimiser_steps) == (0, 0)
    assert len(set(outcome.history["score"])) == 1


class LeavesTheNumbers(FedAvg):
    """FedAvg whose server sends nan from round 3 on."""

    def aggregate(self, server: Server, models: Params) -> Params:
        return {
            name: value * (torch.nan if server.round >= 3 else 1)
            for name, value in super().aggregate(server, models).items()
        }


def test_a_run_that_diverges_keeps_the_best_round_before() -> None:
    at = trial()
    found = train(at.federation, LeavesTheNumbers(), at.backbones, at.config, 0)
    short = train(at.federation, METHODS.build("fedavg"), at.backbones, at.config.model_copy(update={"rounds": 2}), 0)
    assert (found.score, found.val, found.best_round, found.rounds) == (short.score, short.val, short.best_round, 2)
    assert (found.upload_bytes, found.download_bytes) == (short.upload_bytes, short.download_bytes)
    assert f"not finite after round 3: round {short.best_round} is scored, the best before" in found.notes[-1]
    last = at.config.model_copy(update={"select_by": "last"})
    with pytest.raises(Diverged, match="not finite after round 3"):
        train(at.federation, LeavesTheNumbers(), at.backbones, last, 0)
