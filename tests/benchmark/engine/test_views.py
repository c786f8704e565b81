"""A method gets no hidden label; steps are counted; a selection leads to no other client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from fglbench.benchmark.engine import GraphClientBatch, Network, Streams, TrainConfig, normalised
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.optim import StepCounter, counting
from fglbench.benchmark.engine.payload import Each, deliver
from fglbench.benchmark.engine.train import set_up, train
from fglbench.benchmark.engine.views import HIDDEN, Facts, hide_labels, union_client, unlabelled, whole_client
from fglbench.benchmark.store.schema import Row
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS
from fglbench.methods.parts.encoders import PersonalisedPageRank
from fglbench.registry import UserError

from ..reach import memory, reachable

Make = Callable[..., Federation]
GCN = [BACKBONES.build("gcn", {"hidden": 8})]


def test_a_method_sees_labels_of_training_nodes_only(federation: Make) -> None:
    world = federation((13, 7, 10))
    world.whole.graph.ndata["truth"] = world.whole.label.clone()  # not a column of the engine
    seen = hide_labels(world)
    assert not seen.whole.graph.ndata and "truth" in world.whole.graph.ndata
    for k, client in enumerate(seen.clients):
        truth = world.clients[k].graph.ndata
        for i, label in enumerate(client.graph.ndata["label"].tolist()):
            assert label == (int(truth["label"][i]) if truth["train_mask"][i] else HIDDEN)
    assert seen.whole.label.eq(HIDDEN).equal(~world.masks["train"])


@pytest.mark.parametrize("one_client", [whole_client, union_client])
def test_a_client_to_predict_on_has_no_label(federation: Make, one_client: Any) -> None:
    world = federation((13, 7, 10))
    world.whole.graph.ndata["truth"] = world.whole.label.clone()
    truth = one_client(world)
    shown = unlabelled(truth)
    assert shown.graph.ndata["label"].eq(HIDDEN).all() and "truth" not in shown.graph.ndata
    assert not memory(shown) & memory(truth.graph.ndata["label"], world.whole.label, world.masks)
    for name in ("global_id", "train_mask", "test_mask"):
        assert torch.equal(shown.graph.ndata[name], truth.graph.ndata[name])


@pytest.mark.parametrize("kind", ["federation", "graph_sets"])
def test_facts_are_counts_and_hold_nothing_of_the_data(kind: str, request: pytest.FixtureRequest) -> None:
    world: Federation = request.getfixturevalue(kind)((5, 8, 6))
    facts = Facts.of(world)
    assert (facts.task, facts.num_classes, facts.num_features) == (world.task, world.num_classes, world.num_features)
    assert (facts.size, [client_facts.size for client_facts in facts.clients]) == (len(world.whole.label), [5, 8, 6])
    for client_facts, client in zip(facts.clients, world.clients, strict=True):
        if kind == "federation":
            assert client_facts.parts == {
                p: int(client.graph.ndata[f"{p}_mask"].sum()) for p in ("train", "val", "test")
            }
            assert client_facts.degrees.tolist() == client.graph.in_degrees().tolist()
        else:
            assert client_facts.parts == {} and not len(client_facts.degrees)
    columns = [client.graph.ndata for client in world.clients] if kind == "federation" else []
    assert not memory(facts) & memory(world.whole.label, columns)


@pytest.mark.parametrize("kind", ["federation", "graph_sets", "labelled_sets"])
def test_no_object_of_the_blind_federation_leads_to_the_truth(kind: str, request: pytest.FixtureRequest) -> None:
    world: Federation = request.getfixturevalue(kind)((5, 8, 6))
    columns = [client.graph.ndata["label"] for client in world.clients] if world.task == "node" else []
    truth = memory(world.whole.label, columns, [client.label for client in world.clients] if not columns else None)
    assert truth and not memory(hide_labels(world)) & truth
    before = [world.whole.label.clone(), *(mask.clone() for mask in world.masks.values())]
    for item in reachable(hide_labels(world)):  # overwriting all of them changes nothing
        if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.int64):
            item.zero_()
    assert all(map(torch.equal, before, [world.whole.label, *world.masks.values()]))


def test_reach_finds_tensors_in_closures_methods_and_views() -> None:
    secret = torch.arange(4.0)

    class Holder:
        __slots__ = ("slot",)

        def say(self) -> None: ...

    array = np.asarray(secret)

    def closure(x: Any = array) -> Any:
        return x

    def inner() -> torch.Tensor:
        return secret

    holder = Holder()
    holder.slot = [{"a": (secret[1:],)}]
    for root in (closure, inner, holder, holder.say, secret[:1], {secret: 1}, lambda: holder):
        assert memory(root) & memory(secret)
    assert not memory(torch.arange(4.0), Holder.say, "text") & memory(secret)


@pytest.mark.parametrize("size", [None, 2, 1])
def test_a_selection_leads_to_no_other_client(federation: Make, size: int | None) -> None:
    world = federation((13, 7, 10, 9))
    config = TrainConfig(rounds=1, local_epochs=1)
    simulation, _ = set_up(world, METHODS.build("fedavg"), GCN, config, 0, size)
    for clients in simulation.client_batches:
        clients.streams("dropout")
        whole = torch.randn(sum(clients.batch.sizes), 2)
        clients.state["rows"] = clients.batch.per_client(whole)
        for position, client in enumerate(clients.ids):
            selection = clients.select([position]) if len(clients) > 1 else clients
            objects = set(map(id, reachable(selection)))
            other_clients = [k for k in range(4) if k != client]
            for other in simulation.client_batches:
                for place, owner in enumerate(other.ids):
                    drawn = other.streams.select([place])("dropout")
                    assert (id(drawn[0]) in objects) == (owner == client)
                    assert (id(other.members[place]) in objects) == (owner == client)
            assert not memory(selection) & memory(
                [simulation.client_batches[0].members[k] for k in other_clients if size is None]
            )
            assert memory(selection.state) != memory(whole) or len(clients) == 1


def test_a_selection_of_sets_of_graphs_has_a_separate_stack(graph_sets: Make) -> None:
    world = hide_labels(graph_sets((5, 3, 4)))
    streams = Streams(0, range(3), {})
    network = Network([BACKBONES.build("gin", {"hidden": 4})], range(3))
    clients = GraphClientBatch(world.clients, network, TrainConfig(batch_size=2), streams, 3, 4)
    diffusion = PersonalisedPageRank(0.2)
    for kind in (normalised, diffusion):
        clients.stack.operator(kind)
    selection = clients.select([2, 0])
    assert not memory(selection) & memory(clients.stack, world.clients[1])
    expected = clients.stack.batch([clients.held[2], clients.held[0]])
    actual = selection.stack.batch(selection.held)
    assert torch.equal(expected.x, actual.x)
    for kind in (normalised, diffusion):
        assert (expected.view(kind).scipy() != actual.view(kind).scipy()).nnz == 0
    third = selection.select([1]).stack
    assert (third.operator(diffusion) != clients.stack.batch([clients.held[0]]).view(diffusion).scipy()).nnz == 0


def test_a_delivered_row_is_not_a_view_of_those_of_others() -> None:
    rows = torch.arange(6.0)
    (row,) = deliver(Each({"x": list(rows.split(2))}, [0, 1, 2]), [1], [0, 1, 2])["x"]
    assert row.tolist() == [2, 3] and not memory(row) & memory(rows)


# -- predictions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda rows: rows[:-1], r"float32 of shape \(29, 3\), not one row of 3 numbers for each of 30 nodes"),
        (lambda rows: rows[:, :2], r"torch.float32 of shape \(30, 2\), not one row of 3"),
        (lambda rows: rows.argmax(1), r"torch.int64 of shape \(30,\)"),
        (lambda rows: rows.long(), r"torch.int64 of shape \(30, 3\)"),
        (lambda rows: rows.numpy(), "predicts ndarray"),
        (lambda rows: None, "predicts NoneType"),
        (lambda rows: torch.nn.Parameter(rows), "predicts Parameter"),
        (lambda rows: rows.to_sparse(), "predicts torch.float32"),
    ],
)
@pytest.mark.parametrize("data", ["local", "global"])
def test_a_malformed_prediction_is_one_line(federation: Make, answer: Any, message: str, data: str) -> None:
    fedavg = METHODS.cls("fedavg")
    odd = type("Odd", (fedavg,), {"predict": lambda self, *a: answer(fedavg.predict(self, *a)), "__module__": __name__})
    with pytest.raises(UserError, match=message) as caught:
        train(federation((13, 7, 10)), odd(), GCN, TrainConfig(rounds=1, score_on=data), 0)
    assert "\n" not in str(caught.value)


# -- steps -----------------------------------------------------------------------------------------------------------


def test_steps_by_hand() -> None:
    counter = StepCounter()
    for clients, names in [((0, 1), ("a", "b")), ((0,), ("a",)), ((1,), ("c",)), ((1,), ("c",)), ((), ("a",))]:
        counter.add(clients, names)
    assert counter.total == 5
    assert counter.most() == 4  # client 1: with 0, twice alone, and no client's
    assert counter.most(of_a_parameter=True) == 3  # client 0 on a: with 1, alone, and no client's
    assert StepCounter().most() == 0


@pytest.mark.parametrize(
    ("name", "params", "model", "every"),
    [
        ("fedavg", {}, 6, 6),
        ("local", {}, 6, 6),
        ("fml", {}, 6, 6),  # both models in one step
        ("adafgl", {"extractor_rounds": 1, "personal_epochs": 5}, 10, 12),  # 1 x 2 of the extractor, 2 x 5 of the heads
        ("fedsage+", {"generator_epochs": 3, "exchange_epochs": 4}, 7, 13),  # 3 joint, 4 of the generator, 6
    ],
)
def test_steps_of_a_run(federation: Make, name: str, params: dict[str, int], model: int, every: int) -> None:
    config = TrainConfig(rounds=3, local_epochs=2)
    out = train(federation((13, 9, 10)), METHODS.build(name, params), GCN, config, 0)
    assert (out.budget_steps, out.model_steps, out.optimiser_steps) == (6, model, every)


def test_a_counter_counts_steps_inside_its_context(federation: Make) -> None:
    simulation, _ = set_up(federation((13, 9)), METHODS.build("fedavg"), GCN, TrainConfig(rounds=1), 0)
    method = simulation.method
    with counting() as outer:
        (clients,) = simulation.client_batches
        clients.fit(method.local_loss, 2)
        with counting() as inner:
            clients.fit(method.local_loss, 3)
    clients.fit(method.local_loss, 5)
    assert (outer.total, inner.total) == (2, 3)


# -- the budget of a row ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, ""),
        ({"rounds": 10, "model_steps": 30, "optimiser_steps": 60, "budget_steps": 30}, ""),
        ({"rounds": 11}, "11 scored rounds, 10 given"),
        ({"model_steps": 31, "budget_steps": 30}, "31 steps of a model, 30 given"),
        ({"optimiser_steps": 61, "budget_steps": 30}, "61 optimiser steps, 60 given"),
        ({"optimiser_steps": 10**6}, ""),  # the budget is unknown
        ({"effective_training": '{"participation":1.0}'}, "1 of the clients in a round, 0.5 given"),
        ({"effective_training": '{"participation":0.2,"rounds":99}'}, ""),  # rounds are those that were run
        ({"training": "[[[", "rounds": 99, "effective_training": "[]"}, ""),
        ({"training": '{"rounds":"x"}', "rounds": 10**400}, ""),
    ],
)
def test_excess_over_the_budget_of_a_row(values: dict[str, Any], message: str) -> None:
    base = {"training": '{"rounds":10,"local_epochs":3,"participation":0.5}', "rounds": 10}
    row = Row.model_construct(**{**base, **values})
    assert row.over_budget == message
