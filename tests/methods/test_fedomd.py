"""FedOMD against slow loops: pooled moments, moment distance and rounds."""

from __future__ import annotations

from typing import Any

import dgl.nn
import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine.backbone import initial
from fglbench.benchmark.engine.backbones import BACKBONES, Params
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS
from fglbench.methods.fedomd import FedOMD, central_moments, moment_distance, moments_about, pooled

from .rounds import Make, close, start, stepped, tracked


def after(federation: Federation, name: str, params: dict[str, Any], rounds: int = 2, **config: Any) -> Params:
    """The global model after some rounds."""
    run = start(federation, name, params, rounds=rounds, **config)
    for number in range(1, rounds + 1):
        run.round(number)
    model: Params = run.simulation.server.state["model"]
    return model


def client_moments(z: torch.Tensor, centre: torch.Tensor) -> list[torch.Tensor]:
    """E[(Z - centre)^j], j = 2..5, by loops over nodes and units."""
    return [
        torch.stack([sum((row[u] - centre[u]) ** j for row in z) / len(z) for u in range(z.shape[1])])
        for j in range(2, 6)
    ]


def slow_norm(gap: torch.Tensor, norm: str) -> torch.Tensor:
    """||gap||, its square, or its square divided by its length, unit by unit."""
    squares = sum(unit * unit for unit in gap)
    return {"l2": squares**0.5, "squared": squares, "mean": squares / len(gap)}[norm]


def slow_distance(
    z: torch.Tensor, mean: torch.Tensor, moments: list[torch.Tensor], span: float, norm: str = "l2"
) -> torch.Tensor:
    """One layer, one client: 1/s ||E(Z) - M|| + sum_j 1/s^j ||C_j - S_j||, C about the client's mean."""
    client_mean = sum(z) / len(z)
    total = slow_norm(client_mean - mean, norm) / span
    for j, (c, s) in enumerate(zip(client_moments(z, client_mean), moments, strict=True), start=2):
        total = total + slow_norm(c - s, norm) / span**j
    return total


def test_pooled_moments_are_those_of_all_rows_together() -> None:
    z = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)).exp()
    sizes, count = (13, 7, 10), torch.tensor([13.0, 7.0, 10.0])
    mean = pooled(central_moments(z, sizes, 5)[:, 0], count)
    torch.testing.assert_close(mean, z.mean(0))
    together = torch.stack([((z - z.mean(0)) ** j).mean(0) for j in range(2, 6)])
    torch.testing.assert_close(pooled(moments_about(z, sizes, mean.expand(3, 4), 5), count), together)


def test_client_moments_and_their_gradient() -> None:
    z = torch.randn(20, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    sizes = (13, 0, 7)
    moments = central_moments(z, sizes, 5)
    rows = [part for part in z.split(sizes) if len(part)]
    expected = torch.stack(
        [torch.stack([sum(part) / len(part), *client_moments(part, sum(part) / len(part))]) for part in rows]
    )
    torch.testing.assert_close(moments[[0, 2]], expected)
    assert not moments[1].any()
    pull = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    grads = [torch.autograd.grad((value * pull).sum(), z)[0] for value in (moments[[0, 2]], expected)]
    torch.testing.assert_close(*grads)
    assert torch.autograd.gradcheck(lambda rows: central_moments(rows, sizes, 5), z)
    centre = torch.randn(3, 4, dtype=torch.float64)
    about = moments_about(z, sizes, centre, 5)
    torch.testing.assert_close(about[0], torch.stack(client_moments(rows[0], centre[0])).detach())
    assert not about[1].any()


@pytest.mark.parametrize("norm", ["l2", "squared", "mean"])
@pytest.mark.parametrize("span", [1.0, 2.0])
def test_moment_distance_and_its_gradient(span: float, norm: Any) -> None:
    sizes = (13, 7, 10)
    torch.manual_seed(0)
    z = torch.rand(30, 2 * 4, requires_grad=True)  # two layers of width 4
    target = torch.rand(3, 5, 2, 4)
    distance = moment_distance(central_moments(z, sizes, 5).unflatten(2, (2, 4)), target, span, norm)
    expected = torch.stack([
        sum(slow_distance(rows[:, 4 * i : 4 * i + 4], t[0, i], list(t[1:, i]), span, norm) for i in range(2))
        for rows, t in zip(z.split(sizes), target, strict=True)
    ])  # fmt: skip
    torch.testing.assert_close(distance, expected)
    torch.testing.assert_close(*(torch.autograd.grad(value.sum(), z)[0] for value in (distance, expected)))


def test_equal_moments_have_distance_and_gradient_zero() -> None:
    moments = torch.rand(2, 5, 3, 4, requires_grad=True)
    distance = moment_distance(moments, moments.detach().clone())
    distance.sum().backward()
    assert moments.grad is not None
    assert not torch.cat([distance.flatten(), moments.grad.flatten()]).any()


def slow_round(
    federation: Federation, theta: Params, alpha: float, beta: float, bounded: bool, train_only: bool, norm: str
) -> Params:
    """One round with one SGD step of 0.1 per client, on plain convolutions (the model of fedomd-cmd)."""

    def run(client: Any, model: Params) -> tuple[torch.Tensor, list[torch.Tensor]]:
        graph, h, hidden = dgl.add_self_loop(client.graph), client.feat.to_dense(), []
        for i in range(4):
            conv = dgl.nn.GraphConv(*model[f"{i}.weight"].shape, norm="both", weight=False, bias=False)
            h = conv(graph, h, weight=model[f"{i}.weight"]) + model[f"{i}.bias"]
            if i < 3:
                h = torch.relu(h)
                picked = h[client.graph.ndata["train_mask"]] if train_only else h
                hidden.append(torch.tanh(picked) if bounded else picked)
        return h, hidden

    features = [run(client, theta)[1] for client in federation.clients]
    pools = [torch.cat([layers[i] for layers in features]) for i in range(3)]  # all clients' rows together
    mean = [pool.mean(0) for pool in pools]
    moments = [[((pool - pool.mean(0)) ** j).mean(0) for j in range(2, 6)] for pool in pools]
    out = []
    for client in federation.clients:
        model = tracked(theta)
        logits, hidden = run(client, model)
        mask = client.graph.ndata["train_mask"]
        loss = F.cross_entropy(logits[mask], client.graph.ndata["label"][mask])
        for i in (1, 2):
            gap = model[f"{i}.weight"] @ model[f"{i}.weight"].T - torch.eye(8)
            loss = loss + alpha * (gap**2).sum().sqrt()
        for i in range(3):
            loss = loss + beta * slow_distance(hidden[i], mean[i], moments[i], 1.0, norm)
        out.append(stepped(model, loss, 0.1))
    nodes = [client.graph.num_nodes() for client in federation.clients]
    return {name: sum(n / sum(nodes) * params[name] for n, params in zip(nodes, out, strict=True)) for name in theta}


@pytest.mark.parametrize(
    "option",
    [{}, {"bounded": True}, {"train_nodes_only": True}, {"norm": "squared"}, {"norm": "mean"}, {"same_pass": True}],
)
def test_a_round_equals_slow_loops(option: dict[str, Any], federation: Make) -> None:
    world = federation((13, 7, 10))
    params = {"alpha": 0.05, "beta": 0.7, **option}
    epochs = 3 if "same_pass" in option else 1  # same_pass always takes one
    config: dict[str, Any] = {"local_epochs": epochs, "optimiser": "sgd", "lr": 0.1, "weight_decay": 0}
    model = after(world, "fedomd-cmd", params, backbone={"dropout": 0}, **config)
    theta = initial(BACKBONES.build("gcn", {"hidden": 8, "layers": 4}), 5, 12, 3)
    for _ in range(2):
        bounded, train_only = "bounded" in option, "train_nodes_only" in option
        theta = slow_round(world, theta, 0.05, 0.7, bounded, train_only, option.get("norm", "l2"))
    close(model, theta, atol=1e-6)


@pytest.mark.parametrize("same", [True, False])
def test_moments_of_the_training_pass_itself(same: bool, federation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """same_pass decides if the moments have the dropout masks of the step; masks always change per round.

    In the same pass a single client equals its target, so the discrepancy has no gradient.
    """
    seen: list[torch.Tensor] = []
    features = FedOMD.features

    def spy(self: FedOMD, clients: Any, hidden: Any) -> list[torch.Tensor]:
        rows = features(self, clients, hidden)
        seen.append(torch.cat(rows, 1).detach().clone())
        return rows

    monkeypatch.setattr(FedOMD, "features", spy)
    after(federation((13, 7, 10)), "fedomd", {"same_pass": same}, local_epochs=1)
    first, step, later, _ = seen
    assert torch.equal(first, step) is same
    assert not torch.equal(step == 0, later == 0)  # new masks every round
    monkeypatch.undo()
    loose, tight = (
        after(federation((30,)), "fedomd", {"beta": beta, "norm": "squared", "same_pass": same}, local_epochs=1)
        for beta in (1e-9, 10.0)
    )
    pairs = zip(loose.values(), tight.values(), strict=True)
    assert all(torch.allclose(*pair, atol=1e-5) for pair in pairs) is same


def test_ablations_are_fedomd_with_a_weight_of_zero(federation: Make) -> None:
    close(after(federation(), "fedomd-ortho", {}), after(federation(), "fedomd", {"beta": 0}), rtol=0, atol=0)
    assert METHODS.build("fedomd-cmd").params() == {**METHODS.build("fedomd").params(), "alpha": 0}
    # A large weight of the orthogonality loss moves W W^T towards I.
    far, near = (after(federation(), "fedomd-ortho", {"alpha": alpha}, rounds=20)["1.weight"] for alpha in (0.0, 1.0))
    assert torch.linalg.norm(near @ near.T - torch.eye(8)) < torch.linalg.norm(far @ far.T - torch.eye(8))
