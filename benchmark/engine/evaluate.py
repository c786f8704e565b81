"""Scores of a run's models: the server's and the clients' own, on local graphs, the whole graph, or the union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch

from ...datasets.federation import Federation
from .backbones import Params
from .batch import Batch, collate
from .cohort import Cohort
from .method import Arrangement, Method
from .targets import Target, join, original_rows, own_rows
from .timing import section
from .wholes import union_client, whole_client


@dataclass
class Models:
    """What a run has to show after a round: the server's model (no client axis), the clients' own (a tree a cohort)."""

    server: Params | None
    personal: list[Params] | None


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
        if model == "global":
            assert models.server is not None
            params = {name: value.unsqueeze(0) for name, value in models.server.items()}
            network = self.cohorts[0].network.select([0])
            return self._scored(self.method.predict(params, network, (batch,)), target, with_loss)
        assert models.personal is not None
        found = []
        for own, cohort in zip(models.personal, self.cohorts, strict=True):
            for position in range(len(cohort)):  # one by one: K copies of the whole graph would not fit
                network = cohort.network.select([position])
                logits = self.method.predict(cohort.network.take(own, [position]), network, (batch,))
                found.append(self._scored(logits, target, with_loss))
        losses = [f.val_loss for f in found if f.val_loss is not None]
        loss = sum(losses) / len(losses) if losses else None
        return Scored(torch.cat([f.val for f in found]), torch.cat([f.test for f in found]), loss, None, target)

    def _score_local(self, models: Models, model: str, with_loss: bool) -> Scored:
        if model == "global":
            assert models.server is not None
            # The client axis is expanded, not copied: the engine multiplies all rows by the one shared weight.
            params = [{n: v.expand(len(c), *v.shape) for n, v in models.server.items()} for c in self.cohorts]
        else:
            assert models.personal is not None
            params = models.personal
        logits = [self.method.predict_own(p, c) for p, c in zip(params, self.cohorts, strict=True)]
        return self._scored(torch.cat(logits) if len(logits) > 1 else logits[0], self._local, with_loss)

    def _scored(self, logits: torch.Tensor, target: Target, with_loss: bool) -> Scored:
        if not torch.isfinite(logits.sum()):
            raise Diverged("the model's outputs are not finite")
        predicted = logits.argmax(1)
        loss = float(target.loss(logits, "val").nanmean()) if with_loss else None
        return Scored(target.accuracy(predicted, "val"), target.accuracy(predicted, "test"), loss, predicted, target)
