"""FedSage+: the generator's losses, the exchanged gradients and the mended graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import dgl
import dgl.nn
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine import Facts, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.batch import collate
from fglbench.benchmark.engine.rng import stream
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.datasets.federation import Federation, NodeClient
from fglbench.methods import METHODS
from fglbench.methods.fedsage import fedsageplus
from fglbench.methods.fedsage.fedsageplus import FedSagePlus, add
from fglbench.methods.fedsage.mending import Mending
from fglbench.methods.fedsage.neighgen import hide, impair, match
from fglbench.methods.fedsage.turn import Answer, Turn, random_neighbours, reach

from .rounds import Make

D, P, LATENT = 12, 3, 5
SMALL = {"neighbours": P, "latent": LATENT, "generator_hidden": 4, "generator_epochs": 2, "exchange_epochs": 2}


def exchange_of(
    world: Federation,
    params: dict[str, Any] | None = None,
    name: str = "fedsage+",
    clients_per_batch: int | None = None,
    **config: Any,
) -> Simulation:
    method = METHODS.build(name, params if params is not None else SMALL)
    settings = method.protocol(TrainConfig(**{"rounds": 3, "local_epochs": 2, **config}))
    backbones = method.architecture([BACKBONES.build("gcn", {"hidden": 8})])
    return Simulation(method, method.arrange(world), backbones, settings, 5, clients_per_batch)


def slow_match(generated: torch.Tensor, targets: torch.Tensor, held: int) -> torch.Tensor:
    """Minimum over q < held of ||made - target_q||^2, one prediction at a time; 0 where nothing is missing."""
    if held == 0:
        return generated.sum() * 0
    return torch.stack([((generated - targets[q]) ** 2).sum() for q in range(held)]).min()


def test_memory_estimate_by_hand(federation: Make) -> None:
    """Weights of fGen once per client and five times more; features of nodes that may be hidden."""
    world = federation((13, 30, 10))
    method = FedSagePlus(**SMALL | {"hidden_share": 1.0})
    neighgen = method.generator
    params = neighgen.init(stream(0, "test"), D)
    fgen = sum(params[name].numel() for name in neighgen.shown if name.endswith("weight"))
    generated = 0.0
    for client in world.clients:
        share = float(client.graph.ndata["val_mask"].float().mean())
        generated += sum(min(P, share * int(degree)) for degree in client.graph.in_degrees())
    assert method._bytes(Facts.of(world)) == pytest.approx(4 * (fgen * (3 + 5) + generated * D))


def test_matching_and_its_gradient() -> None:
    torch.manual_seed(0)
    generated = torch.randn(7, D, requires_grad=True)
    targets, held = torch.randn(4, P, D), torch.tensor([0, 1, 2, 3])
    parent = torch.tensor([0, 1, 1, 2, 3, 3, 3])
    losses = match(generated, parent, targets, held)
    expected = torch.stack([slow_match(m, targets[i], int(held[i])) for m, i in zip(generated, parent, strict=True)])
    torch.testing.assert_close(losses, expected)
    (grad,), (slow,) = (torch.autograd.grad(v.sum(), generated, retain_graph=True) for v in (losses, expected))
    torch.testing.assert_close(grad, slow)


def test_impaired_graph(federation: Make) -> None:
    member = federation((40,)).clients[0]
    impaired = impair(member, hide(member, 0.6, np.random.default_rng(1)), P)
    graph, left = member.graph, impaired.client.graph.ndata["global_id"].tolist()
    val = graph.ndata["val_mask"]
    hidden = [v for v in range(40) if v not in left]
    assert len(hidden) == int(0.6 * int(val.sum())) and all(val[v] for v in hidden)
    near: dict[int, set[int]] = {v: set(graph.predecessors(v).tolist()) for v in range(40)}
    train = [v for v in left if graph.ndata["train_mask"][v]]
    for row, v in enumerate(left):
        assert int(impaired.missing[row]) == len(near[v] & set(hidden))
        assert {left[u] for u in impaired.client.graph.predecessors(row).tolist()} == near[v] - set(hidden)
    dense = member.feat.to_dense()
    torch.testing.assert_close(impaired.client.feat.to_dense(), dense[left])
    assert any(len(near[v] & set(hidden)) for v in train)
    for row, v in enumerate(train):
        lost = sorted(near[v] & set(hidden))[:P]
        expected = torch.zeros(P, D)
        expected[: len(lost)] = dense[lost]
        torch.testing.assert_close(impaired.targets[row], expected)


@pytest.mark.parametrize("sparse", [True, False])
def test_mended_graph_against_dgl(sparse: bool, federation: Make) -> None:
    """Per client: mended graph by loops, DGL's SAGEConv, gradients of weights and new features."""
    clients: list[Any] = list(federation(sparse=sparse).clients)
    batch = collate(clients)
    rng = np.random.default_rng(3)
    counts = torch.from_numpy(rng.integers(0, P, len(batch.label)))
    counts[: batch.sizes[0]] = 0  # the first client gets none
    generated = torch.randn(int(counts.sum()), D, requires_grad=True)
    backbone = BACKBONES.build("sage", {"hidden": 4})
    one = backbone.init(stream(0, "test"), D, 3)
    params = {n: v.expand(3, *v.shape).clone().requires_grad_(True) for n, v in one.items()}
    mending = Mending(batch, counts)
    logits = backbone.forward(params, mending.fill(generated)).logits[mending.own_rows]
    pull = torch.randn_like(logits)
    grads = torch.autograd.grad((logits * pull).sum(), [generated, params["0.weight"]])

    start, place, expected_made = 0, 0, []
    for k, client in enumerate(clients):
        n = client.graph.num_nodes()
        graph = dgl.graph(client.graph.edges(), num_nodes=n)
        rows = [client.feat.to_dense()]
        first = place
        for v in range(n):
            for _ in range(int(counts[start + v])):
                graph = dgl.add_nodes(graph, 1)
                graph = dgl.add_edges(graph, [v, graph.num_nodes() - 1], [graph.num_nodes() - 1, v])
                rows.append(generated[place : place + 1])
                place += 1
        h, weights = torch.cat(rows), []
        for i, width in enumerate((4, 3)):
            conv = dgl.nn.SAGEConv(h.shape[1], width, "mean")
            self_weight, neighbour = one[f"{i}.weight"].chunk(2, 1)
            conv.fc_self.weight.data, conv.fc_neigh.weight.data = self_weight.T.clone(), neighbour.T.clone()
            conv.fc_self.bias.data = one[f"{i}.bias"].clone()
            h = conv(graph, torch.relu(h) if i else h)
            weights += [conv.fc_self.weight, conv.fc_neigh.weight]
        torch.testing.assert_close(logits[start : start + n], h[:n])
        slow = torch.autograd.grad(
            (h[:n] * pull[start : start + n]).sum(), [generated, *weights[:2]], allow_unused=True
        )
        if place > first:
            expected_made.append(slow[0][first:place])
        torch.testing.assert_close(grads[1][k], torch.cat([slow[1].T, slow[2].T], 1))
        start += n
    torch.testing.assert_close(grads[0], torch.cat(expected_made))


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("few", [True, False])
def test_pooled_nodes_do_not_change_outputs(layers: int, few: bool, federation: Make) -> None:
    """Outputs of all nodes, and of the training nodes with fewer pooled nodes, equal those on the mended graph."""
    batch = collate(list(federation((13, 30, 10)).clients))
    counts = torch.from_numpy(np.random.default_rng(3).integers(0, P, len(batch.label)))
    counts[: batch.sizes[0]] = 0  # the first client gets none
    if few:  # two training nodes, so that most new nodes are far from any
        batch = replace(batch, masks=batch.masks | {"train": torch.zeros(53, dtype=torch.bool)})
        batch.masks["train"][[15, 50]] = True
    mending = Mending(batch, counts)
    plain = mending.fill(torch.randn(int(counts.sum()), D))
    whole, training = mending.pooled(reach(batch, batch.rows["train"], layers - 2).bool())
    needed, every = training.x.needed.rows, whole.x.needed.rows
    assert len(needed) < len(every) == int(counts.sum()) or not few
    backbone = BACKBONES.build("sage", {"hidden": 4, "layers": layers})
    one = backbone.init(stream(0, "test"), D, 3)
    params = {n: torch.stack([v, v + 0.1, v - 0.2]).requires_grad_(True) for n, v in one.items()}
    for pooled, rows in ((whole, torch.arange(53)), (training, batch.rows["train"])):
        expected, actual = (backbone.forward(params, x).logits[mending.own_rows][rows] for x in (plain, pooled))
        torch.testing.assert_close(actual, expected)
        pull = torch.randn_like(actual)
        a, b = (torch.autograd.grad((y * pull).sum(), list(params.values())) for y in (actual, expected))
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("left", [0.5, 0.02])
@pytest.mark.parametrize("sparse", [True, False])
def test_answers_are_the_gradient_of_the_feature_loss(sparse: bool, left: float, federation: Make) -> None:
    """left: share of entries after dropout; few entries use products by entry."""
    batch = collate(list(federation(sparse=sparse).clients))
    neighgen = FedSagePlus(**SMALL).generator
    params = neighgen.init(stream(1, "test"), D)
    shown = {name: params[name][0] for name in neighgen.shown}
    counts = torch.tensor([0, 2, 1, 0, 2])  # no node uses the third slot
    encoding, keep = torch.randn(5, LATENT), (torch.rand(5, 2048) < left).float() * 2
    answer = Answer(neighgen, shown, encoding, counts, keep, 0.3)
    assert all((inputs.entries is None) == (left == 0.5) for inputs in answer.inputs)
    targets = random_neighbours(batch, 1, 3, P, np.random.default_rng(0))
    gradient = answer.gradient(batch.x, targets)

    leaf = {name: value.clone().requires_grad_(True) for name, value in shown.items()}
    dense, loss = batch.x.dense(), torch.zeros(())
    for row, i in enumerate((1, 2, 4)):
        h = torch.relu(leaf["grow.0.weight"] @ encoding[i] + leaf["grow.0.bias"])
        h = torch.relu(leaf["grow.1.weight"] @ h + leaf["grow.1.bias"]) * keep[i]
        for p in range(int(counts[i])):
            generated = torch.tanh(h @ leaf[f"slot.{p}.weight"] + leaf[f"slot.{p}.bias"])
            loss = loss + 0.3 * slow_match(generated, dense[torch.from_numpy(targets[row]).long()], P)
    expected = torch.autograd.grad(loss, list(leaf.values()), allow_unused=True)
    for (name, value), grad in zip(gradient.items(), expected, strict=True):
        torch.testing.assert_close(value, torch.zeros_like(value) if grad is None else grad, rtol=1e-5, atol=1e-6)
        assert value.shape == shown[name].shape
    assert not any(gradient["slot.2.weight"].stride())  # unstored zero


def test_targets_are_neighbours_of_the_client_that_answers(federation: Make) -> None:
    batch = collate(list(federation().clients))
    rows = random_neighbours(batch, 2, 50, P, np.random.default_rng(0))
    assert rows is not None and rows.shape == (50, P)
    near = [set(batch.graph.predecessors(v).tolist()) for v in range(*batch.offsets[2:4])]
    assert set(rows.ravel().tolist()) == set().union(*near)  # all of them turn up in 150 draws
    assert all(any(set(row.tolist()) <= s for s in near) for row in rows)
    lonely = NodeClient(dgl.graph(([], []), num_nodes=3), torch.zeros(3, D))
    for part in ("train", "val", "test"):
        lonely.graph.ndata[f"{part}_mask"] = torch.zeros(3, dtype=torch.bool)
    lonely.graph.ndata["label"] = lonely.graph.ndata["global_id"] = torch.zeros(3, dtype=torch.int64)
    assert random_neighbours(collate([lonely]), 0, 4, P, np.random.default_rng(0)) is None


def turn_of(world: Federation, **params: Any) -> Turn:
    simulation = exchange_of(world, SMALL | {"generator_epochs": 0, **params})
    clients = simulation.client_batches[0]
    clients.load({n: v.expand(len(clients), *v.shape) for n, v in simulation.server.initial_model().items()})
    assert isinstance(simulation.method, FedSagePlus)
    return Turn(simulation.method, clients.select([1]))


@pytest.mark.parametrize("scale", ["sum", "mean"])
def test_local_loss_of_the_generator(scale: str, federation: Make) -> None:
    """L for given numbers and encodings, node by node, in one graph with all new neighbours."""
    turn = turn_of(
        federation((13, 30, 10)), feature_loss=scale, degree_weight=0.7, feature_weight=0.5, label_weight=0.3
    )
    batch, total = turn.clients.batch, len(turn.encoding)
    missing = torch.linspace(0, 3.4, total).requires_grad_(True)
    noisy = torch.randn(total, LATENT).requires_grad_(True)
    loss = turn.loss(missing, noisy, None, None)
    counts = missing.detach().round().long()
    generated = turn.generator.generate(turn.params, noisy, counts)
    rows, owner = turn.rows.tolist(), torch.repeat_interleave(torch.arange(total), counts)
    number = sum(F.smooth_l1_loss(missing[v], turn.impaired.missing[v].float()) for v in rows) / len(rows)
    pairs = [(g, rows.index(int(v))) for g, v in enumerate(owner) if int(v) in rows]
    feature = sum(
        slow_match(generated[g], turn.impaired.targets[t], min(P, int(turn.impaired.missing[rows[t]])))
        for g, t in pairs
    ) / (len(rows) * (P * D if scale == "mean" else 1))
    mending = Mending(batch, counts)
    logits = turn.clients.network.forward(turn.classifier, (mending.fill(generated),)).logits[mending.own_rows]
    label = F.cross_entropy(logits[rows], batch.label[rows])
    expected = 0.7 * number + 0.5 * feature + 0.3 * label
    torch.testing.assert_close(loss[0], expected)
    for leaf in (missing, noisy):
        a, b = (torch.autograd.grad(v.sum(), leaf, retain_graph=True)[0] for v in (loss, expected))
        torch.testing.assert_close(a, b)
    assert 0 < int(reach(batch, turn.rows, 1).sum()) < total  # some new neighbours are out of sight and were not made


def test_exchange_step_is_the_step_on_the_total_loss(federation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exchanged gradients sum to the gradient of L + b sum_j L_ij, and the owner takes that step."""
    world = federation((13, 30, 10, 16))
    simulation = exchange_of(world, SMALL | {"feature_weight": 0.5, "generator_epochs": 1, "exchange_epochs": 1})
    method, clients = simulation.method, simulation.client_batches[0]
    asked: list[torch.Tensor] = []

    def spy(batch: Any, at: int, *rest: Any) -> np.ndarray | None:
        rows = random_neighbours(batch, at, *rest)
        if rows is not None:
            asked.append(batch.x.dense()[torch.from_numpy(rows).long()])
        return rows

    monkeypatch.setattr(fedsageplus, "random_neighbours", spy)
    start, turns, _ = method.phases(simulation.config)
    simulation.round(start, 1)
    simulation.round(turns, 1)
    turn: Turn = clients.state["turn"][0]
    leaf = {name: turn.params[name].clone().requires_grad_(True) for name in turn.generator.shown}
    counts = method.number(turn.missing)
    generated = turn.generator.generate(leaf, turn.noisy, counts, turn.keep)
    owner = torch.repeat_interleave(turn.place, counts)
    active = counts[turn.rows].nonzero().squeeze(1).tolist()
    total = torch.zeros(())
    for targets in asked:
        pairs = [(g, active.index(int(v))) for g, v in enumerate(owner) if v >= 0]
        total = total + sum(slow_match(generated[g], targets[t], P) for g, t in pairs) / len(turn.rows)
    assert len(asked) == 3
    received = simulation._message["gradient"]
    crossed = torch.autograd.grad(total, list(leaf.values()), allow_unused=True, retain_graph=True)
    for (name, value), grad in zip(leaf.items(), crossed, strict=True):
        expected = torch.zeros_like(value[0]) if grad is None else grad[0]
        torch.testing.assert_close(received[name], expected, rtol=1e-4, atol=1e-6)

    stepped: dict[str, torch.Tensor] = {}
    monkeypatch.setattr(turn.clients.optimiser(), "step", lambda params, grads, active: stepped.update(grads))
    turn.refine(received)
    before, turn.params = dict(turn.params), turn.params | leaf
    loss = turn.loss(turn.missing, turn.noisy, turn.keep, None).sum() + 0.5 * total
    turn.params = before
    for name, grad in zip(leaf, torch.autograd.grad(loss, list(leaf.values()), allow_unused=True), strict=True):
        assert (grad is None) == (name not in stepped)
        if grad is not None:
            torch.testing.assert_close(stepped[name], grad, rtol=1e-4, atol=1e-6)
    assert 0 < len(stepped) < len(leaf)  # unused slots stay


def test_sums_keep_unstored_zeros() -> None:
    zero = torch.zeros(()).expand(2, 3)
    a, b = torch.ones(2, 3), torch.full((2, 3), 2.0)
    assert add([zero, zero]).stride() == (0, 0)
    torch.testing.assert_close(add([a, zero, b, b]), torch.full((2, 3), 5.0))
    torch.testing.assert_close(a, torch.ones(2, 3))  # no upload is written to


def test_too_large_features_are_refused_with_the_size(federation: Make) -> None:
    world = federation()
    assert METHODS.build("fedsage+").skip(Facts.of(world), [BACKBONES.build("sage")]) is None
    reason = METHODS.build("fedsage+", {"neighbours": 20000}).skip(Facts.of(world), [BACKBONES.build("sage")])
    assert reason is not None and "GiB" in reason and "\n" not in reason
