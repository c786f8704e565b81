"""Clients with different features and classes: their first and last layers stay local, only encoders are sent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from fglbench.benchmark.contract.trial import domains_federation
from fglbench.benchmark.engine import Skip, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.method import OWN_LAYERS, at_home, crossing
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.benchmark.engine.train import set_up, train
from fglbench.benchmark.runner.best_round import collect
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS

GIN = BACKBONES.build("gin", {"hidden": 4, "layers": 2, "dropout": 0.0})
ENCODER = 2 * 2 * (4 * 4 + 4)  # scalars: two layers of two maps


def after(rounds: int, name: str, world: Federation | None = None, **config: Any) -> Simulation:
    settings = TrainConfig(**{"rounds": 4, "local_epochs": 1, "batch_size": 8, **config})
    simulation, _ = set_up(world or domains_federation(), METHODS.build(name), [GIN], settings, 3)
    (phase,) = simulation.method.phases(simulation.config)
    for number in range(1, rounds + 1):
        simulation.round(phase, number)
    return simulation


@pytest.mark.parametrize("name", ["fedavg", "fedprox", "fedadam", "moon", "ditto", "gcfl"])
def test_only_encoders_are_sent(name: str) -> None:
    simulation = after(2, name)
    assert simulation.upload_bytes == simulation.download_bytes == [2 * 4 * ENCODER] * 3
    kept = simulation.server.state.get("model") or simulation.server.state["sent"]
    assert not at_home(kept) and set(crossing(simulation.client_batches[0].params)) == set(kept)
    (models,) = simulation.personal_models() or ()
    for n, value in models.items():
        apart = not torch.equal(value[0], value[1])
        assert apart or not n.startswith(OWN_LAYERS), n


@pytest.mark.parametrize(
    ("name", "up", "down"),
    [  # APPLE: three core models and three shares down. FedLUAR: one of four matrices is not sent, and its number is.
        ("apple", 4 * ENCODER, 3 * 4 * ENCODER + 3 * 4),
        ("fedluar", 4 * (ENCODER - 4 * 4), 4 * ENCODER + 8),
        ("pfed1bs", ENCODER // 10 // 8, ENCODER // 10 // 8),  # a tenth of the scalars, one bit each
    ],
)
def test_messages_hold_encoders_only(name: str, up: int, down: int) -> None:
    one, two = after(1, name), after(2, name)
    assert [b - a for a, b in zip(one.upload_bytes, two.upload_bytes, strict=True)] == [up] * 3
    assert [b - a for a, b in zip(one.download_bytes, two.download_bytes, strict=True)] == [down] * 3
    (before,), (models,) = one.personal_models() or (), two.personal_models() or ()
    for n, value in at_home(models).items():
        assert all(not torch.equal(value[k], before[n][k]) for k in range(3)), n
        assert not torch.equal(value[0], value[1])


def test_one_client_of_a_domain_equals_local_training() -> None:
    """What is averaged over one client is that client's, and what stays at home continues where it was."""
    world = domains_federation()
    world = replace(world, clients=world.clients[1:2])
    together, alone = after(3, "fedavg", world), after(3, "local", world)
    for n, value in alone.client_batches[0].params.items():
        torch.testing.assert_close(together.client_batches[0].params[n], value)


def test_an_idle_client_keeps_its_local_layers() -> None:
    simulation = after(0, "fedavg", participation=0.4)  # one of three a round
    (phase,) = simulation.method.phases(simulation.config)
    (clients,) = simulation.client_batches
    before = {n: v.clone() for n, v in at_home(clients.params).items()}
    seen = set()
    for number in range(1, 7):
        simulation.round(phase, number)
        (participant,) = simulation.server.participants
        seen.add(participant)
        for n, value in at_home(clients.params).items():
            for k in range(3):
                moved = not torch.equal(value[k], before[n][k])
                assert k == participant or not moved
        assert any(not torch.equal(at_home(clients.params)[n][participant], before[n][participant]) for n in before)
        (shown,) = simulation.personal_models() or ()
        before = {n: v.clone() for n, v in at_home(clients.params).items()}
        assert all(torch.equal(shown[n], value) for n, value in before.items())
    assert len(seen) > 1


def test_the_servers_encoder_is_scored_between_each_clients_own_layers() -> None:
    simulation, evaluator = set_up(
        domains_federation(), METHODS.build("fedavg"), [GIN], TrainConfig(local_epochs=1, batch_size=8), 3
    )
    (phase,) = simulation.method.phases(simulation.config)
    simulation.round(phase, 1)
    models = simulation.models()
    scored = evaluator.score(models, "global", "local")
    (clients,) = simulation.client_batches
    encoder = {n: v.expand(3, *v.shape) for n, v in simulation.server.state["model"].items()}
    logits = clients.network.forward(at_home(models.personal[0]) | encoder, clients.data).logits
    masks = [client.masks for client in evaluator.original.clients]
    held_out = torch.cat([mask["val"] | mask["test"] for mask in masks])  # other graphs are not computed
    assert torch.equal(scored.predicted, logits.argmax(1)[held_out])
    assert evaluator.score(models, "global", "global") is None and evaluator.score(models, "personal", "union") is None


def test_no_client_is_predicted_a_class_that_it_lacks() -> None:
    simulation = after(1, "fedavg")
    (clients,) = simulation.client_batches
    classes = [int(client.classes) for client in clients.members]
    assert classes == [2, 3, 2]
    torch.manual_seed(0)
    wild = {n: 10 * torch.randn_like(v) for n, v in clients.params.items()}
    logits = clients.network.forward(wild, clients.data).logits
    for k, rows in enumerate(clients.batch.per_client(logits)):
        assert int(rows.argmax(1).max()) < classes[k]
        assert torch.isfinite(rows).all()
        assert (rows[:, classes[k] :] < -1e29).all() and (rows[:, : classes[k]] > -1e29).all()


def test_local_layers_have_no_proximal_term() -> None:
    (clients,) = after(1, "fedprox").client_batches
    far = {n: v + 1 for n, v in clients.params.items()}
    assert clients.sq_distance(far).tolist() == pytest.approx([ENCODER] * 3, rel=1e-4)


def test_scores_on_the_whole_or_union_are_skipped() -> None:
    for place in ("global", "union"):
        with pytest.raises(Skip, match="no whole and no union"):
            train(domains_federation(), METHODS.build("fedavg"), [GIN], TrainConfig(rounds=1, score_on=place), 0)
    kept: dict[str, Any] = {}
    config = TrainConfig(rounds=1, local_epochs=1)
    train(
        domains_federation(),
        METHODS.build("fedavg"),
        [GIN],
        config,
        0,
        on_best=lambda *best: kept.update(collect(*best, 0)),
    )
    assert len(kept["node"]) == 0 and "of their own" in str(kept["note"])


@pytest.mark.parametrize("name", ["scaffold", "feddc", "fedproto", "lg-fedavg"])
def test_methods_that_send_more_than_encoders_are_skipped(name: str) -> None:
    with pytest.raises(Skip, match="different features and classes"):
        train(domains_federation(), METHODS.build(name), [GIN], TrainConfig(rounds=1), 0)
