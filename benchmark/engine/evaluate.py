"""Scores of a run's models: the server's and the clients' own, on local graphs, the whole graph, or the union."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from ...datasets.federation import Federation
from .backbones import Params
from .batch import Batch, collate
from .cohort import Cohort
from .method import Arrangement, Method
from .network import Network
from .targets import Target, join, original_rows, own_rows
from .timing import section
from .wholes import union_client, whole_client


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


class Diverged(Exception):
    """Training left the finite numbers; the message says when."""


class Evaluator:
    """Scores the models of one run. Local targets are the original clients' rows, also for a method that trains on one
    graph."""

    def __init__(
        self, method: Method, original: Federation, arrangement: Arrangement, cohorts: Sequence[Cohort]
    ) -> None:
        self.method, self.original, self.arrangement, self.cohorts = method, original, arrangement, cohorts

    @cached_property
    def _local(self) -> Target:
        if self.arrangement.scored is not None:
            return original_rows(self.original, self.arrangement.scored)
        return join([own_rows(c.batch) for c in self.cohorts], [sum(c.batch.sizes) for c in self.cohorts])

    @cached_property
    def _whole(self) -> tuple[Batch, Target]:
        batch = collate([whole_client(self.original)])
        return batch, own_rows(batch)

    @cached_property
    def _union(self) -> tuple[Batch, Target]:
        batch = collate([union_client(self.original)])
        return batch, own_rows(batch)

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
        batch, target = self._whole if data == "global" else self._union
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
        return Scored(target.accuracy(predicted, "val"), target.accuracy(predicted, "test"), loss, predicted, target)


def beside(found: Sequence[Scored]) -> Scored:
    """The evaluations of several models on the same rows as one, an entry a model."""
    losses = [one.val_loss for one in found if one.val_loss is not None]
    loss = sum(losses) / len(losses) if losses else None
    return Scored(
        torch.cat([one.val for one in found]), torch.cat([one.test for one in found]), loss, None, found[0].target
    )
