"""Graph classification: the model against plain loops, minibatches of training graphs, hidden labels, scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn.metrics import f1_score

from fglbench.benchmark.engine import Skip, TorchMethod, TrainConfig, stream
from fglbench.benchmark.engine.backbones import BACKBONES, Params
from fglbench.benchmark.engine.graphs.classification import GraphModel, LabelledClientBatch
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.benchmark.engine.train import set_up, train
from fglbench.benchmark.engine.views import HIDDEN, hide_labels
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS
from fglbench.registry import UserError

Make = Callable[..., Federation]
SMALL = {"hidden": 4, "layers": 2, "dropout": 0.0}


def running(world: Federation, name: str, kind: str = "gin", size: int | None = None, **config: Any) -> Simulation:
    settings = TrainConfig(**{"rounds": 3, "local_epochs": 2, "batch_size": 3, "optimiser": "sgd", "lr": 0.1, **config})
    simulation, _ = set_up(world, METHODS.build(name), [BACKBONES.build(kind, SMALL)], settings, 5, size)
    return simulation


def cohort_of(world: Federation, name: str = "fedavg", **kwargs: Any) -> LabelledClientBatch:
    return running(world, name, **kwargs).client_batches[0]


# -- the model --------------------------------------------------------------------------------------------------------


def by_hand(params: Params, kind: str, readout: str, graph: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Embedding and logits of one graph under one client's model, from dense matrices."""

    def linear(name: str, x: torch.Tensor) -> torch.Tensor:
        return x @ params[f"{name}.weight"] + params[f"{name}.bias"]

    n = graph.num_nodes()
    a = torch.zeros(n, n)
    source, target = graph.edges()
    a[target, source] = 1.0
    h = linear("input", graph.ndata["feat"])
    for i in range(2):
        if kind == "gin":
            h = linear(f"{i}.outer", torch.relu(linear(f"{i}.inner", h + a @ h)))
        elif kind == "gcn":
            looped = a + torch.eye(n)
            root = looped.sum(1).rsqrt()
            h = (root[:, None] * looped * root) @ h @ params[f"{i}.weight"] + params[f"{i}.bias"]
        elif kind == "sage":
            self_weight, neighbour_weight = params[f"{i}.weight"].chunk(2, 1)
            h = h @ self_weight + (a / a.sum(1, keepdim=True).clamp(min=1)) @ h @ neighbour_weight + params[f"{i}.bias"]
        else:
            h = linear(str(i), h)
        h = torch.relu(h)
    embedding = torch.relu(linear("post", h.sum(0) if readout == "sum" else h.mean(0)))
    return embedding, linear("head", embedding)


@pytest.mark.parametrize(
    ("kind", "readout"), [("gin", "sum"), ("gin", "mean"), ("gcn", "sum"), ("sage", "sum"), ("mlp", "mean")]
)
def test_the_model_equals_its_formula(kind: str, readout: str, labelled_sets: Make) -> None:
    world = labelled_sets((5, 3, 4))
    backbone = BACKBONES.build(kind, {**SMALL, "readout": readout})
    simulation, _ = set_up(world, METHODS.build("fedavg"), [backbone], TrainConfig(batch_size=3), 5)
    (clients,) = simulation.client_batches
    torch.manual_seed(0)
    params = {name: torch.randn_like(value) for name, value in clients.params.items()}
    output = clients.forward(params, training=False)
    place = 0
    for k, client in enumerate(world.clients):
        for graph in client.graphs:
            embedding, logits = by_hand({n: v[k] for n, v in params.items()}, kind, readout, graph)
            torch.testing.assert_close(output.embedding[place], embedding, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(output.logits[place], logits, rtol=1e-4, atol=1e-4)
            place += 1


@pytest.mark.parametrize("kind", [name for name in BACKBONES.names() if name != "gine"])
def test_every_backbone_classifies_graphs(kind: str, labelled_sets: Make) -> None:
    world, backbone = labelled_sets(), BACKBONES.build(kind, {"hidden": 4})
    config = TrainConfig(rounds=2, local_epochs=1, batch_size=3)
    outcome = train(world, METHODS.build("fedavg"), [backbone], config, 0)
    again = train(world, METHODS.build("fedavg"), [backbone], config, 0, clients_per_batch=1)
    assert outcome.score is not None
    assert outcome.history["upload_bytes"] == again.history["upload_bytes"]
    assert outcome.matrix == pytest.approx(again.matrix)


def test_dropout_is_applied_in_training_only(labelled_sets: Make) -> None:
    backbone = BACKBONES.build("gin", {**SMALL, "dropout": 0.5, "input_dropout": 0.5})
    simulation, _ = set_up(labelled_sets(), METHODS.build("fedavg"), [backbone], TrainConfig(), 5)
    (clients,) = simulation.client_batches
    plain = clients.forward(training=False).logits
    assert torch.equal(plain, clients.forward(training=False).logits)
    assert not torch.equal(clients.forward().logits, clients.forward().logits)
    assert isinstance(clients.network.backbones[0], GraphModel)


# -- minibatches ------------------------------------------------------------------------------------------------------


def test_an_epoch_shows_each_training_graph_once_and_no_other(labelled_sets: Make) -> None:
    world = labelled_sets((11, 6, 2))  # 6, 3 and 1 training graphs, by threes
    clients = cohort_of(world)
    every, data = clients.batch, clients.data
    trained = [set((client.global_id[client.masks["train"]]).tolist()) for client in world.clients]
    for _ in range(2):
        seen: list[list[int]] = [[], [], []]
        active = []
        for moving in clients.steps():
            active.append(moving)
            assert clients.batch.masks["train"].all() and torch.equal(
                every.global_id[clients.at], clients.batch.global_id
            )
            assert clients.forward().logits.shape == (sum(clients.batch.sizes), 3)
            for shown, ids in zip(seen, clients.batch.per_client(clients.batch.global_id), strict=True):
                shown.extend(ids.tolist())
        assert active == [None, [0]]
        assert [set(shown) for shown in seen] == trained and [len(shown) for shown in seen] == [6, 3, 1]
    assert clients.batch is every and clients.data is data and clients.at == slice(None)
    assert every.sizes == (11, 6, 2)


def test_a_client_without_training_graphs_keeps_its_model(labelled_sets: Make) -> None:
    world = labelled_sets((9, 6, 8))
    bare = world.clients[1]
    masks = {**bare.masks, "train": torch.zeros_like(bare.masks["train"])}
    clients = [world.clients[0], replace(bare, masks=masks), world.clients[2]]
    world = replace(world, clients=clients)
    simulation = running(world, "local", optimiser="adam", weight_decay=0.1)
    before = {name: value.clone() for name, value in simulation.client_batches[0].params.items()}
    (phase,) = simulation.method.phases(simulation.config)
    simulation.round(phase, 1)
    for name, value in simulation.client_batches[0].params.items():
        assert torch.equal(value[1], before[name][1])
        assert not torch.equal(value[0], before[name][0]) or name.endswith("bias")
    assert simulation.server.sizes.tolist() == [9, 0, 8]


def epoch_by_hand(
    world: Federation, k: int, theta: Params, rate: float, generator: Any, correction: Params | None = None
) -> Params:
    """An epoch of plain SGD of a GIN on client k's training graphs by threes, graph by graph.

    correction: what is added to each gradient.
    """
    client = world.clients[k]
    ids = client.masks["train"].nonzero().squeeze(1).numpy()
    order = generator.permutation(ids) if len(ids) > 4 else ids
    starts = list(range(0, len(order), 3))
    chunks = [order[s : s + 3] for s in starts]
    if len(chunks) > 1 and len(chunks[-1]) == 1:
        chunks[-2:] = [np.concatenate(chunks[-2:])]
    for chunk in chunks:
        leaf = {n: v.clone().requires_grad_(True) for n, v in theta.items()}
        logits = torch.stack([by_hand(leaf, "gin", "sum", client.graphs[i])[1] for i in chunk])
        loss = F.cross_entropy(logits, client.label[torch.from_numpy(chunk)])
        grads = torch.autograd.grad(loss, list(leaf.values()))
        pull = correction or {n: torch.zeros_like(v) for n, v in theta.items()}
        theta = {n: v - rate * (g + pull[n]) for (n, v), g in zip(theta.items(), grads, strict=True)}
    return theta


def test_a_round_of_fedavg_equals_slow_loops(labelled_sets: Make) -> None:
    world = labelled_sets((11, 6, 9))
    simulation = running(world, "fedavg", weight_decay=0.0, lr=0.05)
    theta = {n: v.clone() for n, v in simulation.server.state["model"].items()}
    (phase,) = simulation.method.phases(simulation.config)
    simulation.round(phase, 1)
    finals = []
    for k in range(3):
        generator, local = stream(5, "minibatches", k), theta
        for _ in range(2):
            local = epoch_by_hand(world, k, local, 0.05, generator)
        finals.append(local)
    for name, value in simulation.server.state["model"].items():
        expected = sum(n / 26 * local[name] for n, local in zip((11, 6, 9), finals, strict=True))
        torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)


def two_rounds(world: Federation, name: str, params: dict[str, Any]) -> tuple[Params, Params, Simulation]:
    """The server's model at first and after a round, and the exchange after two."""
    method = METHODS.build(name, params)
    config = method.protocol(TrainConfig(rounds=3, local_epochs=2, batch_size=3, weight_decay=0.0))
    simulation, _ = set_up(world, method, [BACKBONES.build("gin", SMALL)], config, 5)
    (phase,) = method.phases(config)
    models = []
    for number in (1, 2):
        models.append({n: v.clone() for n, v in simulation.server.state["model"].items()})
        simulation.round(phase, number)
    return models[0], models[1], simulation


@pytest.mark.parametrize("name", ["scaffold", "feddc"])
def test_corrections_divide_by_the_number_of_steps(name: str, labelled_sets: Make) -> None:
    """Two rounds by hand. SCAFFOLD: c_k is (x - y) / (steps lr), c their mean, gradients get c - c_k. FedDC without
    drift penalty: v_k is y - x, v their mean, gradients get (v_k - v) / (steps lr)."""
    world, rate = labelled_sets((11, 6, 9)), 0.005  # two, one and two minibatches per epoch
    params = {"lr": rate} | ({"alpha": 0.0, "clip": None} if name == "feddc" else {})
    x, between, simulation = two_rounds(world, name, params)
    steps, generators = [4, 2, 4], [stream(5, "minibatches", k) for k in range(3)]
    moved: list[Params] = []
    for start in (x, between):
        mean = {n: sum(local[n] for local in moved) / 3 if moved else torch.zeros_like(v) for n, v in x.items()}
        if name == "scaffold" and moved:  # the mean of c_k, whose steps differ, and not of the updates
            mean = {n: sum(local[n] / s for local, s in zip(moved, steps, strict=True)) / 3 for n in x}
        ends = []
        for k in range(3):
            local, count = start, steps[k]
            if name == "scaffold":
                pull = {n: (moved[k][n] / count - mean[n] if moved else 0 * v) / rate for n, v in x.items()}
            else:
                pull = {n: (moved[k][n] - mean[n] if moved else 0 * v) / (rate * count) for n, v in x.items()}
            for _ in range(2):
                local = epoch_by_hand(world, k, local, rate, generators[k], pull)
            ends.append(local)
        moved = [{n: local[n] - start[n] for n in local} for local in ends]
    for k in range(3):
        for n, value in simulation.client_batches[0].params.items():
            torch.testing.assert_close(value[k], ends[k][n], rtol=1e-3, atol=1e-5)


def test_rows_at_a_step_belong_to_its_graphs(labelled_sets: Make) -> None:
    """MOON contrasts with rows computed before training."""
    clients = cohort_of(labelled_sets((11, 6, 9)))
    frozen = clients.forward(training=False).embedding
    for _ in clients.steps():
        torch.testing.assert_close(frozen[clients.at], clients.forward(training=False).embedding)


# -- hidden labels and scores ------------------------------------------------------------------------------------------


def test_a_method_sees_labels_of_training_graphs_only(labelled_sets: Make) -> None:
    world = labelled_sets()
    seen = hide_labels(world)
    assert world.task == seen.task == "graph-classification"
    for shown, client in zip(seen.clients, world.clients, strict=True):
        assert torch.equal(shown.label, torch.where(client.masks["train"], client.label, HIDDEN))
    assert torch.equal(seen.whole.label != HIDDEN, world.masks["train"])


def test_scores_use_the_test_graphs_of_each_client(labelled_sets: Make) -> None:
    world = labelled_sets((16, 12, 20))
    simulation, evaluator = set_up(world, METHODS.build("fedavg"), [BACKBONES.build("gin", SMALL)], TrainConfig(), 5)
    scored = evaluator.score(simulation.models(), "global", "local")
    whole = evaluator.score(simulation.models(), "global", "global")
    union = evaluator.score(simulation.models(), "global", "union")
    params = simulation.server.state["model"]
    f1, right = [], []
    for k, client in enumerate(world.clients):
        test = client.masks["test"].nonzero().squeeze(1).tolist()
        guess = [int(by_hand(params, "gin", "sum", client.graphs[i])[1].argmax()) for i in test]
        truth = client.label[test].tolist()
        right += [a == b for a, b in zip(guess, truth, strict=True)]
        assert float(scored.test[k]) == pytest.approx(np.mean([a == b for a, b in zip(guess, truth, strict=True)]))
        f1.append(f1_score(truth, guess, average="macro", zero_division=0))
    assert scored.target.macro_f1(scored.predicted, "test") == pytest.approx(np.mean(f1))
    assert float(whole.test) == pytest.approx(np.mean(right)) == float(union.test)
    assert evaluator.describe("global", "local") == "accuracy of graphs, global model, local test, mean over clients"


def test_the_budget_has_the_steps_of_the_client_with_most_training_graphs(labelled_sets: Make) -> None:
    config = TrainConfig(rounds=2, local_epochs=3, batch_size=3)
    outcome = train(labelled_sets((11, 6, 9)), METHODS.build("fedavg"), [BACKBONES.build("gin", SMALL)], config, 0)
    assert outcome.budget_steps == outcome.model_steps == outcome.optimiser_steps == 2 * 3 * 2


def test_a_subclass_inherits_its_tasks_and_may_narrow_them(labelled_sets: Make) -> None:
    class Child(METHODS.cls("fedavg")):
        """As FedAvg."""

    class OfNodes(Child):
        """Uses edges."""

        tasks = ("node",)

    gin, config = [BACKBONES.build("gin", SMALL)], TrainConfig(rounds=1)
    assert train(labelled_sets(), Child(), gin, config, 0).rounds == 1
    with pytest.raises(Skip, match="is defined for node classification, not for graph classification"):
        train(labelled_sets(), OfNodes(), gin, config, 0)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"delivers": "persnal"}, "unknown Wrong.delivers 'persnal'; did you mean 'personal'"),
        ({"features": "spars"}, "unknown Wrong.features 'spars'; did you mean 'sparse'"),
        ({"tasks": ("nodes",)}, "unknown task of Wrong 'nodes'; did you mean 'node'"),
        ({"agregate": TorchMethod.aggregate}, "Wrong.agregate overrides nothing: did you mean aggregate?"),
        ({"tasks": "node"}, "Wrong.tasks is a tuple of names: write tasks = ('node',)"),
    ],
)
def test_a_wrong_class_attribute_is_one_line(attributes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        type("Wrong", (TorchMethod,), attributes | {"__doc__": "Wrong.", "__module__": __name__})
    assert str(caught.value).startswith(message)


def test_a_function_of_a_methods_own_may_have_nearly_the_name_of_a_hook() -> None:
    class Helped(METHODS.cls("fedavg")):
        def local_losses(self, clients):
            return super().local_loss(clients)

        def client(self, clients):
            return clients.fit(lambda clients: self.local_losses(clients))

        def _agregate(self):
            pass

    class Both(METHODS.cls("fedavg")):
        def aggregate(self, server, models):
            return models

        def aggregates(self):
            pass


def test_an_attribute_set_in_a_run_is_one_line() -> None:
    method = METHODS.build("fedavg")
    with pytest.raises(UserError, match=r"FedAvg.counter cannot be set in a run: keep what changes in `client.state`"):
        method.counter = 3
