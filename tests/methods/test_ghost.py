"""GHOST against slow loops of the generators, the plan and the server."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine import METHODS, Diverged, Skip, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.rng import stream
from fglbench.benchmark.engine.train import train
from fglbench.methods import ghost

from .formulas import Model, gcn, generated, joined, normal
from .rounds import PLAIN, Make, close, start, stepped, tracked

SIZES = (13, 7, 10)
D, H, C, SEED = 12, 8, 3, 5
SGD = PLAIN | {"lr": 0.05}
PARAMS: dict[str, Any] = {
    "epochs": 3,
    "graphs": 2,
    "steps": 2,
    "neighbours": 3,
    "lr_server": 1e-3,
    "lam_retention": 1.0,
}


def proxy_loss(w: Model, z: torch.Tensor, client: Any, p: Any) -> torch.Tensor:
    train = client.graph.ndata["train_mask"].nonzero().squeeze(1).tolist()
    real, label = client.feat.to_dense()[train], client.graph.ndata["label"][train].tolist()
    x, n = generated(w, z, label), len(train)
    loss = torch.zeros(())
    for mine, theirs in zip(x, real, strict=True):
        likely = theirs.softmax(0)
        loss = loss + p.lam_divergence * (likely * (likely.log() - mine.log_softmax(0))).sum() / n
        loss = loss + (1 - mine @ theirs / mine.norm() / theirs.norm()) / n
    a = torch.zeros(n, n)
    for u, v in zip(*(ends.tolist() for ends in client.graph.edges()), strict=True):
        if u in train and v in train:
            a[train.index(v), train.index(u)] = 1
    cost = torch.stack([torch.stack([((r - m) ** 2).sum() for m in x]) for r in real])
    share = ghost.plan(cost.detach().double().numpy(), a.double().numpy(), joined(x, p.neighbours).double().numpy())
    return loss + p.lam_topology * sum(share[i, j] * cost[i, j] for i in range(n) for j in range(n)) / 2


def test_the_round_equals_slow_loops(federation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ghost, "DROPOUT", 0.0)
    world = federation(SIZES)
    run = start(world, "ghost", PARAMS, **SGD)
    (clients,), p = run.simulation.client_batches, run.method
    first = {n: v.clone() for n, v in clients.params.items()}
    model = {n: v.clone() for n, v in run.simulation.server.initial_model().items()}
    uploads = run.round(1)["generator"]
    for k, client in enumerate(world.clients):
        w, draws = {n: v[k] for n, v in first.items()}, stream(SEED, "noise", k)
        for _ in range(3):
            z = torch.from_numpy(draws.standard_normal((int(client.graph.ndata["train_mask"].sum()), 64), np.float32))
            w = tracked(w)
            w = stepped(w, proxy_loss(w, z, client, p), 0.05)
        close(uploads, w, k)
    theta = {n: v.requires_grad_(True) for n, v in model.items()}
    optimiser, draws = torch.optim.Adam(theta.values(), lr=1e-3), stream(SEED, "server")
    before: list[tuple[Model, Model]] = []
    for k, n in enumerate(SIZES):
        for _ in range(2):
            label = sorted(i % C for i in range(n))
            z = torch.from_numpy(draws.standard_normal((n, 64), dtype=np.float32))
            x = generated({name: v[k] for name, v in uploads.items()}, z, label)
            a = joined(x, 3)
            s = normal(a + torch.eye(n))
            h, total = gcn(theta, x, s)[0], torch.zeros(())
            for i, j in a.nonzero().tolist():
                e = (theta["0.weight"] @ h[i]) @ torch.tanh(theta["0.weight"] @ h[j])
                total = total + e**2
            names = ("0.weight", "0.bias")
            c = dict(zip(names, torch.autograd.grad(total, [theta[name] for name in names]), strict=True))
            for _ in range(2):
                loss = F.cross_entropy(gcn(theta, x, s)[1], torch.tensor(label))
                for old, weight in before:
                    for name, importance in weight.items():
                        loss = loss + (importance.abs() * (theta[name] - old[name]) ** 2).sum()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            before.append(({name: v.detach().clone() for name, v in theta.items()}, c))
    close(run.simulation.server.state["model"], theta, rtol=1e-4, atol=1e-4)


def objective(t: Any, cost: np.ndarray, a: np.ndarray, b: np.ndarray) -> float:
    n = range(len(cost))
    pairs = sum((a[i, j] - b[k, m]) ** 2 * t[i, k] * t[j, m] for i in n for j in n for k in n for m in n)
    return float((t * cost).sum() + pairs)


def test_the_plan_goes_down_and_is_a_plan() -> None:
    rng = np.random.default_rng(0)
    for _ in range(5):
        a, b = (np.triu(rng.integers(0, 2, (6, 6)), 1).astype(float) for _ in range(2))
        a, b, cost = a + a.T, b + b.T, rng.random((6, 6))
        values = [objective(ghost.plan(cost, a, b, steps), cost, a, b) for steps in range(6)]
        assert all(later <= earlier + 1e-12 for earlier, later in itertools.pairwise(values))
        plan = ghost.plan(cost, a, b)
        np.testing.assert_allclose([plan.sum(0), plan.sum(1)], 1 / 6)
        assert plan.min() > -1e-12


def test_without_edges_the_plan_is_the_best_assignment() -> None:
    cost, none = np.random.default_rng(1).random((6, 6)), np.zeros((6, 6))
    best = min(sum(cost[i, j] for i, j in enumerate(assignment)) for assignment in itertools.permutations(range(6)))
    assert objective(ghost.plan(cost, none, none), cost, none, none) == pytest.approx(best / 6)


def test_retention_has_no_effect_with_one_graph(federation: Make) -> None:
    models = []
    for weight in (0.0, 100.0):
        run = start(federation((20,)), "ghost", {**PARAMS, "graphs": 1, "lam_retention": weight}, **SGD)
        run.round(1)
        models.append(run.simulation.server.state["model"])
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())


def test_it_spends_at_most_the_epochs_of_all_rounds(federation: Make) -> None:
    for epochs, expected in ((4, 4), (100, 6)):
        run = start(federation(SIZES), "ghost", {**PARAMS, "epochs": epochs}, rounds=3, **SGD)
        run.round(1)
        (clients,) = run.simulation.client_batches
        assert {int(steps) for steps in clients.optimiser().steps["0.weight"]} == {expected}
        assert [phase.rounds for phase in run.method.phases(run.simulation.config)] == [1]


def test_what_it_cannot_do_is_skipped_with_the_reason(federation: Make) -> None:
    def run(backbone: str, epochs: int = 1, **config: Any) -> None:
        method = METHODS.build("ghost", {"epochs": epochs})
        train(federation(SIZES), method, [BACKBONES.build(backbone)], TrainConfig(rounds=1, **config), 0)

    with pytest.raises(Skip, match="one matrix of weights in the first layer"):
        run("sage")
    with pytest.raises(Skip, match="ghost has no personal models"):
        run("gcn", score_model="personal")
    with pytest.raises(Diverged, match="the generated features are not finite"):
        run("gcn", epochs=3, local_epochs=3, optimiser="sgd", lr=1e30)
