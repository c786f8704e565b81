"""FedVN against slow loops of its two networks and its rounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dgl
import pytest
import torch
import torch.nn.functional as F

from fglbench.methods.fedvn import FIXED

from .formulas import Model
from .rounds import PLAIN, Make, close, start

H, L, M, RATE = 4, 2, 3, 0.02
PARAMS: dict[str, Any] = {"virtual": M, "spread_weight": 0.7, "link_weight": 1.3, "temperature": 0.4}
TRAINING = PLAIN | {"kinds": ["gin"], "backbone": {"hidden": H, "layers": L, "dropout": 0.0}}


class Slow:
    """Both networks on graphs of one client; BatchNorm over all their rows, or by running statistics."""

    def __init__(self, p: Model, graphs: list[dgl.DGLGraph], of_batch: bool) -> None:
        self.p, self.graphs, self.of_batch = p, graphs, of_batch
        self.seen: Model = {}

    def linear(self, name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ self.p[f"{name}.weight"] + self.p[f"{name}.bias"]

    def norm(self, name: str, parts: list[torch.Tensor]) -> list[torch.Tensor]:
        every = torch.cat(parts)
        mean, var = self.p[f"{name}.running_mean"], self.p[f"{name}.running_var"]
        if self.of_batch:
            mean, var = every.mean(0), every.var(0, unbiased=False)
            self.seen |= {f"{name}.running_mean": mean.detach(), f"{name}.running_var": every.detach().var(0)}
        return [(x - mean) / (var + 1e-5).sqrt() * self.p[f"{name}.weight"] + self.p[f"{name}.bias"] for x in parts]

    def layer(self, part: str, parts: list[torch.Tensor], last: bool) -> list[torch.Tensor]:
        summed = []
        for graph, h in zip(self.graphs, parts, strict=True):
            rows = list(h)
            for source, target in zip(*(end.tolist() for end in graph.edges()), strict=True):
                rows[target] = rows[target] + h[source]
            summed.append(torch.stack(rows))
        z = [x.relu() for x in self.norm(f"{part}.inner.norm", [self.linear(f"{part}.inner", x) for x in summed])]
        z = self.norm(f"{part}.norm", [self.linear(f"{part}.outer", x) for x in z])
        return z if last else [x.relu() for x in z]

    def links(self) -> list[torch.Tensor]:
        h = [self.linear("generator.input", graph.ndata["feat"]) for graph in self.graphs]
        for i in range(L):
            h = self.layer(f"generator.{i}", h, i == L - 1)
        return [torch.sigmoid(self.linear("generator.head", self.linear("generator.post", x).relu())) for x in h]

    def logits(self, links: list[torch.Tensor]) -> torch.Tensor:
        h = [self.linear("input", graph.ndata["feat"]) for graph in self.graphs]
        virtual = [self.p["virtual"] for _ in self.graphs]
        for i in range(L):
            seen = h
            h = [
                torch.stack([row + sum(s[m] * v[m] for m in range(M)) for row, s in zip(x, weights, strict=True)])
                for x, weights, v in zip(h, links, virtual, strict=True)
            ]
            h = self.layer(str(i), h, i == L - 1)
            if i == L - 1:
                break
            gathered = [
                torch.stack([v[m] + sum(weights[j, m] * x[j] for j in range(len(x))) for m in range(M)])
                for x, weights, v in zip(seen, links, virtual, strict=True)
            ]
            for name in (f"{i}.virtual.inner", f"{i}.virtual.outer"):
                flat = [self.linear(name, t).reshape(1, -1) for t in gathered]
                gathered = [x.relu().view(M, -1) for x in self.norm(f"{name}.norm", flat)]
            virtual = gathered
        mean = torch.stack([x.mean(0) for x in h])
        return self.linear("head", self.linear("post", mean).relu())


def descended(theta: Model, loss: Callable[[Model], torch.Tensor], trained: Callable[[str], bool]) -> Model:
    """One step of SGD on some of the parameters."""
    leaf = {n: v.clone().requires_grad_(trained(n) and "running" not in n) for n, v in theta.items()}
    names = [n for n, v in leaf.items() if v.requires_grad]
    grads = torch.autograd.grad(loss(leaf), [leaf[n] for n in names], allow_unused=True)
    return theta | {n: theta[n] - RATE * g for n, g in zip(names, grads, strict=True) if g is not None}


def followed(theta: Model, seen: Model) -> Model:
    """The running statistics after a batch."""
    return theta | {n: 0.9 * theta[n] + 0.1 * v for n, v in seen.items()}


def generates(name: str) -> bool:
    return name.startswith("generator.")


@pytest.mark.parametrize("rival", ["uniform", "mean"])
def test_rounds_equal_slow_loops(rival: str, labelled_sets: Make) -> None:
    """Three rounds of full batches: SGD by hand on the generator, then on classifier and virtual nodes."""
    world = labelled_sets((9, 6, 8))
    run = start(world, "fedvn", PARAMS | {"rival": rival}, **TRAINING, lr=RATE)
    model = run.simulation.server.initial_model()
    models, links = [dict(model) for _ in range(3)], [torch.full((M,), 0.5) for _ in range(3)]
    rivals = [torch.full((M,), 1 / M)]
    for number in (1, 2, 3):
        uploads = run.round(number)
        for k, client in enumerate(world.clients):
            train = client.masks["train"].nonzero().squeeze(1).tolist()
            graphs, label = [client.graphs[i] for i in train], client.label[train]
            kept: dict[str, Any] = {}

            def generator_loss(p: Model, k: int = k, graphs: Any = graphs, label: Any = label, kept: Any = kept) -> Any:
                of, classifier = Slow(p, graphs, True), Slow(p, graphs, True)
                s = of.links()
                total, loss = [x.sum(0) for x in s], F.cross_entropy(classifier.logits(s), label)
                for one in total:
                    near, far = (torch.cosine_similarity(one, x, 0) / 0.4 for x in (links[k], rivals[-1]))
                    loss = loss - 1.3 / len(total) * torch.log(near.exp() / (near.exp() + far.exp()))
                kept |= {"seen": of.seen, "links": torch.stack(total).mean(0).detach()}
                return loss

            def loss(p: Model, graphs: Any = graphs, label: Any = label, kept: Any = kept) -> Any:
                of, v = Slow(p, graphs, True), p["virtual"] - p["virtual"].mean(1, keepdim=True)
                error = F.cross_entropy(of.logits(Slow(p, graphs, False).links()), label)
                kept |= {"seen": of.seen}
                pairs = [F.cosine_similarity(v[a], v[b], 0) ** 2 for a in range(M) for b in range(M)]
                return error + 0.7 * sum(pairs) / M**2

            for _ in range(2):
                models[k] = followed(descended(models[k], generator_loss, generates), kept["seen"])
                links[k] = kept["links"]
            for _ in range(2):
                models[k] = followed(descended(models[k], loss, lambda name: not generates(name)), kept["seen"])
            close(uploads["model"], {n: v for n, v in models[k].items() if not generates(n)}, k, rtol=1e-3)
        for name in model:
            if not generates(name):
                mean = sum(size / 23 * theta[name] for size, theta in zip((9, 6, 8), models, strict=True))
                for theta in models:
                    theta[name] = mean
        if rival == "mean":
            rivals.append(sum(size / 23 * s for size, s in zip((9, 6, 8), links, strict=True)))
    (personal,), (clients,) = run.simulation.personal_models(), run.simulation.client_batches
    scores = run.method.predict(personal, clients.network, clients.data)
    expected = []
    for k, client in enumerate(world.clients):
        close(personal, models[k], k, rtol=1e-3)
        slow = Slow(models[k], client.graphs, False)
        expected.append(slow.logits(slow.links()))
    torch.testing.assert_close(scores, torch.cat(expected), rtol=1e-3, atol=1e-4)


def test_zero_virtual_nodes_have_no_effect_in_one_layer(labelled_sets: Make) -> None:
    """The sums of zero virtual nodes reach other nodes one layer later."""
    for layers in (1, 2):
        run = start(labelled_sets(), "fedvn", PARAMS, **TRAINING | {"backbone": {"hidden": H, "layers": layers}})
        (clients,) = run.simulation.client_batches
        batch, model = clients.batch, clients.network.groups[0].backbone
        empty = clients.params | {"virtual": torch.zeros(3, M, H)}
        links = torch.rand(len(batch.nodes.label), M, generator=torch.Generator().manual_seed(0))
        one, other = (model.classify(empty, batch, s, FIXED).logits for s in (links, 0 * links))
        assert torch.equal(one, other) == (layers == 1)
