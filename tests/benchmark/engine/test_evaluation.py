"""Scores counted by hand, the four model x data figures, selection by validation only, early stopping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score

from fglbench.benchmark.contract.trial import labelled_graphs
from fglbench.benchmark.engine import Outcome, Skip, TrainConfig, train
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.target import Target, macro_f1
from fglbench.benchmark.engine.views import union_client
from fglbench.datasets import PARTITIONS, SPLITS, build_federation
from fglbench.datasets.federation import Federation, GraphClient, GraphSetData, NodeClient
from fglbench.methods import METHODS

Make = Callable[..., Federation]


def run(
    world: Federation, method: str = "fedavg", params: dict[str, Any] | None = None, seed: int = 0, **config: Any
) -> Outcome:
    return train(
        world, METHODS.build(method, params), [BACKBONES.build("gcn", {"hidden": 8})], TrainConfig(**config), seed
    )


def test_accuracy_and_macro_f1_by_hand() -> None:
    label = torch.tensor([0, 0, 1, 2, 1, 1])
    predicted = torch.tensor([0, 1, 1, 2, 0, 1])
    rows = torch.arange(6)
    owner = torch.tensor([0, 0, 0, 0, 1, 1])
    target = Target({"val": rows, "test": rows}, {"val": owner, "test": owner}, {"val": label, "test": label}, 3)
    found = target.accuracy(predicted, "test")
    assert found[:2].tolist() == [0.75, 0.5] and found[2].isnan()
    first = (2 / 3 + 2 / 3 + 1) / 3  # F1 of classes 0, 1, 2 for client 0
    second = (0 + 2 / 3) / 2  # client 1: class 0 predicted once, never true; class 1 once of two
    assert target.macro_f1(predicted, "test") == pytest.approx((first + second) / 2)
    assert second == pytest.approx(f1_score([1, 1], [0, 1], average="macro", zero_division=0))


@pytest.mark.parametrize("seed", range(20))
def test_macro_f1_has_the_digits_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    label, predicted = rng.integers(0, rng.integers(1, 40), (2, rng.integers(1, 300)))
    assert macro_f1(label, predicted) == f1_score(label, predicted, average="macro", zero_division=0)


def test_global_method_is_scored_on_each_clients_own_nodes_of_the_whole_graph(federation: Make) -> None:
    out = run(federation(), "global", rounds=5)
    assert len(out.per_client["score"]) == 3 and out.upload_bytes == out.download_bytes == 0
    assert out.score == pytest.approx(sum(out.per_client["score"]) / 3)


def test_score_weighted_weighs_by_test_nodes(federation: Make) -> None:
    world = federation()
    out = run(world, rounds=3)
    counts = [int(c.graph.ndata["test_mask"].sum()) for c in world.clients if isinstance(c, NodeClient)]
    expected = sum(n * a for n, a in zip(counts, out.per_client["score"], strict=True)) / sum(counts)
    assert out.score_weighted == pytest.approx(expected)


def test_the_area_under_the_roc_curve_is_the_share_of_pairs_in_order() -> None:
    """Of all pairs of one node of each class; a tie is half a pair (Hanley and McNeil, Radiology 1982)."""
    draw = torch.Generator().manual_seed(0)
    label, owner = torch.randint(2, (90,), generator=draw), torch.arange(90) % 3
    label[owner == 2] = 1  # one class only
    margin = torch.randint(8, (90,), generator=draw).float()  # with ties
    rows = torch.arange(90)
    target = Target({"test": rows}, {"test": owner}, {"test": label}, 3)
    found = target.roc_auc(margin, "test")
    for client in (0, 1):
        own, other = (margin[(owner == client) & (label == c)] for c in (1, 0))
        pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in own for b in other]
        assert float(found[client]) == pytest.approx(sum(pairs) / len(pairs))
        assert float(found[client]) == pytest.approx(roc_auc_score(label[owner == client], margin[owner == client]))
    assert found[2].isnan()


def test_a_dataset_scored_by_roc_auc(federation: Make) -> None:
    """Validation and score are its mean over the clients with both classes; all else of the run is as it was."""
    plain = federation(classes=2)
    scored = replace(plain, whole=replace(plain.whole, scored_by="roc_auc"))
    by_accuracy, by_area = run(plain, rounds=3, select="last"), run(scored, rounds=3, select="last")
    assert by_area.score_metric == "ROC AUC, global model, local test, mean over clients"
    assert by_area.score == by_area.roc_auc == by_accuracy.roc_auc != by_accuracy.score
    assert by_area.val != by_accuracy.val and by_area.macro_f1 == by_accuracy.macro_f1
    known = [value for value in by_area.per_client["score"] if value == value]
    assert by_area.score == pytest.approx(sum(known) / len(known))
    sizes = [int((c.graph.ndata["test_mask"]).sum()) for c in plain.clients]
    pairs = [(n, v) for n, v in zip(sizes, by_area.per_client["score"], strict=True) if v == v]
    assert by_area.score_weighted == pytest.approx(sum(n * v for n, v in pairs) / sum(n for n, _ in pairs))


@pytest.mark.parametrize("apart", [False, True], ids=["one set", "one set per client"])
def test_a_set_of_graphs_scored_by_roc_auc(apart: bool) -> None:
    plain = labelled_graphs()
    if apart:  # as the assays of Tox21: each client has two classes of its own
        whole, split = plain.whole, SPLITS.build("ratio", {"train": 0.5, "val": 0.2, "test": 0.3})
        owner = torch.arange(140) // 35
        whole = replace(whole, owner=owner, spaces=((6, 2),) * 4)  # type: ignore[type-var]
        plain = build_federation(whole, PARTITIONS.build("own"), split, 4, 0)
    scored = replace(plain, whole=replace(plain.whole, scored_by="roc_auc"))
    by_accuracy, by_area = run(plain, rounds=3, select="last"), run(scored, rounds=3, select="last")
    assert by_area.score_metric == "ROC AUC of graphs, global model, local test, mean over clients"
    assert by_area.score == by_area.roc_auc == by_accuracy.roc_auc != by_accuracy.score
    assert by_area.val != by_accuracy.val and by_area.macro_f1 == by_accuracy.macro_f1


def test_many_classes_have_no_roc_auc(federation: Make) -> None:
    assert run(federation(classes=3), rounds=1).roc_auc is None


def test_one_client_on_its_whole_graph_has_one_answer(federation: Make) -> None:
    out = run(federation((24,)), rounds=4)
    assert len({round(v, 6) for v in out.matrix.values() if v is not None}) == 1
    assert out.score == pytest.approx(out.matrix["global_on_local"])


@pytest.mark.parametrize(
    ("model", "data", "column"),
    [("global", "local", "global_on_local"), ("global", "global", "global_on_global"),
     ("personal", "local", "personal_on_local"), ("personal", "global", "personal_on_global")],
)  # fmt: skip
def test_the_protocols_choice_is_the_score(model: str, data: str, column: str, federation: Make) -> None:
    out = run(federation(), rounds=6, model=model, data=data)
    assert out.score == pytest.approx(out.matrix[column])


def test_test_labels_play_no_part_in_selection(federation: Make) -> None:
    world = federation()

    def scrambled(graph: dgl.DGLGraph) -> dgl.DGLGraph:
        graph = graph.local_var()
        mask = graph.ndata["test_mask"]
        graph.ndata["label"] = torch.where(mask, (graph.ndata["label"] + 1) % 3, graph.ndata["label"])
        return graph

    clients = [NodeClient(scrambled(c.graph), c.feat) for c in world.clients if isinstance(c, NodeClient)]
    a, b = run(world, rounds=12), run(replace(world, clients=clients), rounds=12)
    assert a.best_round == b.best_round and a.history["val"] == b.history["val"] and a.score != b.score


def test_best_round_is_the_first_best_and_bytes_go_up_to_it(federation: Make) -> None:
    out = run(federation(), rounds=12)
    values = out.history["val"]
    assert out.best_round == values.index(max(values)) + 1
    assert out.score == out.history["score"][out.best_round - 1]
    assert out.upload_bytes_best == out.upload_bytes // 12 * out.best_round
    assert run(federation(), rounds=12, select_by="last").best_round == 12


def test_early_stopping_waits_for_patience(federation: Make) -> None:
    full, short = run(federation(), rounds=60), run(federation(), rounds=60, patience=4)
    assert short.rounds == short.best_round + 4 < full.rounds == 60
    assert short.history["val"] == full.history["val"][: short.rounds]


def test_clients_without_training_nodes_weigh_nothing(federation: Make) -> None:
    world = federation((13, 7, 10), without_train=(1,))
    pair = replace(world, clients=[world.clients[0], world.clients[2]])
    a, b = run(world, rounds=1), run(pair, rounds=1)
    assert a.per_client["score"][0] == b.per_client["score"][0] and len(a.per_client["score"]) == 3


def test_union_holds_what_clients_hold_together(federation: Make) -> None:
    """Two overlapping clients of a path 0-1-2-3-4: {0, 1, 2} and {2, 3}; node 4 and edge 3-4 are lost."""
    world = federation((5,))
    path = dgl.graph(([0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]))
    whole = replace(world.whole, graph=path)
    clients = []
    for ids in ([0, 1, 2], [2, 3]):
        part = dgl.node_subgraph(path, ids)
        part.ndata["global_id"] = torch.tensor(ids)
        clients.append(NodeClient(part, torch.zeros(len(ids), 1)))
    one = union_client(replace(world, whole=whole, clients=clients))
    assert one.graph.ndata["global_id"].tolist() == [0, 1, 2, 3]
    assert sorted(zip(*(e.tolist() for e in one.graph.edges()), strict=True)) == [
        (0, 1),
        (1, 0),
        (1, 2),
        (2, 1),
        (2, 3),
        (3, 2),
    ]


def test_skips_say_why(federation: Make) -> None:
    world = federation()
    pair = dgl.graph(([0], [1]))
    pair.ndata["feat"] = torch.ones(2, 1)
    graphs = GraphSetData("g", [pair], torch.tensor([0]), 1, "", "generated")
    sets = Federation(graphs, [GraphClient(graphs.graphs, graphs.label, torch.tensor([0]))], {}, "", 0)
    with pytest.raises(Skip, match="fedavg is defined for node classification"):
        run(sets)
    with pytest.raises(Skip, match="cannot mix architectures"):
        train(
            world, METHODS.build("fedavg"), [BACKBONES.build("gcn"), BACKBONES.build("gat")], TrainConfig(rounds=1), 0
        )
