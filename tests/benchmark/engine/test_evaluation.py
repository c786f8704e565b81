"""Scores counted by hand, the four model x data figures, selection by validation only, early stopping, clustering."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import dgl
import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, roc_auc_score

from fglbench.benchmark.contract.trial import labelled_graphs
from fglbench.benchmark.engine import Skip, TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.evaluate import Models, Scored
from fglbench.benchmark.engine.graphs import clustering
from fglbench.benchmark.engine.graphs.clustering import ClusteringEvaluator, k_means, matched
from fglbench.benchmark.engine.outcome import BestRound, Outcome, Round
from fglbench.benchmark.engine.simulation import Simulation
from fglbench.benchmark.engine.target import Target, macro_f1
from fglbench.benchmark.engine.train import train
from fglbench.benchmark.engine.views import union_client
from fglbench.datasets import PARTITIONS, SPLITS, build_federation
from fglbench.datasets.federation import Federation, NodeClient
from fglbench.methods import METHODS
from fglbench.registry import UserError

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
    accuracy = target.accuracy(predicted, "test")
    assert accuracy[:2].tolist() == [0.75, 0.5] and accuracy[2].isnan()
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
    areas = target.roc_auc(margin, "test")
    for client in (0, 1):
        positives, negatives = (margin[(owner == client) & (label == c)] for c in (1, 0))
        pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in positives for b in negatives]
        assert float(areas[client]) == pytest.approx(sum(pairs) / len(pairs))
        assert float(areas[client]) == pytest.approx(roc_auc_score(label[owner == client], margin[owner == client]))
    assert areas[2].isnan()


def scored_by_area(plain: Federation) -> Outcome:
    """Validation and score are the area; all other results are unchanged."""
    scored = replace(plain, whole=replace(plain.whole, scored_by="roc_auc"))
    by_accuracy, by_area = run(plain, rounds=3, select="last"), run(scored, rounds=3, select="last")
    assert by_area.score == by_area.roc_auc == by_accuracy.roc_auc != by_accuracy.score
    assert by_area.val != by_accuracy.val and by_area.macro_f1 == by_accuracy.macro_f1
    return by_area


def test_a_dataset_scored_by_roc_auc(federation: Make) -> None:
    """The score is its mean over the clients with both classes."""
    plain = federation(classes=2)
    outcome = scored_by_area(plain)
    assert outcome.score_metric == "ROC AUC, global model, local test, mean over clients"
    sizes = [int((c.graph.ndata["test_mask"]).sum()) for c in plain.clients]
    pairs = [(n, v) for n, v in zip(sizes, outcome.per_client["score"], strict=True) if v == v]
    assert outcome.score == pytest.approx(sum(v for _, v in pairs) / len(pairs))
    assert outcome.score_weighted == pytest.approx(sum(n * v for n, v in pairs) / sum(n for n, _ in pairs))


@pytest.mark.parametrize("apart", [False, True], ids=["one set", "one set per client"])
def test_a_set_of_graphs_scored_by_roc_auc(apart: bool) -> None:
    plain = labelled_graphs()
    if apart:  # as the assays of Tox21: two classes per client
        whole, split = plain.whole, SPLITS.build("ratio", {"train": 0.5, "val": 0.2, "test": 0.3})
        owner = torch.arange(140) // 35
        whole = replace(whole, owner=owner, spaces=((6, 2),) * 4)
        plain = build_federation(whole, PARTITIONS.build("own"), split, 4, 0)
    metric = scored_by_area(plain).score_metric
    assert metric == "ROC AUC of graphs, global model, local test, mean over clients"


def test_many_classes_have_no_roc_auc(federation: Make) -> None:
    assert run(federation(classes=3), rounds=1).roc_auc is None


def test_one_client_with_the_whole_graph_has_one_score(federation: Make) -> None:
    out = run(federation((24,)), rounds=4)
    assert len({round(v, 6) for v in out.matrix.values() if v is not None}) == 1
    assert out.score == pytest.approx(out.matrix["global_on_local"])


@pytest.mark.parametrize(
    ("model", "data", "column"),
    [("global", "local", "global_on_local"), ("global", "global", "global_on_global"),
     ("personal", "local", "personal_on_local"), ("personal", "global", "personal_on_global")],
)  # fmt: skip
def test_the_score_is_the_one_of_the_protocol(model: str, data: str, column: str, federation: Make) -> None:
    out = run(federation(), rounds=6, model=model, data=data)
    assert out.score == pytest.approx(out.matrix[column])


@pytest.mark.parametrize(
    ("method", "how", "model"),
    [
        ("fedstruct", {}, "global"),
        ("fedstruct", {}, "personal"),
        ("fedppn", {"optimiser": "sgd", "lr": 0.02}, "personal"),
    ],
)
def test_the_other_figures_are_of_the_best_round_too(method: str, how: dict, model: str, federation: Make) -> None:
    """Also if the method changes its model in place, or predicts by what a client last received."""
    out = run(federation((40, 30, 35)), method, rounds=20, model=model, data="local", **{"lr": 0.2} | how)
    assert out.best_round < out.rounds
    assert out.score == pytest.approx(out.matrix[f"{model}_on_local"])


def test_test_labels_do_not_change_the_selection(federation: Make) -> None:
    world = federation()

    def scrambled(graph: dgl.DGLGraph) -> dgl.DGLGraph:
        graph = graph.local_var()
        mask = graph.ndata["test_mask"]
        graph.ndata["label"] = torch.where(mask, (graph.ndata["label"] + 1) % 3, graph.ndata["label"])
        return graph

    clients = [NodeClient(scrambled(c.graph), c.feat) for c in world.clients if isinstance(c, NodeClient)]
    a, b = run(world, rounds=12), run(replace(world, clients=clients), rounds=12)
    assert a.best_round == b.best_round and a.history["val"] == b.history["val"] and a.score != b.score


def test_the_best_round_is_the_first_best_and_bytes_are_counted_to_it(federation: Make) -> None:
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


def test_the_union_graph_has_the_nodes_and_edges_of_clients(federation: Make) -> None:
    """Two overlapping clients of a path 0-1-2-3-4: {0, 1, 2} and {2, 3}; node 4 and edge 3-4 are lost."""
    world = federation((5,))
    path = dgl.graph(([0, 1, 1, 2, 2, 3, 3, 4], [1, 0, 2, 1, 3, 2, 4, 3]))
    whole = replace(world.whole, graph=path)
    clients = []
    for ids in ([0, 1, 2], [2, 3]):
        part = dgl.node_subgraph(path, ids)
        part.ndata["global_id"] = torch.tensor(ids)
        clients.append(NodeClient(part, torch.zeros(len(ids), 1)))
    union = union_client(replace(world, whole=whole, clients=clients))
    assert union.graph.ndata["global_id"].tolist() == [0, 1, 2, 3]
    assert sorted(zip(*(e.tolist() for e in union.graph.edges()), strict=True)) == [
        (0, 1),
        (1, 0),
        (1, 2),
        (2, 1),
        (2, 3),
        (3, 2),
    ]


def test_several_architectures_are_skipped_with_the_reason(federation: Make) -> None:
    backbones = [BACKBONES.build("gcn"), BACKBONES.build("gat")]
    with pytest.raises(Skip, match="cannot mix architectures"):
        train(federation(), METHODS.build("fedavg"), backbones, TrainConfig(rounds=1), 0)


EMPTY = Target({}, {}, {}, 0)


def run_early_stopping(config: TrainConfig, *values: float, loss: tuple[float, ...] = ()) -> BestRound:
    selection, model = BestRound(config), torch.zeros(1)
    for number, value in enumerate(values, 1):
        model.fill_(number)
        figures = {"val": value} | ({"val_loss": loss[number - 1]} if loss else {})
        scored = Scored(torch.empty(0), torch.empty(0), None, None, EMPTY)
        selection.add(Round(number, figures, scored, Models(None, [{"w": model}])))
        if selection.stops:
            break
    return selection


@pytest.mark.parametrize(
    ("settings", "values", "loss", "best"),
    [
        ({}, (0.5, 0.7, 0.7), (), 2),  # the first of equals
        ({"select_by": "val_loss"}, (0.5, 0.7, 0.6), (2.0, 3.0, 1.0), 3),
        ({"select_by": "last"}, (0.9, 0.7, 0.5), (), 3),
        ({}, (math.nan, math.nan), (), 2),  # no client has a validation node
        ({"select_by": "val_loss"}, (0.5, 0.5), (math.inf, math.inf), 1),
    ],
)
def test_the_selected_round(settings: dict, values: tuple, loss: tuple, best: int) -> None:
    selection = run_early_stopping(TrainConfig(**settings), *values, loss=loss)
    assert selection.best.number == best and selection.rounds == len(values)
    assert selection.best.models.personal[0]["w"].item() == best  # the model of that round


def test_a_task_without_validation_loss_cannot_select_by_it() -> None:
    with pytest.raises(UserError, match="select_by=val_loss: the task computes no validation loss"):
        run_early_stopping(TrainConfig(select_by="val_loss"), 0.5)


def test_patience_counts_rounds_without_a_better_value() -> None:
    selection = run_early_stopping(TrainConfig(patience=2), 0.5, 0.6, 0.6, 0.4, 0.9)
    assert (selection.rounds, selection.best.number) == (4, 2)
    assert selection.history == {"round": [1, 2, 3, 4], "val": [0.5, 0.6, 0.6, 0.4]}


def test_matching_is_the_best_of_all_permutations() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        cluster, label = rng.integers(0, 4, 30), rng.integers(0, 4, 30)
        best = max(np.mean(np.array(order)[cluster] == label) for order in itertools.permutations(range(4)))
        assert np.mean(matched(cluster, label, 4) == label) == pytest.approx(best)


def test_one_outlier_gives_the_degenerate_figures_of_fclg_on_dhfr() -> None:
    """461 and 295 graphs: 61.11 and 38.25 follow from one graph of the smaller class alone in a cluster."""
    label = np.repeat([0, 1], [461, 295])
    rows = np.random.default_rng(0).normal(size=(756, 3))
    rows[500] = 1e4
    predicted = matched(k_means(rows, 2, 0), label, 2)
    assert round(100 * np.mean(predicted == label), 2) == 61.11
    assert round(100 * f1_score(label, predicted, average="macro"), 2) == 38.25


def test_k_means_finds_separate_blobs_and_accepts_equal_rows() -> None:
    rng = np.random.default_rng(0)
    label = rng.integers(0, 3, 60)
    rows = 50 * np.eye(3)[label] + rng.normal(size=(60, 3))
    assert (matched(k_means(rows, 3, 0), label, 3) == label).all()
    assert set(k_means(np.ones((5, 2)), 3, 0)) == {0}


def test_embeddings_do_not_depend_on_chunks_and_are_scaled_on_request(
    graph_sets: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, method = graph_sets(), METHODS.build("infograph-fedavg")
    backbones = method.architecture([BACKBONES.build("gin", {"hidden": 4, "layers": 2})])
    running = Simulation(method, method.arrange(world), backbones, TrainConfig(rounds=1), 5)
    running.round(method.phases(running.config)[0], 1)
    model = {name: value.unsqueeze(0) for name, value in running.server.state["model"].items()}
    evaluator = ClusteringEvaluator(method, world, method.arrange(world), running.client_batches)
    network = running.client_batches[0].network.select([0])
    whole = evaluator.embeddings(model, network)
    monkeypatch.setattr(clustering, "CHUNK", 5)
    torch.testing.assert_close(evaluator.embeddings(model, network), whole)
    assert whole.shape == (12, 8)
    scaled = method.model_copy(update={"scored_codes": "unit"})
    evaluator = ClusteringEvaluator(scaled, world, method.arrange(world), running.client_batches)
    torch.testing.assert_close(evaluator.embeddings(model, network), whole / whole.norm(dim=1, keepdim=True))
