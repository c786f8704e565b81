"""FedTAD against its formulas in slow loops over dense matrices, with the optimiser by hand."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine import BACKBONES, METHODS, Facts
from fglbench.methods.fedtad import nearest

from .formulas import Model, adjacency, generated, joined, normal
from .rounds import Make, close, start

GCN: dict[str, Any] = {"kinds": ["gcn"], "backbone": {"dropout": 0.0}}


def test_reliability_equals_loops_over_nodes_and_walks(federation: Make) -> None:
    """Return probabilities by powers of a dense matrix, cosines by pairs."""
    world = federation((13, 7, 10), without_train=(1,))
    reliability = start(world, "fedtad", {"walks": 4}, **GCN).simulation.server.state["reliability"]
    for k, client in enumerate(world.clients):
        graph, x, a = client.graph, client.feat.to_dense(), adjacency(client.graph)
        looped = a + torch.eye(len(a))
        step = looped / looped.sum(1, keepdim=True)
        h = torch.cat([x, torch.stack([torch.linalg.matrix_power(step, p).diagonal() for p in (1, 2, 3, 4)], 1)], 1)
        expected = torch.zeros(3)
        for i in graph.ndata["train_mask"].nonzero().flatten().tolist():
            near = a[i].nonzero().flatten().tolist()
            cosines = [float(torch.dot(h[i], h[j]) / (h[i].norm() * h[j].norm())) for j in near]
            expected[graph.ndata["label"][i]] += (1 + sum(cosines)) / (1 + len(near))
        torch.testing.assert_close(reliability[k], expected, rtol=1e-5, atol=1e-5)
    assert not reliability[1].any() and reliability[0].any()


class Adam:
    """Adam with decay added to the gradient, written out."""

    def __init__(self, lr: float, decay: float) -> None:
        self.lr, self.decay, self.count = lr, decay, 0
        self.mean: Model = {}
        self.square: Model = {}

    def step(self, params: Model, grads: Model) -> Model:
        self.count += 1
        out = {}
        for n, v in params.items():
            g = grads[n] + self.decay * v
            self.mean[n] = 0.1 * g + 0.9 * self.mean.get(n, torch.zeros_like(g))
            self.square[n] = 0.001 * g**2 + 0.999 * self.square.get(n, torch.zeros_like(g))
            mean, square = self.mean[n] / (1 - 0.9**self.count), self.square[n] / (1 - 0.999**self.count)
            out[n] = v - self.lr * mean / (square.sqrt() + 1e-8)
        return out


def gcn(a: torch.Tensor, x: torch.Tensor, w: Model, on: str) -> torch.Tensor:
    h = torch.relu(a @ x @ w["0.weight"] + w["0.bias"]) if on == "features" else x
    return a @ h @ w["1.weight"] + w["1.bias"]


def differentiated(loss: torch.Tensor, leaf: Model) -> Model:
    return dict(zip(leaf, torch.autograd.grad(loss, list(leaf.values())), strict=True))


@pytest.mark.parametrize("on", ["features", "hidden"])
def test_two_rounds_at_the_server_equal_slow_loops(on: str, federation: Make) -> None:
    world, count, label = federation((13, 7, 10)), 11, [0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2]
    params = {
        "generated": count, "neighbours": 3, "server_epochs": 2, "steps": 2, "lam_semantic": 0.7, "lam_diversity": 0.4,
        "lr_generator": 0.01, "lr_server": 0.02, "on": on,
    }  # fmt: skip
    run = start(world, "fedtad", params, weight_decay=1e-3, **GCN)
    server = run.simulation.server
    draws = deepcopy(server.generator)
    g = {n: v.detach().clone() for n, v in server.state["generator"].items()}
    of_generator, of_student = Adam(0.01, 1e-3), Adam(0.02, 1e-3)
    share = server.state["reliability"] / server.state["reliability"].sum(0)
    sizes = [client.graph.num_nodes() for client in world.clients]
    for number in (1, 2):
        up = run.round(number)["model"]
        teachers = [{n: v[k] for n, v in up.items()} for k in range(3)]
        theta = {n: sum(s / sum(sizes) * t[n] for s, t in zip(sizes, teachers, strict=True)) for n in up}

        def apart(mine: torch.Tensor, taught: torch.Tensor, k: int) -> torch.Tensor:
            return sum(
                share[k, c]
                * torch.stack([(mine[i] - taught[i]).abs().mean() for i in range(count) if label[i] == c]).mean()
                for c in range(3)
            )

        for _ in range(2):
            z = torch.from_numpy(draws.standard_normal((count, 32), dtype="float32"))
            leaf = {n: v.clone().requires_grad_(True) for n, v in g.items()}
            x = generated(leaf, z, label)
            a = normal(joined(x, 3) + torch.eye(len(x)))
            loss = torch.zeros(())
            pairs = [(i, j) for i in range(count) for j in range(count)]
            far = [((z[i] - z[j]) ** 2).mean() * (x[i] - x[j]).abs().mean() for i, j in pairs]
            for k, teacher in enumerate(teachers):
                taught = gcn(a, x, teacher, on)
                for c in range(3):
                    rows = [i for i in range(count) if label[i] == c]
                    loss = loss + 0.7 * share[k, c] * F.cross_entropy(taught[rows], torch.tensor([c] * len(rows)))
                loss = loss + 0.4 * torch.exp(-sum(far) / len(far)) - apart(gcn(a, x, theta, on), taught.detach(), k)
            g = of_generator.step(g, differentiated(loss, leaf))
            x = generated(g, z, label)
            a = normal(joined(x, 3) + torch.eye(len(x)))
            for _ in range(2):
                leaf = {n: v.clone().requires_grad_(True) for n, v in theta.items()}
                loss = sum(apart(gcn(a, x, leaf, on), gcn(a, x, t, on), k) for k, t in enumerate(teachers))
                used = {n: v for n, v in leaf.items() if on == "features" or n.startswith("1.")}
                theta |= of_student.step({n: theta[n] for n in used}, differentiated(loss, used))
        close(server.state["model"], theta, rtol=1e-4)
        close(server.state["generator"], g, rtol=1e-4)


def test_a_model_of_one_layer_has_no_hidden_inputs_to_generate(federation: Make) -> None:
    facts, method = Facts.of(federation((6, 7))), METHODS.build("fedtad", {"on": "hidden"})
    one, two = BACKBONES.build("sgc"), BACKBONES.build("gcn")
    assert "it is the only one" in (method.skip(facts, [one]) or "")
    assert method.skip(facts, [two]) is method.skip(facts, [BACKBONES.build("sgc", {"linear_head": True})]) is None


def test_nearest_edges_are_symmetric_without_self_loops() -> None:
    edge = nearest(torch.randn(20, 4, generator=torch.Generator().manual_seed(0)), 3)
    pairs = {(u, v) for u, v in edge.T.tolist()}
    assert len(pairs) == edge.shape[1] and all((v, u) in pairs and u != v for u, v in pairs)
    assert all(sum(u == i for u, _ in pairs) >= 2 for i in range(20))
