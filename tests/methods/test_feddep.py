"""FedDEP against slow loops of its encoder, its generator's loss and its classifier."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fglbench.benchmark.engine import BACKBONES, GraphSAGE, TrainConfig, collate
from fglbench.benchmark.engine.rng import stream
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS
from fglbench.methods.feddep import DeepTurn, FedDEP, FusedSAGE

from .formulas import Model, near_of
from .rounds import Make, close, stepped, tracked

SIZES, SEED = (13, 30, 10), 5
D, H, C, E, P, K = 12, 8, 3, 6, 4, 3
PLAIN: dict[str, Any] = {"optimiser": "sgd", "weight_decay": 0.0, "lr": 0.2}
SMALL: dict[str, Any] = {
    "embedding": E,
    "prototypes": K,
    "neighbours": P,
    "latent": 5,
    "generator_hidden": 7,
    "generator_dropout": 0.0,
    "encoder_epochs": 4,
    "generator_epochs": 3,
    "exchange_epochs": 2,
}
GENERATOR = "generator"


def begin(world: Federation, until: int = 2, **params: Any) -> Simulation:
    """A run after the first `until` steps of the generators' round."""
    method = METHODS.build("feddep", SMALL | params)
    config = TrainConfig(rounds=3, local_epochs=2, **PLAIN)
    backbones = method.architecture([BACKBONES.build("gcn", {"hidden": H, "dropout": 0.0})])
    simulation = Simulation(method, method.arrange(world), backbones, config, SEED)
    phase = method.phases(config)[0]
    if phase.name == GENERATOR:
        simulation.round(type(phase)(phase.steps[:until], 1, scored=False, everyone=True), 1)
    return simulation


def sage(w: Model, name: str, h: list[torch.Tensor], near: list[list[int]]) -> list[torch.Tensor]:
    """One layer, node by node."""
    self_weight, neighbour = w[f"{name}.weight"].chunk(2, 1)
    outputs = []
    for v, neighbours in enumerate(near):
        mean = sum((h[u] for u in neighbours), torch.zeros_like(h[v])) / max(len(neighbours), 1)
        outputs.append(h[v] @ self_weight + mean @ neighbour + w[f"{name}.bias"])
    return outputs


def slow_scores(w: Model, client: Any, mended: torch.Tensor) -> torch.Tensor:
    """(n, C) of the classifier without dropout, node by node."""
    h, m = list(client.feat.to_dense()), list(mended)
    for i in range(2):
        m = [row @ w[f"mend.{i}.weight"] + w[f"mend.{i}.bias"] for row in m]
        h = [z + row for z, row in zip(sage(w, str(i), h, near_of(client)), m, strict=True)]
        h = h if i else [torch.relu(z) for z in h]
    return torch.stack(h)


def slow_embeddings(client: Any, k: int, epochs: int) -> torch.Tensor:
    """(n, E) of client k's encoder after some steps of Adam, from the first weights that it draws."""
    draws = stream(SEED, "encoder", k)
    w = GraphSAGE(hidden=E).init(draws, D, E)
    bound = (6 / (E + C)) ** 0.5
    source = torch.Generator().manual_seed(int(draws.integers(2**63)))
    w |= {"class.weight": torch.empty(E, C).uniform_(-bound, bound, generator=source), "class.bias": torch.zeros(C)}
    w = {n: v.requires_grad_(True) for n, v in w.items()}
    optimiser = torch.optim.Adam(w.values(), lr=0.01, weight_decay=5e-4)
    near, train = near_of(client), client.graph.ndata["train_mask"]

    def embedded() -> torch.Tensor:
        h = [torch.relu(z) for z in sage(w, "0", list(client.feat.to_dense()), near)]
        return torch.tanh(torch.stack(sage(w, "1", h, near)))

    for _ in range(epochs):
        optimiser.zero_grad()
        logits = embedded() @ w["class.weight"] + w["class.bias"]
        F.cross_entropy(logits[train], client.graph.ndata["label"][train]).backward()
        optimiser.step()
    return embedded().detach()


def test_uploads_equal_slow_loops(federation: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prototypes are cluster means of the encoder's embeddings, clusters are those of k-means, slots by hand."""
    uploads: list[Any] = []
    share = FedDEP.share
    monkeypatch.setattr(FedDEP, "share", lambda self, server, up: [uploads.append(up), share(self, server, up)][1])
    world, slots = federation(SIZES), 30  # more than any node's neighbours: the last slot is the node's own cluster
    begin(world, until=1, neighbours=slots, hidden_share=0.6)
    for k, client in enumerate(world.clients):
        embeddings = slow_embeddings(client, k, SMALL["encoder_epochs"])
        prototypes, table = uploads[0]["prototypes"][k], uploads[0]["clusters"][k]
        clusters = table[:, -1].tolist()
        for c in range(K):
            mean = torch.stack([row for row, cluster in zip(embeddings, clusters, strict=True) if cluster == c]).mean(0)
            torch.testing.assert_close(prototypes[c], mean, rtol=1e-5, atol=1e-5)
        assert ((embeddings.unsqueeze(1) - prototypes) ** 2).sum(2).argmin(1).tolist() == clusters
        could = client.graph.ndata["val_mask"].nonzero().squeeze(1).numpy()
        hidden = set(stream(SEED, "hidden nodes", k).choice(could, int(0.6 * len(could)), replace=False).tolist())
        for v, neighbours in enumerate(near_of(client)):
            lost = [clusters[u] for u in neighbours if u in hidden]
            assert table[v].tolist() == lost + [clusters[v]] * (slots - len(lost))
        assert hidden


def turn_of(world: Federation, k: int, **params: Any) -> DeepTurn:
    run = begin(world, until=1, **params)
    (clients,), method = run.client_batches, run.method
    message = {name: value.expand(3, *value.shape) for name, value in run._message.items()}
    assert isinstance(method, FedDEP)
    return DeepTurn(method, clients.select([k]), message)


@pytest.mark.parametrize("scale", ["mean", "sum"])
@pytest.mark.parametrize("from_others", [False, True])
def test_loss_of_the_generator_equals_slow_loops(scale: str, from_others: bool, federation: Make) -> None:
    weights = {"degree_weight": 0.7, "feature_weight": 0.5, "label_weight": 0.3}
    turn = turn_of(federation(SIZES), 1, feature_loss=scale, **weights)
    client, rows, n = turn.impaired.client, turn.rows.tolist(), len(turn.encoding)
    if from_others:
        turn.learn_from_others()
        assert len(turn.targets) == 2
    missing = torch.linspace(0, 3.4, n).requires_grad_(True)
    noisy = torch.randn(n, 5).requires_grad_(True)
    losses = turn.loss(missing, noisy, None, None)
    w, mended, feature = turn.params, torch.zeros(n, E), torch.zeros(())
    number = sum(F.smooth_l1_loss(missing[v], turn.impaired.missing[v].float()) for v in rows) / len(rows)
    for v in range(n):
        h = noisy[v]
        for i in range(2):
            h = torch.relu(w[f"grow.{i}.weight"][0] @ h + w[f"grow.{i}.bias"][0])
        for p in range(min(P, round(float(missing[v].detach())))):
            generated = torch.tanh(h @ w[f"slot.{p}.weight"][0] + w[f"slot.{p}.bias"][0])
            mended = mended + torch.eye(n)[v].unsqueeze(1) * generated / P
            if v not in rows:
                continue
            held = min(P, int(turn.impaired.missing[v]))
            for targets, count in [(turn.impaired.targets, held), *((table, P) for table in turn.targets)]:
                far = [((generated - targets[rows.index(v)][q]) ** 2).sum() for q in range(count)]
                feature = feature + (torch.stack(far).min() if far else 0)
    feature = feature / (len(rows) * (P * E if scale == "mean" else 1))
    one = {name: value[0] for name, value in turn.classifier.items()}
    label = F.cross_entropy(slow_scores(one, client, mended)[rows], client.graph.ndata["label"][rows])
    expected = 0.7 * number + 0.5 * feature + 0.3 * label
    torch.testing.assert_close(losses[0], expected, rtol=1e-5, atol=1e-5)
    for leaf in (missing, noisy):
        a, b = (torch.autograd.grad(v.sum(), leaf, retain_graph=True)[0] for v in (losses, expected))
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_other_clients_train_fgen_only(federation: Make) -> None:
    turn = turn_of(federation(SIZES), 0)
    before = {n: v.clone() for n, v in turn.params.items()}
    turn.learn_from_others()
    moved = {n for n, v in turn.params.items() if not torch.equal(v, before[n])}
    assert moved and moved <= set(turn.generator.shown)
    drawn = turn.drawn(turn.others[0])
    tables = [set(table.tolist()) for table in turn.others[0]]
    assert drawn.shape == (len(turn.rows), P)
    assert all(any(set(row.tolist()) <= table for table in tables) for row in drawn)


def test_two_rounds_equal_slow_loops(federation: Make) -> None:
    world = federation(SIZES)
    run = begin(world)
    (clients,), method = run.client_batches, run.method
    mended = [rows.clone() for rows in clients.state["mended"]]
    assert any(rows.abs().sum() > 0 for rows in mended) and set(clients.state) == {"mended"}
    model = {n: v.clone() for n, v in run.server.initial_model().items()}
    for number in (1, 2):
        run.round(method.phases(run.server.config)[-1], number)
        trained = []
        for rows, client in zip(mended, world.clients, strict=True):
            w, train = model, client.graph.ndata["train_mask"]
            for _ in range(2):
                w = tracked(w)
                logits = slow_scores(w, client, rows)[train]
                w = stepped(w, F.cross_entropy(logits, client.graph.ndata["label"][train]), 0.2)
            trained.append(w)
        model = {n: sum(s / sum(SIZES) * w[n] for s, w in zip(SIZES, trained, strict=True)) for n in model}
        global_model = method.global_model(run.server)
        close(global_model, model)
    shown = {n: v.expand(3, *v.shape) for n, v in model.items()}
    scores = torch.cat([slow_scores(model, c, rows) for c, rows in zip(world.clients, mended, strict=True)])
    torch.testing.assert_close(method.predict_own(shown, clients), scores, rtol=1e-5, atol=1e-5)


def test_without_its_maps_it_is_graphsage(federation: Make) -> None:
    batch = collate(list(federation(SIZES).clients))
    shared = {"hidden": H, "layers": 3}
    fused = FusedSAGE(width=E, **shared)
    one = fused.init(stream(0, "test"), D, C)
    one |= {n: torch.zeros_like(v) for n, v in one.items() if n.startswith("mend")}
    params = {n: v.expand(3, *v.shape) for n, v in one.items()}
    logits = fused.fused(params, batch, torch.randn(sum(SIZES), E)).logits
    torch.testing.assert_close(logits, GraphSAGE(**shared).forward(params, batch).logits)
