"""AdaFGL against loops from its formulas: corrected topology, both branches, confidence, both steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine import Facts, Skip, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES, Params
from fglbench.benchmark.engine.batch import collate
from fglbench.benchmark.engine.client_batch import ClientBatch
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.benchmark.engine.train import train
from fglbench.datasets.federation import Federation, NodeClient
from fglbench.methods import METHODS, adafgl
from fglbench.methods.adafgl import AdaFGL, Topology, signed_propagation
from fglbench.methods.fedgta import propagate_labels

from .rounds import Make, close

D, H, C = 12, 8, 3


def run(world: Federation, params: dict[str, Any] | None = None, phases: int = 2, **config: Any) -> Simulation:
    """A simulation after a number of whole phases."""
    method = METHODS.build("adafgl", params)
    settings = method.protocol(TrainConfig(**{"rounds": 6, "local_epochs": 2, **config}))
    backbone = BACKBONES.build("gcn", {"hidden": H, "dropout": 0})
    simulation = Simulation(method, method.arrange(world), [backbone], settings, 5)
    for phase in method.phases(settings)[:phases]:
        for number in range(1, phase.length(simulation.server) + 1):
            simulation.round(phase, number)
    return simulation


def ready(world: Federation, **params: Any) -> tuple[AdaFGL, ClientBatch]:
    """The method and its client batch at the start of step 2, with different head parameters per client."""
    simulation = run(world, params, phases=1)
    method, clients = simulation.method, simulation.client_batches[0]
    simulation.models()  # gives the last download to the clients
    method.prepare_personal(clients)
    torch.manual_seed(3)
    clients.state["heads"] = {n: v + 0.1 * torch.randn_like(v) for n, v in clients.state["heads"].items()}
    return method, clients


def slow_similarity(rows: torch.Tensor) -> torch.Tensor:
    """cos(softmax(row i), softmax(row j)) off the diagonal, 0 on it."""
    soft = rows.softmax(1)
    n = len(soft)
    return torch.stack([
        torch.stack([F.cosine_similarity(soft[i], soft[j], dim=0) if i != j else soft[i].sum() * 0 for j in range(n)])
        for i in range(n)
    ])  # fmt: skip


def slow_topology(client: NodeClient, known: torch.Tensor, alpha: float, similar: float) -> torch.Tensor:
    """D^-1/2 (alpha A + (1 - alpha) S + I) D^-1/2, entry by entry."""
    n = client.graph.num_nodes()
    a = torch.eye(n)
    similarity = slow_similarity(known)
    for u, v in zip(*(e.tolist() for e in client.graph.edges()), strict=True):
        a[v, u] += alpha
    for i in range(n):
        for j in range(n):
            if i != j and similarity[i, j] > similar:
                a[i, j] += 1 - alpha
    degree = a.sum(1)
    return torch.stack([torch.stack([a[i, j] / (degree[i] * degree[j]) ** 0.5 for j in range(n)]) for i in range(n)])


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_smoothed_features(sparse: bool, wide: bool, federation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """X~ W and its gradient, computed in both ways."""
    monkeypatch.setattr(adafgl, "DENSE", 10**6 if wide else 0)
    clients: list[Any] = list(federation(sparse=sparse).clients)
    batch = collate(clients)
    torch.manual_seed(0)
    known = torch.randn(len(batch.label), C).softmax(1)
    topology = Topology(batch, known, 0.3, 0.97, 3)
    weight = torch.randn(3, D, 4, 5, requires_grad=True)
    product = topology.smoothed(weight.unbind(2))
    pull = torch.randn_like(product)
    (grad,) = torch.autograd.grad((product * pull).sum(), weight)
    assert 0 < sum(int(s.sum()) for s in topology.alike) < sum(s.numel() for s in topology.alike) / 2
    for k, (client, client_known) in enumerate(zip(clients, known.split(batch.sizes), strict=True)):
        a = slow_topology(client, client_known, 0.3, 0.97)
        columns = [client.feat.to_dense()]
        for _ in range(3):
            columns.append(a @ columns[-1])
        one = weight[k].detach().clone().requires_grad_(True)
        expected = sum(x @ one[:, power] for power, x in enumerate(columns))
        assert isinstance(expected, torch.Tensor)
        torch.testing.assert_close(product.split(batch.sizes)[k], expected, rtol=1e-5, atol=1e-5)
        (slow,) = torch.autograd.grad((expected * pull.split(batch.sizes)[k]).sum(), one)
        torch.testing.assert_close(grad[k], slow, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("beta", [0.0, 0.2])
@pytest.mark.parametrize("again", [True, False])
def test_signed_propagation(again: bool, beta: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adafgl, "LARGE", 0 if again else 10**6)
    torch.manual_seed(1)
    h = torch.randn(9, C, dtype=torch.float64, requires_grad=True)
    slope = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)
    similar = torch.rand(9, 9) > 0.6
    similar = (similar | similar.T).fill_diagonal_(False)
    propagated = signed_propagation(h, slope, similar, beta)

    r = (1 - beta) * slow_similarity(h) + beta * similar.double()
    mean, most = r.mean(), r.max()
    rows = []
    for i in range(9):
        positive, negative = torch.zeros(C).double(), torch.zeros(C).double()
        for j in range(9):
            value = (r[i, j] - mean) / (most - mean) if r[i, j] > mean else -r[i, j] / mean
            value = value + (i == j)
            positive = positive + F.prelu(value.view(1), slope) * h[j]
            negative = negative + F.prelu(-value.view(1), slope) * h[j]
        rows.append((positive.softmax(0) - negative.softmax(0) + h[i]) / 2)
    expected = torch.stack(rows)
    torch.testing.assert_close(propagated, expected)
    pull = torch.randn_like(propagated)
    for a, b in zip(*(torch.autograd.grad((v * pull).sum(), (h, slope)) for v in (propagated, expected)), strict=True):
        torch.testing.assert_close(a, b)


def slow_outputs(method: AdaFGL, clients: ClientBatch, k: int, one: Params) -> dict[str, torch.Tensor]:
    """The four heads of client k without dropout, from their definitions."""
    client, known = clients.members[k], clients.cache["topology"].known.split(clients.batch.sizes)[k]
    a = slow_topology(client, known, method.alpha, method.similar)
    x = [client.feat.to_dense()]
    for _ in range(method.powers):
        x.append(a @ x[-1])
    smooth = torch.cat(x, 1)
    stacked = torch.cat([one[f"wide.{power}.weight"] for power in range(method.powers + 1)])  # (4 d, 3 h)

    def mlp(head: str, slope: str, z: torch.Tensor, layers: int) -> torch.Tensor:
        for i in range(1, layers):
            z = F.prelu(z, one[f"{slope}.slope"]) @ one[f"{head}.{i}.weight"] + one[f"{head}.{i}.bias"]
        return z

    first = [smooth @ stacked[:, i * H : (i + 1) * H] + one["wide.bias"][i * H : (i + 1) * H] for i in range(3)]
    similar = (slow_similarity(known) > method.similar).fill_diagonal_(False)
    return {
        "homo": mlp("homo", "homo", first[0], 2),
        "own": mlp("own", "hete", x[0] @ one["own.0.weight"] + one["own.0.bias"], 3),
        "smooth": mlp("smooth", "hete", first[1], 3),
        "signed": signed_propagation(mlp("signed", "signed", first[2], 3), one["signed.slope"], similar, method.beta),
    }


def test_personal_loss_and_prediction(federation: Make) -> None:
    method, clients = ready(federation(), beta=0.2)
    batch, heads = clients.batch, clients.state["heads"]
    for value in heads.values():
        value.requires_grad_(True)
    losses = method.personal_loss(clients)
    grads = dict(zip(heads, torch.autograd.grad(losses.sum(), list(heads.values())), strict=True))
    scores = method.predict_own(heads, clients)
    for k, client in enumerate(clients.members):
        one = {name: value[k].detach().clone().requires_grad_(True) for name, value in heads.items()}
        out = slow_outputs(method, clients, k, one)
        known = clients.cache["topology"].known.split(batch.sizes)[k]
        mask, label = client.graph.ndata["train_mask"], client.graph.ndata["label"]
        loss = F.mse_loss(out["homo"], known) + sum(F.cross_entropy(z[mask], label[mask]) for z in out.values())
        torch.testing.assert_close(losses[k], loss, rtol=1e-5, atol=1e-5)
        slow = torch.autograd.grad(loss, list(one.values()))
        close(grads, dict(zip(one, slow, strict=True)), k, rtol=1e-4)
        p, w = {n: z.softmax(1) for n, z in out.items()}, clients.state["confidence"][k]
        expected = w * (p["homo"] + known.softmax(1)) / 2 + (1 - w) * (p["own"] + p["smooth"] + p["signed"]) / 3
        torch.testing.assert_close(scores.split(batch.sizes)[k], expected, rtol=1e-5, atol=1e-5)


def test_confidence(federation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Label propagation from the seeds, node by node. Clients without seeds weigh both branches equally."""
    world = federation((13, 30, 10, 16), without_train=(2,))
    method, clients = ready(world)
    for generator, seed in zip(clients.streams("seeds"), range(4), strict=True):
        generator.bit_generator.state = type(generator)(type(generator.bit_generator)(seed)).bit_generator.state
    started: list[torch.Tensor] = []

    def spy(batch: Any, start: torch.Tensor, *rest: Any) -> torch.Tensor:
        started.append(start)
        return propagate_labels(batch, start, *rest)

    monkeypatch.setattr("fglbench.methods.adafgl.propagate_labels", spy)
    confidence = method.confidence(clients)
    starts = started[0].split(clients.batch.sizes)
    for generator, seed in zip(clients.streams("seeds"), range(4), strict=True):
        generator.bit_generator.state = type(generator)(type(generator.bit_generator)(seed)).bit_generator.state
    for k, (client, generator) in enumerate(zip(world.clients, clients.streams("seeds"), strict=True)):
        graph, n = client.graph, client.graph.num_nodes()
        train = graph.ndata["train_mask"].nonzero().squeeze(1).tolist()
        order = generator.permutation(len(train)).tolist()
        seeds, asked = ([train[i] for i in part] for part in (order[: len(train) // 2], order[len(train) // 2 :]))
        if not seeds:
            assert float(confidence[k]) == 0.5
            continue
        near = [[*graph.predecessors(v).tolist(), v] for v in range(n)]
        start = [[1 / C] * C for _ in range(n)]
        for v in seeds:
            start[v] = [float(c == int(graph.ndata["label"][v])) for c in range(C)]
        torch.testing.assert_close(starts[k], torch.tensor(start))
        y = start
        for _ in range(10):
            y = [
                [
                    0.5 * sum(y[u][c] / (len(near[u]) * len(near[v])) ** 0.5 for u in near[v]) + 0.5 * start[v][c]
                    for c in range(C)
                ]
                for v in range(n)
            ]
        right = [y[v].index(max(y[v])) == int(graph.ndata["label"][v]) for v in asked]
        assert float(confidence[k]) == pytest.approx(sum(right) / len(right))
    chosen, other = ready(world, branches="chosen", threshold=0.5)
    assert set(chosen.confidence(other).tolist()) <= {0.0, 1.0}


def test_step_one_is_fedavg(federation: Make) -> None:
    world = federation()
    simulation = run(world, phases=1)
    fedavg = METHODS.build("fedavg")
    backbone = BACKBONES.build("gcn", {"hidden": H, "dropout": 0})
    other = Simulation(fedavg, fedavg.arrange(world), [backbone], simulation.config, 5)
    for number in (1, 2, 3):  # half of the rounds
        other.round(fedavg.phases(simulation.config)[0], number)
    torch.testing.assert_close(simulation.server.state["model"], other.server.state["model"], rtol=0, atol=0)
    assert simulation.upload_bytes == other.upload_bytes


def test_only_personal_rounds_are_scored_on_local_graphs(federation: Make) -> None:
    world, backbone = federation(), BACKBONES.build("gcn", {"hidden": H})
    method = METHODS.build("adafgl", {"extractor_rounds": 2})
    outcome = train(world, method, [backbone], TrainConfig(rounds=5), 0)
    assert outcome.rounds == 3 and outcome.score_metric.startswith("accuracy, personal model, local")
    assert outcome.matrix["personal_on_global"] is None and outcome.matrix["global_on_global"] is not None
    for place in ("global", "union"):
        with pytest.raises(Skip, match="own graph"):
            train(world, method, [backbone], TrainConfig(rounds=5, score_on=place), 0)


def test_large_clients_are_refused_with_the_size(federation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    world, backbones = federation(), [BACKBONES.build("gcn")]
    assert METHODS.build("adafgl").skip(Facts.of(world), backbones) is None
    monkeypatch.setattr("fglbench.methods.adafgl.LIMIT", 1000)
    reason = METHODS.build("adafgl").skip(Facts.of(world), backbones)
    assert reason is not None and "GiB" in reason
