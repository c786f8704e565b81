"""What differs between tasks: who holds the data, what a model predicts, how it is scored.

Node classification is here. Every other task is one file that calls `add_task` and registers its split or its datasets
(`graphs/`, `fglbench/tasks/`, or a plug-in).
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

    name: the `goal` of the splits or datasets that set it. batch: holds the clients' data and has the loss. evaluator:
    scores. models: adapts the architectures that a method runs with. sampled: the `batch` that draws neighbours, where
    the configuration has a batch size. refused: why it cannot be trained under a configuration, or None.
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
    """Make a task known. Raises ValueError when another one has the name (a programming mistake, not a user's)."""
    if TASKS.setdefault(task.name, task) != task:
        raise ValueError(f"task {task.name!r} is registered twice; choose another name")


def sizes(federation: Federation, config: TrainConfig) -> torch.Tensor:
    """(K,) aggregation weights that `config.weighting` asks for; 0 for a client that has nothing to train on."""
    held, train = zip(*map(_counts, federation.clients), strict=True)
    chosen = {"nodes": held, "train_nodes": train, "uniform": [1] * len(held)}[config.weighting]
    return torch.tensor([n if t else 0 for n, t in zip(chosen, train, strict=True)], dtype=torch.float32)


def steps_of_an_epoch(federation: Federation, config: TrainConfig) -> int:
    """The most optimiser steps that a client takes per epoch."""
    return max(len(cut(np.arange(_counts(client)[1]), config.batch_size)) for client in federation.clients)


def _counts(client: Any) -> tuple[int, int]:
    """What a client holds (nodes, or graphs), and how many rows it trains on (all graphs if no label is used)."""
    if isinstance(client, GraphClient):
        held = len(client.graphs)
        return held, int(client.masks["train"].sum()) if client.masks else held
    trained = client.masks["train"] if isinstance(client, RowsClient) else client.graph.ndata["train_mask"]
    return client.graph.num_nodes(), int(trained.sum())


add_task(Task("node", ClientBatch, Evaluator, sampled=SampledClientBatch))
