"""FedGKC: both losses term by term and their separate gradients, knowledge strength, weights, and its ablations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.batch import collate
from fglbench.methods import METHODS
from fglbench.methods.fedgkc import FedGKC, node_strength
from fglbench.methods.parts.contrast import augment
from fglbench.registry import UserError

from .formulas import divergence, near_of
from .rounds import Make, close, start

SIZES = (13, 7, 10, 9, 8)


@pytest.mark.parametrize(("mean", "nodes"), [(False, "all"), (True, "all"), (False, "train")])
def test_losses_and_gradients(mean: bool, nodes: str, federation: Make, monkeypatch: Any) -> None:
    params = {"alpha": 0.5, "beta": 0.3, "neighbour_mean": mean, "nodes": nodes}
    run = start(federation(SIZES), "fedgkc", params, backbone={"dropout": 0})
    run.round(1)
    clients, method = run.simulation.client_batches[0], run.method
    rates = {"weak": (0.3, 0.3), "strong": (0.8, 0.5)}
    assert {strength: method.rates(strength) for strength in rates} == rates
    views = {
        strength: tuple(
            augment(data, clients.streams.select(group.positions), strength, *rates[strength])
            for group, data in zip(clients.network.groups, clients.data, strict=True)
        )
        for strength in rates
    }
    monkeypatch.setattr(FedGKC, "view", lambda self, clients, strength, purpose: views[strength])
    for value in clients.params.values():
        value.requires_grad_(True)
    (private_pass, shared_pass), batch, near = method.pair(clients), clients.batch, near_of(clients.batch)
    weak, strong = (clients.network.forward(clients.params, views[s]) for s in ("weak", "strong"))
    private, copilot = [], []
    for k in range(5):
        rows = list(range(batch.offsets[k], batch.offsets[k + 1]))
        train = [i for i in rows if batch.masks["train"][i]]
        rows = rows if nodes == "all" else train

        def average(term: Callable[[int], torch.Tensor], over: list[int]) -> torch.Tensor:
            return sum((term(i) for i in over), torch.zeros(())) / len(over)

        def around(z: torch.Tensor, e: torch.Tensor, i: int) -> torch.Tensor:
            total = sum((divergence(z[j], e[i]) for j in [i, *near[i]]), torch.zeros(()))
            return total / (1 + len(near[i])) if mean else total

        def ce(z: torch.Tensor, over: list[int]) -> torch.Tensor:
            return sum((-F.log_softmax(z[i], 0)[batch.label[i]] for i in over), torch.zeros(())) / len(over)

        private.append(
            0.5 * ce(private_pass.logits, train)
            + 0.3 * average(lambda i: around(shared_pass.embedding, private_pass.embedding, i), rows)
            + 0.2 * average(lambda i: divergence(shared_pass.logits[i], private_pass.logits[i]), rows)
            + average(lambda i: (weak.embedding[i] - strong.embedding[i]).square().sum() / 8, rows)
            + average(lambda i: divergence(weak.logits[i], strong.logits[i]), rows)
        )
        copilot.append(
            0.5 * ce(shared_pass.logits, train)
            + 0.3 * average(lambda i: around(private_pass.embedding, shared_pass.embedding, i), rows)
            + 0.2 * average(lambda i: divergence(private_pass.logits[i], shared_pass.logits[i]), rows)
        )
    mine = method.local_loss(clients)
    torch.testing.assert_close(mine, torch.stack(private) + torch.stack(copilot))
    for shared, loss in ((False, private), (True, copilot)):
        trained = [value for name, value in sorted(clients.params.items()) if name.startswith("shared.") == shared]
        grads = torch.autograd.grad(mine.sum(), trained, retain_graph=True)
        expected = torch.autograd.grad(torch.stack(loss).sum(), trained, retain_graph=True)
        torch.testing.assert_close(grads, expected, rtol=1e-5, atol=1e-6)
        assert any(grad.abs().max() > 0 for grad in grads)


def test_node_strength(federation: Make) -> None:
    batch = collate(federation().clients)
    near = near_of(batch)
    p = torch.randn(len(near), 4, generator=torch.Generator().manual_seed(0)).softmax(1)
    mine = node_strength(p, batch, 0.1)
    for i, linked in enumerate(near):
        top = max(p[i].tolist())
        rest = sum(p[i].tolist()) - top
        agreement = (
            sum(float(p[i] @ p[j] / (p[i].norm() * p[j].norm())) for j in linked) / len(linked) if linked else 0.0
        )
        assert float(mine[i]) == pytest.approx(top + (top - rest) / 3 - 0.1 * agreement, rel=1e-5)
    assert any(not linked for linked in near)


def test_aggregation_weights(federation: Make) -> None:
    world = federation(SIZES)
    run = start(world, "fedgkc")
    upload = run.round(1)
    clients = run.simulation.client_batches[0]
    p = run.method.shared_forward(clients, training=False).logits.softmax(1)
    each = node_strength(p, clients.batch, 0.1)
    strength = [float(each[clients.batch.offsets[k] : clients.batch.offsets[k + 1]].mean()) for k in range(5)]
    torch.testing.assert_close(upload["strength"], torch.tensor(strength))
    assert upload["nodes"].tolist() == list(SIZES)
    weights = [(n / sum(SIZES) + s / sum(strength)) / 2 for n, s in zip(SIZES, strength, strict=True)]
    for name, value in run.simulation.server.state["model"].items():
        mean = sum(w * params for w, params in zip(weights, upload["model"][name], strict=True))
        torch.testing.assert_close(value, mean)


def test_a_strength_below_zero_counts_as_almost_none(federation: Make) -> None:
    run = start(federation(SIZES), "fedgkc")
    upload = {"nodes": torch.tensor(SIZES).float(), "strength": torch.tensor([0.3, -0.2, 0.1, -5.0, 0.0])}
    weights = run.method.weights(run.simulation.server, upload)
    shares = torch.tensor([n / sum(SIZES) for n in SIZES])
    torch.testing.assert_close(weights, (shares + torch.tensor([0.75, 0, 0.25, 0, 0])) / 2, rtol=0, atol=1e-5)
    torch.testing.assert_close(weights.sum(), torch.tensor(1.0))


def test_copilot_trains_first(federation: Make) -> None:
    """SGD by hand: two epochs of the copilot with a fixed private model, then two of the private model."""
    world = federation(SIZES)
    options: dict[str, Any] = {"optimiser": "sgd", "lr": 0.2, "weight_decay": 0.0, "backbone": {"dropout": 0.0}}
    params = {"smkd": False, "kama": False, "order": "copilot first"}
    run, other = start(world, "fedgkc", params, **options), start(world, "fedgkc", params, **options)
    clients, method = other.simulation.client_batches[0], other.method
    theta = {name: value.clone() for name, value in clients.params.items()}
    for shared in (True, False):
        names = [name for name in theta if name.startswith("shared.") == shared]
        for _ in range(2):
            leaf = {name: value.clone().requires_grad_(name in names) for name, value in theta.items()}
            clients.params = leaf
            private, copilot = method.pair(clients)
            trained, fixed = (copilot.logits, private.logits) if shared else (private.logits, copilot.logits)
            loss = torch.zeros(())
            for k in range(5):
                rows = range(clients.batch.offsets[k], clients.batch.offsets[k + 1])
                train = [i for i in rows if clients.batch.masks["train"][i]]
                task = sum(-F.log_softmax(trained[i], 0)[clients.batch.label[i]] for i in train) / len(train)
                loss = loss + 0.6 * task + 0.4 * sum(divergence(fixed[i], trained[i]) for i in rows) / len(rows)
            grads = torch.autograd.grad(loss, [leaf[name] for name in names], allow_unused=True)
            for name, grad in zip(names, grads, strict=True):
                theta[name] = theta[name] - (0 if grad is None else 0.2 * grad)
    run.round(1)
    close(run.simulation.client_batches[0].params, theta, rtol=1e-4, atol=1e-6)


def test_dropout_of_the_views(federation: Make) -> None:
    """Two views are equal without augmentation and dropout, and differ with dropout."""
    still = {"weak_edges": 0.0, "weak_features": 0.0, "strong_edges": 0.0, "strong_features": 0.0}
    apart = {}
    for dropout in (True, False):
        run = start(federation(SIZES), "fedgkc", {**still, "view_dropout": dropout}, backbone={"dropout": 0.5})
        run.round(1)
        apart[dropout] = run.method._own_views(run.simulation.client_batches[0]).abs().max()
    assert apart[False] < 1e-6 < apart[True]


def test_weights_above_one_are_refused() -> None:
    with pytest.raises(UserError, match=r"alpha \+ beta is 1\.1"):
        METHODS.build("fedgkc", {"alpha": 0.9, "beta": 0.2})
