"""Tasks: for each, the client batch, the models and the evaluator.

Node classification is defined here. Every other task is one file that calls `add_task` and registers its split or its
datasets (`graphs/`, `fglbench/tasks/`, or a plug-in).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...datasets.federation import Federation, GraphClient, RowsClient
from .backbone import Backbone
from .client_batch import ClientBatch
from .config import TrainConfig
from .evaluate import Evaluator
from .sampled_batch import SampledClientBatch, cut


@dataclass(frozen=True)
class Task:
    """The classes and rules of one task.

    name: the `goal` of its splits or datasets. batch: the class of client batches, with data and loss. evaluator: the
    class of evaluators. models: adapts the architectures of a method. sampled: used instead of `batch` if the
    configuration has a batch size; it samples neighbours. refused: returns why the task cannot be trained with a
    configuration, or None.
    """

    name: str
    batch: type[ClientBatch]
    evaluator: type[Evaluator]
    models: Callable[[Sequence[Backbone]], Sequence[Backbone]] = tuple
    sampled: type[ClientBatch] | None = None
    refused: Callable[[TrainConfig], str | None] = lambda config: None

    def client_batch(self, config: TrainConfig) -> type[ClientBatch]:
        """The class of the client batches of a run."""
        return self.sampled if self.sampled and config.batch_size else self.batch


TASKS: dict[str, Task] = {}


def add_task(task: Task) -> None:
    """Register a task. Raises ValueError (a programming error) if another task has the name."""
    if TASKS.setdefault(task.name, task) != task:
        raise ValueError(f"task {task.name!r} is registered twice; choose another name")


def sizes(federation: Federation, config: TrainConfig) -> torch.Tensor:
    """(K,) aggregation weights by `config.weighting`, not normalised; 0 for a client without training rows."""
    held, train = zip(*map(_counts, federation.clients), strict=True)
    chosen = {"nodes": held, "train_nodes": train, "uniform": [1] * len(held)}[config.weighting]
    return torch.tensor([n if t else 0 for n, t in zip(chosen, train, strict=True)], dtype=torch.float32)


def steps_of_an_epoch(federation: Federation, config: TrainConfig) -> int:
    """The largest number of optimiser steps of a client per epoch."""
    return max(len(cut(np.arange(_counts(client)[1]), config.batch_size)) for client in federation.clients)


def _counts(client: Any) -> tuple[int, int]:
    """The number of a client's nodes or graphs, and the number of rows that it trains on (all graphs if unlabelled)."""
    if isinstance(client, GraphClient):
        held = len(client.graphs)
        return held, int(client.masks["train"].sum()) if client.masks else held
    trained = client.masks["train"] if isinstance(client, RowsClient) else client.graph.ndata["train_mask"]
    return client.graph.num_nodes(), int(trained.sum())


add_task(Task("node", ClientBatch, Evaluator, sampled=SampledClientBatch))
