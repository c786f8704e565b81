"""Clients that straggle or fail: draws by hand, nothing is sent or received, all other results are unchanged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from fglbench.benchmark.contract.recording import record
from fglbench.benchmark.contract.trial import Trial, trials
from fglbench.benchmark.engine import METHODS, ClientBatch, Diverged, Params, Server, Skip, TrainConfig, Tree, stream
from fglbench.benchmark.engine.train import set_up, train
from fglbench.methods.fedavg import FedAvg

NODES, OVERLAP, SETS, GRAPHS = 0, 2, 3, 4  # places of trials with one architecture
EPOCHS, ROUNDS, SHARE = 3, 4, 0.6


def trial(place: int = NODES, **training: Any) -> Trial:
    base = trials()[place]
    return replace(base, config=base.config.model_copy(update={"rounds": ROUNDS, "local_epochs": EPOCHS, **training}))


def epochs_per_round(clients: int, share: float = SHARE, seed: int = 0) -> list[list[int]]:
    """Each client's epochs in each round, drawn as documented: who is late, and its number of epochs."""
    draw, drawn = stream(seed, "straggle"), []
    for _ in range(ROUNDS):
        late, fewer = draw.random(clients) < share, draw.integers(1, EPOCHS + 1, clients)
        drawn.append([int(n) if slow else EPOCHS for slow, n in zip(late, fewer, strict=True)])
    return drawn


def prepared(place: int, name: str, **training: Any) -> ClientBatch:
    """A client batch of all clients with their first models."""
    setting = trial(place, **training)
    simulation, _ = set_up(
        setting.federation, METHODS.build(name), setting.backbones, setting.config, 0, len(setting.federation.clients)
    )
    (clients,) = simulation.client_batches
    clients.load({k: v.expand(len(clients), *v.shape) for k, v in simulation.server.initial_model().items()})
    clients.received = {"model": dict(clients.params)}
    return clients


@pytest.mark.parametrize(("place", "name"), [(NODES, "fedavg"), (OVERLAP, "fedavg"), (SETS, "infograph-fedavg"),
                                             (GRAPHS, "fedavg")])  # fmt: skip
def test_a_straggler_has_the_model_of_its_last_epoch(place: int, name: str) -> None:
    """With dropout, minibatches and running statistics: a straggler has the state of that epoch."""
    method = METHODS.build(name)
    many, pace = len(trial(place).federation.clients), [1, 3, 2, 1]
    clients = prepared(place, name)
    clients.epochs = tuple(pace[:many])
    clients.fit(method.local_loss)
    for epochs in (1, 2, 3):
        stopped = prepared(place, name)
        stopped.fit(method.local_loss, epochs)
        for key, value in stopped.params.items():
            for k in (k for k in range(many) if pace[k] == epochs):
                torch.testing.assert_close(clients.params[key][k], value[k], rtol=1e-5, atol=1e-7, msg=f"{key} {k}")


@pytest.mark.parametrize("place", [NODES, OVERLAP, GRAPHS])
def test_results_do_not_depend_on_client_batches(place: int) -> None:
    whole, single = (record(METHODS.build("fedavg"), trial(place, straggle=SHARE), clients_per_batch=k) for k in (4, 1))
    alone = {(name, client): value for name, client, value in single.values}
    for name, client, value in whole.values:
        torch.testing.assert_close(value, alone[name, client], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("place", [NODES, GRAPHS])
def test_scaffold_divides_by_the_steps_that_a_client_took(place: int) -> None:
    """Round 1, all controls 0: c_k' = (x - y_k) / (steps lr); steps are minibatches per epoch times epochs."""
    setting = trial(place, straggle=SHARE)
    recording = record(METHODS.build("scaffold", {"lr": 0.05}), setting)
    first = {(name, k): value for name, k, value in recording.uploads if " round 1," in name}
    clients = prepared(place, "fedavg")
    for k, epochs in enumerate(epochs_per_round(len(clients))[0]):
        steps = epochs * _steps(clients, k)
        pairs = [(name, value) for (name, of), value in first.items() if of == k and "control" in name]
        assert pairs
        for name, control in pairs:
            moved = first[name.replace("control", "model"), k]
            torch.testing.assert_close(control, -moved / (steps * 0.05), rtol=1e-4, atol=1e-6)


def _steps(clients: Any, client: int) -> int:
    """Minibatches of 8 training graphs, a last single graph joined to the one before; one step on nodes."""
    if not hasattr(clients, "stacked"):
        return 1
    count = int(clients.members[client].masks["train"].sum())
    return max(1, -(-count // 8) - (count % 8 == 1 and count > 1))


def test_steps_are_counted_as_they_are_taken() -> None:
    setting = trial(straggle=SHARE)
    outcome = train(setting.federation, METHODS.build("fedavg"), setting.backbones, setting.config, 0)
    assert outcome.optimiser_steps == np.array(epochs_per_round(4)).sum(0).max()
    assert outcome.budget_steps == ROUNDS * EPOCHS


def test_straggling_needs_two_local_epochs() -> None:
    with pytest.raises(Skip, match="at least one local epoch"):
        record(METHODS.build("fedavg"), trial(straggle=0.5, local_epochs=1))


class OwnLoop(FedAvg):
    """Takes its step itself."""

    def client(self, clients: ClientBatch) -> Tree:
        clients.load(clients.received["model"])
        clients.optimiser().step(clients.params, {n: torch.ones_like(v) for n, v in clients.params.items()})
        return {"model": clients.params}


def test_straggling_is_skipped_if_steps_are_outside_of_fit() -> None:
    record(OwnLoop(), trial())
    with pytest.raises(Skip, match=r"outside of `ClientBatch\.fit`, where no client can straggle"):
        record(OwnLoop(), trial(straggle=0.5))


CLIENTS, ROUNDS_FAILURE, FAILURE = 4, 5, 0.5


def trial_failure(**training: Any) -> Trial:
    return replace(trials()[0], config=TrainConfig(rounds=ROUNDS_FAILURE, local_epochs=1, **training))


def working_clients_per_round(seed: int = 0) -> list[list[int]]:
    """The working clients of each round, drawn as documented: one number per client and round."""
    draw = stream(seed, "failure")
    return [
        [k for k, draw_of_client in enumerate(draw.random(CLIENTS)) if draw_of_client >= FAILURE]
        for _ in range(ROUNDS_FAILURE)
    ]


def test_failed_clients_send_and_receive_nothing_and_keep_their_models() -> None:
    trial = trial_failure(failure=FAILURE)
    simulation, _ = set_up(trial.federation, METHODS.build("fedavg"), trial.backbones, trial.config, 0)
    (clients,), (phase,) = simulation.client_batches, simulation.method.phases(simulation.config)
    working = working_clients_per_round()
    assert any(len(each) < CLIENTS for each in working)
    assert all(working), "the seed of this test leaves someone in every round"
    for number, expected in enumerate(working, 1):
        up, down = list(simulation.upload_bytes), list(simulation.download_bytes)
        before = {name: value.clone() for name, value in clients.params.items()}
        simulation.round(phase, number)
        assert [k for k in range(CLIENTS) if simulation.upload_bytes[k] > up[k]] == expected
        assert [k for k in range(CLIENTS) if simulation.download_bytes[k] > down[k]] == expected
        assert simulation.server.participants == expected
        assert float(simulation.server.weights.sum()) == pytest.approx(1)
        if number > 1:  # in the first round, all have the initial model
            kept = [
                k for k in range(CLIENTS) if all(torch.equal(clients.params[n][k], v[k]) for n, v in before.items())
            ]
            assert sorted(kept + expected) == list(range(CLIENTS))


def test_a_round_without_working_clients_changes_nothing() -> None:
    config = trial_failure(failure=0.999999).config
    outcome = train(trials()[0].federation, METHODS.build("fedavg"), trials()[0].backbones, config, 0)
    assert outcome.rounds == ROUNDS_FAILURE
    assert (outcome.upload_bytes, outcome.optimiser_steps) == (0, 0)
    assert len(set(outcome.history["score"])) == 1
    assert "no client trained in any round: training.failure" in outcome.notes


class Divergent(FedAvg):
    """FedAvg whose server sends nan from round 3 on."""

    def aggregate(self, server: Server, models: Params) -> Params:
        return {
            name: value * (torch.nan if server.round >= 3 else 1)
            for name, value in super().aggregate(server, models).items()
        }


def test_a_run_that_diverges_keeps_the_best_round_before() -> None:
    setting = trial_failure()
    outcome, short = (
        train(setting.federation, method, setting.backbones, setting.config.model_copy(update={"rounds": rounds}), 0)
        for method, rounds in ((Divergent(), ROUNDS_FAILURE), (METHODS.build("fedavg"), 2))
    )
    for name in ("score", "val", "best_round", "rounds", "upload_bytes", "download_bytes"):
        assert getattr(outcome, name) == getattr(short, name)
    assert f"not finite after round 3: round {short.best_round} is scored, the best before" in outcome.notes[-1]
    last = setting.config.model_copy(update={"select_by": "last"})
    with pytest.raises(Diverged, match="not finite after round 3"):
        train(setting.federation, Divergent(), setting.backbones, last, 0)
