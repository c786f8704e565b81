"""FedLoG against slow loops of its generator, losses and server."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine import GraphSAGE
from fglbench.benchmark.engine.rng import stream
from fglbench.datasets.federation import Federation
from fglbench.methods import fedlog

from .formulas import Model, near_of
from .rounds import PLAIN, Make, close, start, stepped, tracked

SIZES, SEED = (13, 30, 10), 5
D, H, C, S = 12, 8, 3, 4
SGD = PLAIN | {"lr": 0.05}
SMALL: dict[str, Any] = {"condensed": S, "generator_epochs": 3, "generator_dropout": 0.0, "lam_norm": 0.3}


def sage(w: Model, h: list[torch.Tensor], near: list[list[int]]) -> torch.Tensor:
    """(n, h) two layers, node by node."""
    for i in range(2):
        self_weight, neighbour = w[f"{i}.weight"].chunk(2, 1)
        mean = [sum((h[u] for u in o), torch.zeros_like(h[0])) / max(len(o), 1) for o in near]
        z = [a @ self_weight + b @ neighbour + w[f"{i}.bias"] for a, b in zip(h, mean, strict=True)]
        h = z if i else [torch.relu(row) for row in z]
    return torch.stack(h)


def pair(w: Model, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return sage(w, [a, b], [[1], [0]])[0]


def likely(w: Model, z: torch.Tensor) -> list[torch.Tensor]:
    """(C,) log-probabilities of both kinds for one embedding."""
    log_probs = []
    for kind in ("head", "tail"):
        q = (z - z.mean()) / (z.var(unbiased=False) + 1e-5) ** 0.5 * w[f"norm.{kind}.scale"] + w[f"norm.{kind}.shift"]
        nodes = [sage(w, [x], [[0]])[0] for x in w[f"condensed.{kind}"]]
        far = [((q - sum(nodes[c * S : c * S + S]) / S) ** 2).sum() for c in range(C)]
        log_probs.append(F.log_softmax(-torch.stack(far), 0))
    return log_probs


def alpha_of(degree: int, threshold: int = 3) -> float:
    return float(1 / (1 + np.exp(-(degree - (threshold + 1)))))


def generated(g: Model, x: torch.Tensor) -> torch.Tensor:
    for i in range(2):
        x = torch.relu(x @ g[f"{i}.weight"] + g[f"{i}.bias"])
    return torch.tanh(x @ g["2.weight"] + g["2.bias"])


def slow_generator(client: Any, k: int, g: Model, epochs: int) -> Model:
    """Client k's generator after some steps of Adam."""
    near, x, label = near_of(client), client.feat.to_dense(), client.graph.ndata["label"]
    train = client.graph.ndata["train_mask"].nonzero().squeeze(1).tolist()
    g = {n: v.clone().requires_grad_(True) for n, v in g.items()}
    optimiser, draws = torch.optim.Adam(g.values(), lr=0.01), stream(SEED, "random networks", k)
    for _ in range(epochs):
        loss = torch.zeros(())
        for v in train:
            mean = sum((x[u] for u in near[v]), torch.zeros(D)) / max(len(near[v]), 1)
            loss = loss + ((generated(g, x[v]) - mean) ** 2).mean() / len(train)
        source = torch.Generator().manual_seed(int(draws.integers(2**63)))
        w: Model = {}
        for i, (n_in, n_out) in enumerate(((D, 2 * H), (2 * H, H))):
            layer = GraphSAGE().init_layer(n_in, n_out, source, hidden=True)
            w |= {f"{i}.{n}": v.requires_grad_(True) for n, v in layer.items()}
        bound = (6 / (H + C)) ** 0.5
        head = torch.Generator().manual_seed(int(draws.integers(2**63)))
        matrix = torch.empty(H, C).uniform_(-bound, bound, generator=head)
        scores = sage(w, list(x), near) @ matrix
        wanted = torch.autograd.grad(F.cross_entropy(scores[train], label[train]), list(w.values()))
        scores = torch.stack([pair(w, x[v], generated(g, x[v])) for v in train]) @ matrix
        got = torch.autograd.grad(F.cross_entropy(scores, label[train]), list(w.values()), create_graph=True)
        for a, b in zip(got, wanted, strict=True):
            loss = loss + 0.05 * ((a - b) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return {n: v.detach() for n, v in g.items()}


def first_generator() -> Model:
    source = torch.Generator().manual_seed(int(stream(SEED, "neighbours").integers(2**63)))
    params = {}
    for i, (n_in, n_out) in enumerate(((D, 256), (256, 512), (512, D))):
        for name, shape in (("weight", (n_in, n_out)), ("bias", (n_out,))):
            params[f"{i}.{name}"] = torch.empty(shape).uniform_(-(n_in**-0.5), n_in**-0.5, generator=source)
    return params


def shares_of(world: Federation) -> torch.Tensor:
    """(K, C) shares of each class over clients."""
    rows = []
    for client in world.clients:
        labels = client.graph.ndata["label"][client.graph.ndata["train_mask"]].tolist()
        rows.append([labels.count(c) / len(labels) for c in range(C)])
    share = torch.tensor(rows)
    return torch.stack([column / column.sum() if column.sum() else column + 1 / 3 for column in share.T]).T


def test_generators_equal_slow_loops(federation: Make) -> None:
    world = federation(SIZES)
    run = start(world, "fedlog", SMALL, **SGD)
    generators = run.simulation.client_batches[0].state["generators"][0]
    client_generators = [slow_generator(client, k, first_generator(), 3) for k, client in enumerate(world.clients)]
    share = shares_of(world)
    x = world.clients[0].feat.to_dense()
    for c in range(C):
        expected = {name: sum(share[k, c] * client_generators[k][name] for k in range(3)) for name in generators}
        one = {name: value[c] for name, value in generators.items()}
        torch.testing.assert_close(fedlog.neighbour(one, x), generated(expected, x), rtol=1e-5, atol=1e-5)
        for name, value in expected.items():  # Adam turns the rounding of gradients near 0 into parts of its step, 0.01
            torch.testing.assert_close(one[name], value, rtol=1e-4, atol=1e-4)


def slow_loss(w: Model, client: Any, held: Model, points: torch.Tensor | None, pull: list[float]) -> Any:
    """A client's loss, and the share of correct global nodes per class."""
    z, near = sage(w, list(client.feat.to_dense()), near_of(client)), near_of(client)
    train = client.graph.ndata["train_mask"].nonzero().squeeze(1).tolist()
    loss = 0.3 * (w["condensed.head"].norm() + w["condensed.tail"].norm()) / 2
    for v in train:
        head, tail = likely(w, z[v])
        a, y = alpha_of(len(near[v])), int(client.graph.ndata["label"][v])
        loss = loss - (a * head[y] + (1 - a) * tail[y]) / len(train)
    right = []
    if points is not None:
        mean = points.reshape(-1, D).mean(0)
        for c in range(C):
            hits = 0
            for x in points[c]:
                x = x + pull[c] * (mean - x)
                beside = generated({n: v[c] for n, v in held.items()}, x)
                head, tail = likely(w, pair(w, x, beside))
                loss = loss - (head[c] + tail[c]) / 2 / (C * S)
                hits += int((head + tail).argmax()) == c
            right.append(hits / S)
    return loss, right


def test_three_rounds_equal_slow_loops(federation: Make) -> None:
    world = federation(SIZES)
    run = start(world, "fedlog", SMALL, **SGD)
    (clients,), server = run.simulation.client_batches, run.simulation.server
    held, share = clients.state["generators"][0], shares_of(world)
    slow_models = [{n: v[k].clone() for n, v in clients.params.items()} for k in range(3)]
    model = {n: v.clone() for n, v in server.state["model"].items()}
    points, pull = None, [[0.0] * C for _ in range(3)]
    draws = stream(SEED, "server")
    draws.bit_generator.state = server.generator.bit_generator.state
    for number in (1, 2, 3):
        uploads = run.round(number)
        for k, client in enumerate(world.clients):
            w = slow_models[k] | model
            for _ in range(2):
                w = tracked(w)
                loss, right = slow_loss(w, client, held, points, pull[k])
                w = stepped(w, loss, 0.05)
                for c, hits in enumerate(right):
                    pull[k][c] = min(1.0, max(0.0, pull[k][c] + (0.001 if hits > 0.8 else -0.001)))
            slow_models[k] = w
            close(clients.params, w, k, rtol=1e-4)
            torch.testing.assert_close(uploads["condensed"][k], w["condensed.head"], rtol=1e-4, atol=1e-5)
            assert set(uploads["model"]) == {n for n in w if not n.startswith("condensed")}
        torch.testing.assert_close(clients.state["pull"], torch.tensor(pull))
        model = {n: sum(w[n] for w in slow_models) / 3 for n in model}
        nodes = torch.zeros(C, S, D)
        for k in range(3):
            order = draws.permutation(S)
            for c in range(C):
                for i in range(S):
                    nodes[c, i] += share[k, c] * slow_models[k]["condensed.head"][c * S + order[i]]
        points = nodes
    scores = run.method.predict_own(clients.params, clients)
    at = 0
    for w, client in zip(slow_models, world.clients, strict=True):
        near = near_of(client)
        for v, z in enumerate(sage(w, list(client.feat.to_dense()), near)):
            head, tail = likely(w, z)
            a = alpha_of(len(near[v]))
            expected = (a * head.exp() + (1 - a) * tail.exp()).log()
            torch.testing.assert_close(scores[at], expected, rtol=1e-4, atol=1e-4)
            at += 1


def test_without_global_nodes_generators_do_not_matter(federation: Make) -> None:
    models = []
    for epochs in (0, 3):
        run = start(federation(SIZES), "fedlog", {**SMALL, "lam_global": 0.0, "generator_epochs": epochs}, **SGD)
        for number in (1, 2):
            run.round(number)
        models.append(run.simulation.client_batches[0].params)
    assert all(torch.equal(value, models[1][name]) for name, value in models[0].items())


def test_nodes_are_weighted_by_their_degree(federation: Make) -> None:
    """The threshold has an effect only if head and tail nodes differ."""
    world, scores = federation(SIZES), []
    for threshold in (0, 100):
        run = start(world, "fedlog", {**SMALL, "threshold": threshold}, **SGD)
        (clients,) = run.simulation.client_batches
        equal = {n: v.clone() for n, v in clients.params.items()}
        equal["condensed.tail"] = equal["condensed.head"]
        scores.append([run.method.predict_own(params, clients) for params in (equal, clients.params)])
    torch.testing.assert_close(scores[0][0], scores[1][0])
    assert not torch.allclose(scores[0][1], scores[1][1])


def test_a_class_that_no_client_has_is_shared_equally(federation: Make) -> None:
    run = start(federation(SIZES), "fedlog", SMALL, **SGD)
    zeros = {"generator": {"0.weight": torch.eye(3)[:, :, None]}, "counts": torch.tensor([[1.0, 0, 0]] * 3)}
    server = run.simulation.server
    sent = run.method.gather(server, zeros)["generators"]["0.weight"]
    torch.testing.assert_close(sent[:, :, 0], torch.full((3, 3), 1 / 3))
    assert fedlog.RIGHT == 0.8
