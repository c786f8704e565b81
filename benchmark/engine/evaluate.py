"""Scores of a run's models: the server's and the clients' own, on local graphs, the whole graph, or the union. Tasks:
for each, the client batch, the models and the evaluator.

Node classification is defined here. Every other task is one file that calls `add_task` and registers its split or its
datasets (`graphs/`, `fglbench/tasks/`, or a plug-in).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ...datasets.federation import Federation, GraphClient, Measure, NodeClient, RowsClient
from ...metrics import FALLING
from ...registry import UserError
from .backbone import Backbone, Network, Params
from .backbones import GCN
from .batch import Batch, collate
from .client_batch import ClientBatch
from .config import TrainConfig
from .device import give_back, placed as moved, section
from .kernels import onednn
from .method import Arrangement, Method
from .sampled_batch import SampledClientBatch, cut
from .target import Target
from .views import union_client, unlabelled, whole_client

# From this number of nodes, features are summed over neighbours once, before the product with the weights: several
# times faster if the models of many clients are scored. Equal up to rounding.
LARGE = 2**17


def own_rows(clients: Sequence[NodeClient], placed: Sequence[torch.Tensor] | None = None) -> Target:
    """Every client scored on its own rows, one client after the other. placed: see `Arrangement.scored`."""
    graphs = [client.graph for client in clients]
    target = Target.of(
        [graph.ndata["label"] for graph in graphs],
        [{part: graph.ndata[f"{part}_mask"].bool() for part in ("val", "test")} for graph in graphs],
        [graph.num_nodes() for graph in graphs],
    )
    if placed is None:
        return target
    place = moved(torch.cat(list(placed)))
    return replace(target, rows={part: place[rows] for part, rows in target.rows.items()})


@dataclass
class Models:
    """The models after a round: the server's (no client axis) and the clients' (one tree per client batch)."""

    server: Params | None
    personal: list[Params] | None

    def expanded(self, clients: int) -> Params:
        """The server's model with a client axis, expanded, not copied: one product serves all rows."""
        assert self.server is not None
        return {name: value.expand(clients, *value.shape) for name, value in self.server.items()}


@dataclass
class Scored:
    """One evaluation. val, test: accuracy, or the dataset's measure, of each scored client (one entry on the whole
    graph), nan if a client has none. predicted, margin: see `Target`; both None for several models, margin None for
    more than two classes."""

    val: torch.Tensor
    test: torch.Tensor
    val_loss: float | None
    predicted: torch.Tensor | None
    target: Target
    margin: torch.Tensor | None = None

    @classmethod
    def of(cls, predicted: torch.Tensor, target: Target, val_loss: float | None = None) -> Scored:
        """The evaluation of one prediction. predicted: class of every row (N,)."""
        return cls(target.accuracy(predicted, "val"), target.accuracy(predicted, "test"), val_loss, predicted, target)

    def by(self, measure: Measure, logits: torch.Tensor | None) -> Scored:
        """The same evaluation with another measure than accuracy. logits: (N, classes), not needed for macro-F1."""
        val, test = (self._by(measure, logits, part) for part in ("val", "test"))
        return replace(self, val=val, test=test)

    def _by(self, measure: Measure, logits: torch.Tensor | None, part: str) -> torch.Tensor:
        if measure == "accuracy":
            return self.val if part == "val" else self.test
        if measure == "macro_f1":
            assert self.predicted is not None
            return self.target.macro_f1_each(self.predicted, part)
        assert logits is not None, "this measure needs logits"
        if measure == "roc_auc" and self.margin is not None:
            return self.target.roc_auc(self.margin, part)
        if measure == "mrr":
            assert self.margin is not None
            return self.target.mrr(self.margin, part)
        return self.target.by_class(logits, part, measure)


MEASURES: dict[Measure, str] = {
    "accuracy": "accuracy",
    "macro_f1": "macro-F1",
    "roc_auc": "ROC AUC",
    "average_precision": "average precision",
    "mrr": "mean reciprocal rank",
    "mae": f"MAE {FALLING}",
    "rmse": f"RMSE {FALLING}",
}


class Diverged(Exception):
    """Training reached values that are not finite; the message says when."""


class Evaluator:
    """Scores the models of one run. Local targets are the rows of the original clients, also if a method trains on one
    graph. Only the evaluator has the original federation with all labels; methods predict on data without them."""

    def __init__(
        self, method: Method, original: Federation, arrangement: Arrangement, client_batches: Sequence[ClientBatch]
    ) -> None:
        self.method, self.original = method, original
        self.arrangement, self.client_batches = arrangement, client_batches
        self._graphs: dict[str, tuple[Batch, Target]] = {}

    @cached_property
    def _local(self) -> Target:
        return own_rows([c for c in self.original.clients if isinstance(c, NodeClient)], self.arrangement.scored)

    def beyond(self, data: str) -> tuple[Batch, Target]:
        """The whole graph ("global") or the union of the clients' graphs, and its rows to score; cached.

        The batch, which methods get, has no labels.
        """
        if data not in self._graphs:
            client = whole_client(self.original) if data == "global" else union_client(self.original)
            at_once = self.client_batches[0].batch.at_once if self.client_batches else None
            large = client.graph.num_nodes() >= LARGE and len(self.original.clients) > 1
            if large:
                give_back()
            batch = replace(collate([unlabelled(client)]), at_once=at_once, sums_first=large)
            self._graphs[data] = batch, own_rows([client])
        return self._graphs[data]

    @torch.no_grad()
    def score(self, models: Models, model: str, data: str, *, with_loss: bool = False) -> Scored | None:
        """Score a model ("global", "personal") on data ("local", "global", "union"). None if there is no such model.

        Raises Diverged if a model's outputs are not finite.
        """
        if (models.server if model == "global" else models.personal) is None:
            return None
        if model == "personal" and data != "local" and not self.method.travels:
            return None
        with section("evaluation"):
            return self._score(models, model, data, with_loss)

    def describe(self, model: str, data: str) -> str:
        """The description of the figures of `score` in words."""
        return self.phrase(self.original.scored_by, model, data)

    @staticmethod
    def phrase(measure: Measure, model: str, data: str) -> str:
        """The same for any run; result rows must have these words."""
        where = {"local": "local test, mean over clients", "global": "whole graph", "union": "union of the clients"}
        return f"{MEASURES[measure]}, {model} model, {where[data]}"

    def _score(self, models: Models, model: str, data: str, with_loss: bool) -> Scored | None:
        if data == "local":
            return self._score_local(models, model, with_loss)
        batch, target = self.beyond(data)

        def scored(logits: torch.Tensor) -> Scored:
            result = self._scored(self._sound(logits, batch.sizes), target, with_loss)
            if model == "personal":
                result.predicted = result.margin = None  # of 1,000 models they do not fit in memory
            return result

        scores = list(map(scored, self._predicted(models, model, batch)))  # a loop would keep the last logits longer
        return scores[0] if model == "global" else beside(scores)

    def _predicted(self, models: Models, model: str, batch: Batch) -> Iterator[torch.Tensor]:
        """Class scores (N, C) on the whole graph or the union: of the server's model, or of each client's in turn."""
        network = self.client_batches[0].network
        as_trained = type(self.method).predict is Method.predict and not network.heterogeneous
        if as_trained and is_apt(network.backbones[0], batch):
            give_back()
            stacks = models.personal or [] if model == "personal" else [models.expanded(1)]
            params = {name: torch.cat([stack[name] for stack in stacks]) for name in stacks[0]}
            yield from logits_of_each(network.backbones[0].layers, params, batch)
            return
        for params, selected in self.one_by_one(models, model):
            yield self.method.predict(params, selected, (batch,))

    def one_by_one(self, models: Models, model: str) -> Iterator[tuple[Params, Network]]:
        """The server's model, or the clients' models in turn: K copies of a whole graph would not fit in memory."""
        if model == "global":
            yield models.expanded(1), self.client_batches[0].network.select([0])
            return
        for stack, clients in zip(models.personal or (), self.client_batches, strict=True):
            for position in range(len(clients)):
                if len(self.original.whole.label) >= LARGE:
                    give_back()  # else the heap grows by fragmentation
                yield clients.network.take(stack, [position]), clients.network.select([position])

    def _score_local(self, models: Models, model: str, with_loss: bool) -> Scored:
        params = [models.expanded(len(c)) for c in self.client_batches] if model == "global" else models.personal or []
        predicted = [self._predict_own(p, c) for p, c in zip(params, self.client_batches, strict=True)]
        sizes = [[self._sizes[client] for client in clients.network.clients] for clients in self.client_batches]
        logits = [self._sound(rows, nodes) for rows, nodes in zip(predicted, sizes, strict=True)]
        return self._scored(torch.cat(logits) if len(logits) > 1 else logits[0], self._local, with_loss)

    def _predict_own(self, params: Params, clients: ClientBatch) -> torch.Tensor:
        return self.method.predict_own(params, clients)

    @cached_property
    def _sizes(self) -> list[int]:
        trained = self.original if self.arrangement.scored is None else self.arrangement.federation
        return [client.graph.num_nodes() for client in trained.clients if isinstance(client, NodeClient)]

    def _sound(self, logits: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        return demanded(self.method, logits, sum(sizes), self.original.num_classes)

    def _scored(self, logits: torch.Tensor, target: Target, with_loss: bool) -> Scored:
        if not torch.isfinite(logits.sum()):
            raise Diverged("the model's outputs are not finite")
        return self.measured(logits, target, with_loss)

    def measured(self, logits: torch.Tensor, target: Target, with_loss: bool) -> Scored:
        """The evaluation of finite outputs (N, outputs): of classes, unless the evaluator of a task overrides it."""
        predicted = logits.argmax(1)
        loss = float(target.loss(logits, "val").nanmean()) if with_loss else None
        scored = Scored.of(predicted, target, loss)
        if logits.shape[1] == 2:
            scored.margin = logits[:, 1] - logits[:, 0]
        return scored.by(self.original.scored_by, logits)


def demanded(method: Method, predicted: torch.Tensor, rows: int, width: int | None = None) -> torch.Tensor:
    """Return a method's prediction if it is a plain float tensor (rows, width), any width if None; else UserError.

    A subclass of torch.Tensor could change the comparison with the labels.
    """
    plain = type(predicted) is torch.Tensor
    floats = plain and predicted.is_floating_point() and predicted.layout == torch.strided
    if floats and predicted.dim() == 2 and tuple(predicted.shape) == (rows, width or predicted.shape[1]):
        return predicted
    kind = f"{predicted.dtype} of shape {tuple(predicted.shape)}" if plain else type(predicted).__name__
    wanted = f"one row of {width or 'some'} numbers for each of {rows} {'nodes' if width else 'graphs'}"
    raise UserError(f"{method.name} predicts {kind}, not {wanted} (torch.Tensor, floats)")


def beside(scores: Sequence[Scored]) -> Scored:
    """Join the evaluations of several models on the same rows into one, with one entry per model."""
    losses = [scored.val_loss for scored in scores if scored.val_loss is not None]
    loss = sum(losses) / len(losses) if losses else None
    val, test = torch.cat([scored.val for scored in scores]), torch.cat([scored.test for scored in scores])
    return Scored(val, test, loss, None, scores[0].target)


COLUMNS = 32  # values per node in one sum over neighbours: fewer take as long
ROWS = 2**12  # rows computed at a time: their hidden values fit in the cache of a core


def is_apt(backbone: Backbone, batch: Batch) -> bool:
    """Whether `logits_of_each` computes this architecture on this batch."""
    plain = type(backbone) is GCN and not backbone.linear_head and not backbone.residual
    return plain and backbone.layers > 1 and batch.summed is not None


def logits_of_each(layers: int, params: Params, batch: Batch) -> Iterator[torch.Tensor]:
    """Yield the logits (N, C) of each of K models (K, ...) on one graph of N nodes; no gradient.

    The values of `GCN.forward` up to rounding. Memory: 2 N max(COLUMNS, largest width after the first layer) floats.
    """
    widest = max(params[f"{i}.weight"].shape[2] for i in range(1, layers))
    together, count = max(COLUMNS // widest, 1), len(params["0.weight"])
    mixed = torch.zeros(len(batch.label), max(together * widest, COLUMNS))
    for first in range(0, count, together):
        models = range(first, min(first + together, count))
        h: list[torch.Tensor] = []
        for i in range(1, layers):
            weight, bias = params[f"{i}.weight"], params[f"{i}.bias"]
            places = [slice(at * weight.shape[2], (at + 1) * weight.shape[2]) for at in range(len(models))]
            with onednn():
                for rows in (slice(start, start + ROWS) for start in range(0, len(mixed), ROWS)):
                    for at, k in enumerate(models):
                        below = _first_layer(params, k, batch, rows) if i == 1 else h[at][rows]
                        mixed[rows, places[at]] = torch.relu(below) @ weight[k]
            h = _columns(batch.gcn.times(mixed), places, bias[models.start : models.stop])
        yield from h


def _columns(summed: torch.Tensor, places: Sequence[slice], bias: torch.Tensor) -> list[torch.Tensor]:
    """Each model's columns plus its bias; a function, so that no variable keeps the large `summed` alive."""
    return [summed[:, place].add_(shift) for place, shift in zip(places, bias, strict=True)]


def _first_layer(params: Params, k: int, batch: Batch, rows: slice) -> torch.Tensor:
    """Model k's first layer on some rows, whose features are already summed over neighbours."""
    assert batch.summed is not None
    return torch.addmm(params["0.bias"][k], batch.summed[rows], params["0.weight"][k])


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
