"""Scores of a run's models: the server's and the clients' own, on local graphs, the whole graph, or the union."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F

from ...datasets.federation import Federation, NodeClient
from .backbones import Params
from .batch import Batch, collate
from .cohort import Cohort
from .method import Arrangement, Method
from .network import Network
from .ops import owners, segment_sum
from .timing import section
from .wholes import union_client, whole_client


@dataclass
class Target:
    """Rows to score, by split part: row numbers, the scored client of each row, and the true label of each."""

    rows: dict[str, torch.Tensor]
    owner: dict[str, torch.Tensor]
    label: dict[str, torch.Tensor]
    clients: int

    @classmethod
    def of(cls, labels: list[torch.Tensor], masks: list[dict[str, torch.Tensor]], sizes: list[int]) -> Target:
        """Of clients with so many rows each, one client after the other, those in the masks.

        labels, masks: all rows' in pieces of any number of clients.
        """
        label, owner = torch.cat(labels), owners(tuple(sizes))
        rows = {part: torch.cat([own[part] for own in masks]).nonzero().squeeze(1) for part in ("val", "test")}
        return cls(
            rows,
            {part: owner[own] for part, own in rows.items()},
            {part: label[own] for part, own in rows.items()},
            len(sizes),
        )

    def count(self, part: str) -> torch.Tensor:
        """(clients,) how many rows each scored client has."""
        return torch.bincount(self.owner[part], minlength=self.clients)

    def accuracy(self, predicted: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) share of right predictions, nan for a client without rows. predicted: class of every row (N,)."""
        hit = (predicted[self.rows[part]] == self.label[part]).float()
        return segment_sum(hit, self.owner[part], self.clients) / self.count(part)

    def loss(self, logits: torch.Tensor, part: str) -> torch.Tensor:
        """(clients,) mean cross-entropy, nan for a client without rows."""
        values = F.cross_entropy(logits[self.rows[part]], self.label[part], reduction="none")
        return segment_sum(values, self.owner[part], self.clients) / self.count(part)

    def macro_f1(self, predicted: torch.Tensor, part: str) -> float:
        """Mean over clients of the macro-averaged F1 over the classes that occur in truth or prediction."""
        from sklearn.metrics import f1_score  # a second and more to import: only where it is needed

        rows, owner, label = self.rows[part], self.owner[part], self.label[part]
        values = [
            f1_score(label[owner == k], predicted[rows][owner == k], average="macro", zero_division=0)
            for k in range(self.clients)
            if (owner == k).any()
        ]
        return float(sum(values) / len(values)) if values else float("nan")


def own_rows(batches: Sequence[Batch]) -> Target:
    """Every client scored on its own rows of batches that lie one after the other."""
    sizes = [size for batch in batches for size in batch.sizes]
    return Target.of([batch.label for batch in batches], [batch.masks for batch in batches], sizes)


def original_rows(federation: Federation, placed: Sequence[torch.Tensor]) -> Target:
    """The original clients' rows in the one graph of an arranged federation. placed: see `Arrangement.scored`."""
    graphs = [client.graph for client in federation.clients if isinstance(client, NodeClient)]
    own = Target.of(
        [graph.ndata["label"] for graph in graphs],
        [{part: graph.ndata[f"{part}_mask"].bool() for part in ("val", "test")} for graph in graphs],
        [graph.num_nodes() for graph in graphs],
    )
    place = torch.cat(list(placed))
    return replace(own, rows={part: place[rows] for part, rows in own.rows.items()})


@dataclass
class Models:
    """What a run has to show after a round: the server's model (no client axis), the clients' own (a tree a cohort)."""

    server: Params | None
    personal: list[Params] | None

    def expanded(self, clients: int) -> Params:
        """The server's model for so many clients: expanded, not copied, so that one shared product serves all rows."""
        assert self.server is not None
        return {name: value.expand(clients, *value.shape) for name, value in self.server.items()}


@dataclass
class Scored:
    """One evaluation. val, test: accuracy of each scored client (one entry on the whole graph), nan without rows."""

    val: torch.Tensor
    test: torch.Tensor
    val_loss: float | None
    predicted: torch.Tensor | None
    target: Target

    @classmethod
    def of(cls, predicted: torch.Tensor, target: Target, val_loss: float | None = None) -> Scored:
        """The evaluation of one prediction. predicted: class of every row (N,)."""
        return cls(target.accuracy(predicted, "val"), target.accuracy(predicted, "test"), val_loss, predicted, target)


class Diverged(Exception):
    """Training left the finite numbers; the message says when."""


class Evaluator:
    """Scores the models of one run. Local targets are the original clients' rows, also for a method that trains on one
    graph."""

    def __init__(
        self, method: Method, original: Federation, arrangement: Arrangement, cohorts: Sequence[Cohort]
    ) -> None:
        self.method, self.original, self.arrangement, self.cohorts = method, original, arrangement, cohorts
        self._graphs: dict[str, tuple[Batch, Target]] = {}

    @cached_property
    def _local(self) -> Target:
        if self.arrangement.scored is not None:
            return original_rows(self.original, self.arrangement.scored)
        return own_rows([cohort.batch for cohort in self.cohorts])

    def _beyond(self, data: str) -> tuple[Batch, Target]:
        """The whole graph ("global") or the union of the clients', made at its first use, and its rows."""
        if data not in self._graphs:
            batch = collate([(whole_client if data == "global" else union_client)(self.original)])
            self._graphs[data] = batch, own_rows([batch])
        return self._graphs[data]

    @torch.no_grad()
    def score(self, models: Models, model: str, data: str, *, with_loss: bool = False) -> Scored | None:
        """model: "global" or "personal"; data: "local", "global" or "union". None where there is no such model.

        Raises Diverged when a model's outputs are not finite.
        """
        if (models.server if model == "global" else models.personal) is None:
            return None
        if model == "personal" and data != "local" and not self.method.travels:
            return None
        with section("evaluation"):
            return self._score(models, model, data, with_loss)

    def describe(self, model: str, data: str) -> str:
        """In words, what the figures of `score` are."""
        where = {"local": "local test, mean over clients", "global": "whole graph", "union": "union of the clients"}
        return f"accuracy, {model} model, {where[data]}"

    def _score(self, models: Models, model: str, data: str, with_loss: bool) -> Scored | None:
        if data == "local":
            return self._score_local(models, model, with_loss)
        batch, target = self._beyond(data)
        found = [
            self._scored(self.method.predict(params, network, (batch,)), target, with_loss)
            for params, network in self._one_by_one(models, model)
        ]
        return found[0] if model == "global" else beside(found)

    def _one_by_one(self, models: Models, model: str) -> Iterator[tuple[Params, Network]]:
        """The server's model, or the clients' in turn: K copies of a whole graph would not fit."""
        if model == "global":
            yield models.expanded(1), self.cohorts[0].network.select([0])
            return
        for own, cohort in zip(models.personal or (), self.cohorts, strict=True):
            for position in range(len(cohort)):
                yield cohort.network.take(own, [position]), cohort.network.select([position])

    def _score_local(self, models: Models, model: str, with_loss: bool) -> Scored:
        params = [models.expanded(len(c)) for c in self.cohorts] if model == "global" else models.personal or []
        logits = [self.method.predict_own(p, c) for p, c in zip(params, self.cohorts, strict=True)]
        return self._scored(torch.cat(logits) if len(logits) > 1 else logits[0], self._local, with_loss)

    def _scored(self, logits: torch.Tensor, target: Target, with_loss: bool) -> Scored:
        if not torch.isfinite(logits.sum()):
            raise Diverged("the model's outputs are not finite")
        predicted = logits.argmax(1)
        loss = float(target.loss(logits, "val").nanmean()) if with_loss else None
        return Scored.of(predicted, target, loss)


def beside(found: Sequence[Scored]) -> Scored:
    """The evaluations of several models on the same rows as one, an entry a model."""
    losses = [one.val_loss for one in found if one.val_loss is not None]
    loss = sum(losses) / len(losses) if losses else None
    return Scored(
        torch.cat([one.val for one in found]), torch.cat([one.test for one in found]), loss, None, found[0].target
    )
