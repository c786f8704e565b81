"""The reference that counts labels: against scikit-learn on counts made by hand, and what it does without classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.train import set_up
from fglbench.datasets.federation import Federation, GraphClient
from fglbench.methods import METHODS

Make = Callable[..., Federation]


def one_hot(world: Federation) -> Federation:
    """Nodes labelled by their degree, 1 to 8, beside a constant that is no label."""
    for graph in world.whole.graphs:  # type: ignore[union-attr]
        degree = torch.nn.functional.one_hot(graph.in_degrees().clamp(max=8), 9).float()
        graph.ndata["feat"] = torch.cat([degree, torch.full((len(degree), 1), 0.5)], 1)
    return world


def predicted(world: Federation, size: int | None = None) -> list[torch.Tensor]:
    gin = BACKBONES.build("gin", {"hidden": 4})
    simulation, evaluator = set_up(world, METHODS.build("count-classifier"), [gin], TrainConfig(), 0, size)
    scored = evaluator.score(simulation.models(), "personal", "local")
    assert scored is not None and scored.predicted is not None
    return list(scored.predicted.split([len(own.graphs) for own in world.clients]))  # type: ignore[union-attr]


@pytest.mark.parametrize("size", [None, 1])
def test_it_is_a_logistic_regression_on_logs_of_counts(size: int | None, labelled_sets: Make) -> None:
    world = one_hot(labelled_sets((12, 9, 10)))
    for client, found in zip(world.clients, predicted(world, size), strict=True):
        assert isinstance(client, GraphClient)
        rows = np.array(
            [[np.log1p(sum(d == c for d in graph.in_degrees().tolist())) for c in range(9)] for graph in client.graphs]
        )
        train = client.masks["train"].numpy()
        fitted = LogisticRegression(max_iter=1000).fit(rows[train], client.label.numpy()[train])
        assert found.tolist() == fitted.predict(rows).tolist()


def test_two_classes_one_and_none(labelled_sets: Make) -> None:
    world = one_hot(labelled_sets((12, 9, 10)))
    first, second, third = world.clients
    assert isinstance(first, GraphClient) and isinstance(second, GraphClient) and isinstance(third, GraphClient)
    two = torch.where(first.label == 0, 2, first.label)  # classes 1 and 2 alone
    nobody = {**third.masks, "train": torch.zeros_like(third.masks["train"])}
    clients = [
        replace(first, label=two), replace(second, label=torch.full_like(second.label, 2)), replace(third, masks=nobody)
    ]  # fmt: skip
    found = predicted(replace(world, clients=clients))
    train = first.masks["train"]
    assert set(found[0].tolist()) <= {1, 2} and (found[0] == two)[train].float().mean() > 0.7
    assert set(found[1].tolist()) == {2} and set(found[2].tolist()) == {0}
