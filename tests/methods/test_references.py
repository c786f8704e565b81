"""The references by loops and against scikit-learn: majority, clusters, counts of labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbone import Network
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.graphs.graphsets import GraphStack
from fglbench.benchmark.engine.train import set_up, train
from fglbench.datasets.federation import Federation
from fglbench.methods import METHODS

from .rounds import Make


def by_hand(world: Federation) -> list[float]:
    """Test accuracy per client of its most frequent training class."""
    scores = []
    for client in world.clients:
        label, train, test = (client.graph.ndata[key].tolist() for key in ("label", "train_mask", "test_mask"))
        seen = Counter(c for c, in_train in zip(label, train, strict=True) if in_train)
        named = min(seen, key=lambda c: (-seen[c], c)) if seen else 0
        asked = [c for c, in_test in zip(label, test, strict=True) if in_test]
        scores.append(sum(c == named for c in asked) / len(asked) if asked else float("nan"))
    return scores


@pytest.mark.parametrize("kinds", [["gcn"], ["gcn", "gat"]])
@pytest.mark.parametrize("size", [None, 1])
def test_majority_is_the_most_frequent_training_class(kinds: list[str], size: int | None, federation: Make) -> None:
    world = federation((13, 7, 10, 9, 8), without_train=(3,))
    backbones = [BACKBONES.build(kind, {"hidden": 4}) for kind in kinds]
    run = train(world, METHODS.build("majority"), backbones, TrainConfig(rounds=50), 0, clients_per_batch=size)
    expected = by_hand(world)
    np.testing.assert_allclose(run.per_client["score"], expected, rtol=1e-6)
    assert run.score == pytest.approx(np.nanmean(expected), rel=1e-6)
    assert (run.rounds, run.upload_bytes, run.download_bytes) == (1, 0, 0)
    assert run.global_on_local is None


def test_one_cluster_is_the_share_of_the_largest_class(graph_sets: Make) -> None:
    world = graph_sets()
    run = train(world, METHODS.build("one-cluster"), [BACKBONES.build("gin")], TrainConfig(rounds=50), 0)
    assert run.score == pytest.approx(max(Counter(world.whole.label.tolist()).values()) / len(world.whole.label))
    assert (run.rounds, run.upload_bytes, run.download_bytes) == (1, 0, 0)


@pytest.mark.parametrize("counts", ["plain", "log", "shares"])
@pytest.mark.parametrize("labelled", [True, False])
def test_label_counts_by_loops(counts: str, labelled: bool, graph_sets: Make) -> None:
    """Graphs with three labels and an attribute, or with two attributes, which are summed."""
    world, source = graph_sets(), np.random.default_rng(0)
    graphs, expected = [], []
    for graph in world.whole.graphs:
        n = graph.num_nodes()
        kind, attribute = source.integers(0, 3, n), source.random((n, 2)).astype(np.float32)
        feat: Any = np.concatenate([np.eye(3, dtype=np.float32)[kind], attribute[:, :1]], 1) if labelled else attribute
        graph = graph.local_var()
        graph.ndata["feat"] = torch.from_numpy(feat)
        graphs.append(graph)
        numbers = [float((kind == k).sum()) for k in range(3)] if labelled else attribute.sum(0).tolist()
        of = {"plain": lambda v, n: v, "log": lambda v, n: float(np.log(1 + v)), "shares": lambda v, n: v / n}[counts]
        expected.append([of(v, n) for v in numbers])
    method = METHODS.build("label-counts", {"counts": counts})
    picks = np.array([4, 0, 2])
    batch = GraphStack(graphs).batch([picks])
    codes = method.embed({}, Network([BACKBONES.build("gin")], [0]), batch)
    np.testing.assert_allclose(codes.numpy(), np.array(expected)[picks], rtol=1e-5)


def one_hot(world: Federation) -> Federation:
    """Nodes labelled by their degree, 1 to 8, and a constant that is no label."""
    for graph in world.whole.graphs:
        degree = torch.nn.functional.one_hot(graph.in_degrees().clamp(max=8), 9).float()
        graph.ndata["feat"] = torch.cat([degree, torch.full((len(degree), 1), 0.5)], 1)
    return world


def predicted(world: Federation, size: int | None = None) -> list[torch.Tensor]:
    gin = BACKBONES.build("gin", {"hidden": 4})
    simulation, evaluator = set_up(world, METHODS.build("count-classifier"), [gin], TrainConfig(), 0, size)
    scored = evaluator.score(simulation.models(), "personal", "local")
    assert scored is not None and scored.predicted is not None
    return list(scored.predicted.split([len(client.graphs) for client in world.clients]))


@pytest.mark.parametrize("size", [None, 1])
def test_count_classifier_is_a_logistic_regression_on_log_counts(size: int | None, labelled_sets: Make) -> None:
    world = one_hot(labelled_sets((12, 9, 10)))
    for client, labels in zip(world.clients, predicted(world, size), strict=True):
        rows = np.array(
            [[np.log1p(sum(d == c for d in graph.in_degrees().tolist())) for c in range(9)] for graph in client.graphs]
        )
        train = client.masks["train"].numpy()
        fitted = LogisticRegression(max_iter=1000).fit(rows[train], client.label.numpy()[train])
        assert labels.tolist() == fitted.predict(rows).tolist()


def test_clients_with_two_classes_one_or_none(labelled_sets: Make) -> None:
    world = one_hot(labelled_sets((12, 9, 10)))
    first, second, third = world.clients
    two = torch.where(first.label == 0, 2, first.label)  # classes 1 and 2 alone
    nobody = {**third.masks, "train": torch.zeros_like(third.masks["train"])}
    clients = [
        replace(first, label=two), replace(second, label=torch.full_like(second.label, 2)), replace(third, masks=nobody)
    ]  # fmt: skip
    predictions = predicted(replace(world, clients=clients))
    train = first.masks["train"]
    assert set(predictions[0].tolist()) <= {1, 2} and (predictions[0] == two)[train].float().mean() > 0.7
    assert set(predictions[1].tolist()) == {2} and set(predictions[2].tolist()) == {0}
