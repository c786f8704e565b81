"""What differs between tasks: node classification, clustering of graphs, graph classification, link prediction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ...datasets.federation import Federation, Goal, GraphClient, LinkClient, NodeClient
from .backbones import Backbone
from .client_batch import ClientBatch
from .config import TrainConfig
from .evaluate import Evaluator
from .graphs.classification import GraphEvaluator, LabelledClientBatch
from .graphs.clustering import ClusteringEvaluator, GraphClientBatch
from .graphs.graphmodel import graph_models
from .links import LinkClientBatch, LinkEvaluator, link_models
from .minibatches import cut
from .sampled_batch import SampledClientBatch


@dataclass(frozen=True)
class Task:
    """The classes and rules of one task.

    `cohort`: holds the clients' data. evaluator: scores. sizes: (K,) aggregation weights before normalisation. epoch:
    most optimiser steps that a client takes per epoch. models: adapts the architectures that a method runs with.
    minibatches: the `cohort` where the configuration has a batch size.
    """

    cohort: type[ClientBatch]
    evaluator: type[Evaluator]
    sizes: Callable[[Federation, TrainConfig], torch.Tensor]
    epoch: Callable[[Federation, TrainConfig], int]
    models: Callable[[Sequence[Backbone]], Sequence[Backbone]] = tuple
    minibatches: type[ClientBatch] | None = None

    def client_batch(self, config: TrainConfig) -> type[ClientBatch]:
        """The class of the client batches of a run."""
        return self.minibatches if self.minibatches and config.batch_size else self.cohort


def _node_sizes(federation: Federation, config: TrainConfig) -> torch.Tensor:
    clients = [c for c in federation.clients if isinstance(c, NodeClient)]
    held = [c.graph.num_nodes() for c in clients]
    return _weights(held, [int(c.graph.ndata["train_mask"].sum()) for c in clients], config)


def _graph_sizes(federation: Federation, config: TrainConfig) -> torch.Tensor:
    return _weights(*_graph_counts(federation), config)


def _link_sizes(federation: Federation, config: TrainConfig) -> torch.Tensor:
    clients = [c for c in federation.clients if isinstance(c, LinkClient)]
    return _weights([c.graph.num_nodes() for c in clients], [int(c.masks["train"].sum()) for c in clients], config)


def _weights(held: list[int], train: list[int], config: TrainConfig) -> torch.Tensor:
    """(K,) what `config.weighting` asks for; 0 for a client that has nothing to train on."""
    chosen = {"nodes": held, "train_nodes": train, "uniform": [1] * len(held)}[config.weighting]
    return torch.tensor([n if t else 0 for n, t in zip(chosen, train, strict=True)], dtype=torch.float32)


def _graph_counts(federation: Federation) -> tuple[list[int], list[int]]:
    """Return each client's number of graphs, and of training graphs (all graphs if no label is used)."""
    clients = [c for c in federation.clients if isinstance(c, GraphClient)]
    held = [len(c.graphs) for c in clients]
    train = [int(c.masks["train"].sum()) if c.masks else n for c, n in zip(clients, held, strict=True)]
    return held, train


def _graph_steps(federation: Federation, config: TrainConfig) -> int:
    return _steps(_graph_counts(federation)[1], config)


def _node_steps(federation: Federation, config: TrainConfig) -> int:
    clients = [c for c in federation.clients if isinstance(c, NodeClient)]
    return _steps([int(c.graph.ndata["train_mask"].sum()) for c in clients], config)


def _steps(train: list[int], config: TrainConfig) -> int:
    return max(len(cut(np.arange(n), config.batch_size)) for n in train)


TASKS: dict[Goal, Task] = {
    "node": Task(ClientBatch, Evaluator, _node_sizes, _node_steps, minibatches=SampledClientBatch),
    "graph": Task(GraphClientBatch, ClusteringEvaluator, _graph_sizes, _graph_steps),
    "graph-classification": Task(LabelledClientBatch, GraphEvaluator, _graph_sizes, _graph_steps, graph_models),
    "link-prediction": Task(LinkClientBatch, LinkEvaluator, _link_sizes, lambda federation, config: 1, link_models),
}
