"""FedSSP against slow loops of its model and rounds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import dgl
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from .formulas import Model, adjacency
from .rounds import PLAIN, Make, close, start

H, L, HEADS = 4, 2, 2
PARAMS: dict[str, Any] = {"heads": HEADS, "rate": 0.0, "tau": 3.0}
TRAINING = PLAIN | {"kinds": ["gin"], "backbone": {"hidden": H, "layers": L, "dropout": 0.0}}


def linear(p: Model, name: str, x: torch.Tensor) -> torch.Tensor:
    return x @ p[f"{name}.weight"] + p[f"{name}.bias"]


class Slow:
    """The model on graphs of one client; BatchNorm over all their rows, or by given statistics."""

    def __init__(self, p: Model, graphs: list[dgl.DGLGraph], training: bool) -> None:
        self.p, self.graphs, self.training = p, graphs, training
        self.seen: Model = {}

    def norm(self, name: str, parts: list[torch.Tensor]) -> list[torch.Tensor]:
        every = torch.cat(parts)
        mean, var = self.p[f"{name}.running_mean"], self.p[f"{name}.running_var"]
        if self.training:
            mean, var = every.mean(0), every.var(0, unbiased=False)
            self.seen[f"{name}.running_mean"] = mean.detach()
            self.seen[f"{name}.running_var"] = every.detach().var(0)
        return [(x - mean) / (var + 1e-5).sqrt() * self.p[f"{name}.weight"] + self.p[f"{name}.bias"] for x in parts]

    def mapped(self, part: str, parts: list[torch.Tensor], act: Any) -> list[torch.Tensor]:
        for name in (f"{part}.inner", f"{part}.outer"):
            parts = [act(x) for x in self.norm(f"{name}.norm", [linear(self.p, name, x) for x in parts])]
        return parts

    def filters(self, graph: dgl.DGLGraph) -> dict[tuple[int, int], torch.Tensor]:
        """For each edge (target, source) the entries of U diag(g) U^T, eigenvalue by eigenvalue."""
        p, n = self.p, graph.num_nodes()
        a = adjacency(graph, torch.float64)
        values, vectors = np.linalg.eigh((torch.diag(a.sum(1)) - a).numpy())
        u = torch.from_numpy(vectors).float()
        code = torch.zeros(n, H + 1)
        for m, value in enumerate(values.astype(np.float32)):
            angle = [float(np.float32(value)) * 100 * math.exp(-2 * i * math.log(10000) / H) for i in range(H // 2)]
            code[m] = torch.tensor([float(value), *map(math.sin, angle), *map(math.cos, angle)])
        z = linear(p, "eigen", code)
        rows = F.layer_norm(z, (H,), p["attention.norm.weight"], p["attention.norm.bias"])
        q, k, v = (linear(p, f"attention.{name}", rows) for name in ("query", "key", "value"))
        width, mixed = H // HEADS, []
        for head in range(HEADS):
            columns = slice(head * width, (head + 1) * width)
            weight = (q[:, columns] @ k[:, columns].T / math.sqrt(width)).softmax(1)
            mixed.append(weight @ v[:, columns])
        z = z + linear(p, "attention.out", torch.cat(mixed, 1))
        rows = F.layer_norm(z, (H,), p["map.norm.weight"], p["map.norm.bias"])
        z = z + linear(p, "map.outer", F.gelu(linear(p, "map.inner", rows)))
        g = linear(p, "decoder", z)
        return {
            (i, j): sum(u[i, m] * u[j, m] * g[m] for m in range(n))
            for i in range(n) for j in range(n) if a[i, j]
        }  # fmt: skip

    def means(self) -> torch.Tensor:
        p = self.p
        entries = [self.filters(graph) for graph in self.graphs]
        scores = self.mapped("filter", [torch.stack(list(edges.values())) for edges in entries], F.gelu)
        x = [torch.relu(linear(p, "input", graph.ndata["feat"])) for graph in self.graphs]
        for layer in range(L):
            moved = []
            for edges, score, rows in zip(entries, scores, x, strict=True):
                sent, out = F.gelu(linear(p, f"{layer}.pre", rows)), []
                for i in range(len(rows)):
                    place = [e for e, (target, _) in enumerate(edges) if target == i]
                    source = [j for target, j in edges if target == i]
                    out.append(rows[i] + (sent[source] * score[place].softmax(0)).sum(0) if place else rows[i])
                moved.append(torch.stack(out))
            x = [old + new for old, new in zip(moved, self.mapped(str(layer), moved, torch.relu), strict=True)]
        return torch.stack([rows.mean(0) for rows in x])


def test_rounds_equal_slow_loops(labelled_sets: Make) -> None:
    """Three rounds of full batches: SGD by hand; encoders and consensus are averaged, the rest stays local."""
    world, rate = labelled_sets((9, 6, 8)), 0.02
    run = start(world, "fedssp", PARAMS, **TRAINING, lr=rate)
    model = run.simulation.server.initial_model()
    models: list[Model] = [dict(model) for _ in range(3)]
    consensus: torch.Tensor | None = None
    for number in (1, 2, 3):
        uploads, means = run.round(number), []
        for k, client in enumerate(world.clients):
            train = client.masks["train"].nonzero().squeeze(1).tolist()
            graphs, label = [client.graphs[i] for i in train], client.label[train]
            for _ in range(2):
                leaf = {n: v.clone().requires_grad_("running" not in n) for n, v in models[k].items()}
                slow = Slow(leaf, graphs, True)
                r = slow.means()
                shift = leaf["preference"] if consensus is not None else 0 * leaf["preference"].detach()
                loss = F.cross_entropy(linear(leaf, "head", r + shift), label)
                if consensus is not None:
                    loss = loss + 3.0 / 2 * (r.mean(0) - consensus).square().mean()
                names = [n for n, v in leaf.items() if v.requires_grad]
                grads = torch.autograd.grad(loss, [leaf[n] for n in names], allow_unused=True)
                step = {n: models[k][n] - rate * g for n, g in zip(names, grads, strict=True) if g is not None}
                models[k] = models[k] | step | {n: 0.9 * models[k][n] + 0.1 * v for n, v in slow.seen.items()}
            means.append(Slow(models[k], graphs, False).means().mean(0))
            torch.testing.assert_close(uploads["consensus"][k], means[k], rtol=1e-3, atol=1e-5)
        consensus = sum(size / 23 * m for size, m in zip((9, 6, 8), means, strict=True))
        for name in model:
            if name.startswith(("eigen.", "filter.")) and "running" not in name:
                mean = sum(size / 23 * theta[name] for size, theta in zip((9, 6, 8), models, strict=True))
                for theta in models:
                    theta[name] = mean
    (personal,) = run.simulation.personal_models()
    for k in range(3):
        close(personal, models[k], k, rtol=1e-3)
    assert all(float(theta["preference"].abs().max()) > 0 for theta in models)
    (clients,) = run.simulation.client_batches
    scores = run.method.predict(personal, clients.network, clients.data)
    expected = [
        linear(models[k], "head", Slow(models[k], client.graphs, False).means())
        for k, client in enumerate(world.clients)
    ]
    torch.testing.assert_close(scores, torch.cat(expected), rtol=1e-3, atol=1e-4)


def test_preference_can_be_added_in_predictions(labelled_sets: Make) -> None:
    run = start(labelled_sets((9, 6, 8)), "fedssp", PARAMS | {"preference": "always"}, **TRAINING, lr=0.05)
    for number in (1, 2, 3):
        run.round(number)
    (clients,), (personal,) = run.simulation.client_batches, run.simulation.personal_models()
    scores = run.method.predict(personal, clients.network, clients.data)
    plain = clients.network.forward(personal, clients.data).logits
    added = torch.stack(
        [shift @ head for shift, head in zip(personal["preference"], personal["head.weight"], strict=True)]
    )
    torch.testing.assert_close(scores - plain, added[clients.batch.owner], rtol=1e-3, atol=1e-5)


def test_predictions_do_not_depend_on_node_order_or_eigenbasis(labelled_sets: Make) -> None:
    """Cycles, stars and cliques have equal eigenvalues: a new node order changes eigenvectors, but no logits."""
    world = labelled_sets((9, 6, 8))

    def renamed(graph: dgl.DGLGraph) -> dgl.DGLGraph:
        order = torch.from_numpy(np.random.default_rng(1).permutation(graph.num_nodes()))
        return dgl.reorder_graph(graph, "custom", permute_config={"nodes_perm": order}, store_ids=False)

    renamed_clients = [replace(client, graphs=[renamed(graph) for graph in client.graphs]) for client in world.clients]
    logits = []
    for federation in (world, replace(world, clients=renamed_clients)):
        run = start(federation, "fedssp", PARAMS, **TRAINING)
        (stacked,) = run.simulation.client_batches
        logits.append(stacked.forward(training=False).logits)
    assert float(logits[0].std(0).max()) > 1e-3
    torch.testing.assert_close(logits[1], logits[0], rtol=1e-3, atol=1e-4)


def test_training_does_not_depend_on_the_eigenbasis(labelled_sets: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout treats equal eigenvalues differently, so their basis must not be the one that LAPACK returned."""
    eigh, source = np.linalg.eigh, np.random.default_rng(2)

    def rotated(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = eigh(matrix)
        for value in np.unique(values.round(6)):
            equal = np.flatnonzero(abs(values - value) < 1e-5)
            vectors[:, equal] @= np.linalg.qr(source.normal(size=(len(equal), len(equal))))[0]
        return values, vectors

    models = []
    for function in (eigh, rotated):
        monkeypatch.setattr(np.linalg, "eigh", function)
        run = start(labelled_sets((9, 6, 8)), "fedssp", PARAMS | {"rate": 0.5}, **TRAINING)
        run.round(1)
        models.extend(run.simulation.personal_models())
    torch.testing.assert_close(models[1], models[0], rtol=1e-3, atol=1e-5)
