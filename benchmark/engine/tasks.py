"""What differs between tasks: the cohort that holds the clients' data, their weights, and who scores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...datasets.federation import Federation, GraphClient, NodeClient
from .cohort import Cohort
from .config import TrainConfig
from .evaluate import Evaluator
from .graphs.clustering import ClusteringEvaluator
from .graphs.graphcohort import GraphCohort


@dataclass(frozen=True)
class Task:
    """sizes: (K,) aggregation weights before normalisation."""

    cohort: type[Cohort]
    evaluator: type[Evaluator]
    sizes: Callable[[Federation, TrainConfig], torch.Tensor]


def _node_sizes(federation: Federation, config: TrainConfig) -> torch.Tensor:
    """A client without a training node has nothing to teach and weighs 0."""
    held = [c.graph.num_nodes() for c in federation.clients if isinstance(c, NodeClient)]
    train = [int(c.graph.ndata["train_mask"].sum()) for c in federation.clients if isinstance(c, NodeClient)]
    own = {"nodes": held, "train_nodes": train, "uniform": [1] * len(held)}[config.weighting]
    return torch.tensor([n if t else 0 for n, t in zip(own, train, strict=True)], dtype=torch.float32)


def _graph_sizes(federation: Federation, config: TrainConfig) -> torch.Tensor:
    """Graphs held, all of which train, or equal weights; a client without a graph weighs 0."""
    held = [len(c.graphs) for c in federation.clients if isinstance(c, GraphClient)]
    return torch.tensor([min(n, 1) if config.weighting == "uniform" else n for n in held], dtype=torch.float32)


TASKS = {
    "node": Task(Cohort, Evaluator, _node_sizes),
    "graph": Task(GraphCohort, ClusteringEvaluator, _graph_sizes),
}
