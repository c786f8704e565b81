"""Classification of graphs: client batches, and scores on each client's own graphs, the whole set and the union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch

from ....datasets.federation import GraphClient, GraphSetData, Measure
from ..backbones import Params
from ..batch import LabelledRows
from ..client_batch import ClientBatch
from ..evaluate import MEASURES, Evaluator, Models, Scored, Target
from ..method import at_home, crossing
from ..minibatches import MinibatchClientBatch, Shown
from ..views import HIDDEN
from .rows import LabelledStack


class LabelledClientBatch(MinibatchClientBatch):
    """Members are `GraphClient`s with masks; a row is a graph."""

    def _collate(self) -> None:
        self.stacked = LabelledStack(self.members)
        trained = self.stacked.masks["train"].numpy()
        self._trained = [own[trained[own]] for own in self.stacked.held]
        self._full: Shown | None = None  # the minibatch of an epoch of one step
        self._show(self._batches(self.stacked.held))

    def _batches(self, picks: Sequence[np.ndarray]) -> Shown:
        """Some of the graphs, as `batch` and `data`. picks: for each client their numbers in the stack."""
        every = self.stacked.rows(picks)
        if not self.network.heterogeneous:
            return every, (every,)
        groups = [group.positions for group in self.network.groups]
        return every, tuple(self.stacked.rows([picks[p] for p in group], group) for group in groups)

    def _part(self, positions: Sequence[int]) -> ClientBatch:
        part = super()._part(positions)
        assert isinstance(part, LabelledClientBatch)
        if positions:
            part.stacked.stack.adopt(self.stacked.stack, np.concatenate([self.stacked.held[p] for p in positions]))
        return part

    def sq_distance(self, other: Params, params: Params | None = None) -> torch.Tensor:
        own = self.params if params is None else params
        return super().sq_distance(other, crossing(own) if any(self.stacked.classes) else own)

    def _minibatch(self, picks: Sequence[np.ndarray]) -> Shown:
        if sum(map(len, picks)) < sum(map(len, self._trained)):
            return self._batches(picks)
        self._full = self._full or self._batches(picks)
        return self._full


def sets_of(clients: list[GraphClient]) -> Target:
    """Every client scored on its own graphs, one client after the other."""
    return Target.of([own.label for own in clients], [own.masks for own in clients], [len(c.graphs) for c in clients])


class GraphEvaluator(Evaluator):
    """As for nodes: accuracy of the graphs of each client, mean over clients; macro-F1, and ROC AUC of two classes."""

    @cached_property
    def _local(self) -> Target:
        return sets_of([own for own in self.original.clients if isinstance(own, GraphClient)])

    @cached_property
    def _sizes(self) -> list[int]:
        return [len(own.graphs) for own in self.original.clients if isinstance(own, GraphClient)]

    def score(self, models: Models, model: str, data: str, *, with_loss: bool = False) -> Scored | None:
        """As for nodes; None too on several sets at once, of which each has classes of its own."""
        if not self.original.domains:
            return super().score(models, model, data, with_loss=with_loss)
        if data != "local":
            return None
        if model == "global" and models.server is not None:
            models = Models(None, [self._whole(models, place) for place in range(len(self.client_batches))])
            return super().score(models, "personal", data, with_loss=with_loss)
        return super().score(models, model, data, with_loss=with_loss)

    def _whole(self, models: Models, place: int) -> Params:
        """The server's encoder between the first and last layers of each client of a client batch."""
        own = at_home((models.personal or [])[place])
        return own | models.expanded(len(self.client_batches[place]))

    def beyond(self, data: str) -> tuple[LabelledRows, Target]:  # type: ignore[override]
        """The whole set ("global"), or all graphs that some client holds ("union")."""
        if data not in self._graphs:
            truth = self._set(data)
            hidden = torch.full_like(truth.label, HIDDEN)
            stacked = LabelledStack([replace(truth, label=hidden)])
            self._graphs[data] = stacked.rows(stacked.held), sets_of([truth])  # type: ignore[assignment]
        return self._graphs[data]

    def _set(self, data: str) -> GraphClient:
        federation = self.original
        whole, clients = federation.whole, [own for own in federation.clients if isinstance(own, GraphClient)]
        assert isinstance(whole, GraphSetData)
        held = (
            range(len(whole.graphs)) if data == "global" else sorted(i for c in clients for i in c.global_id.tolist())
        )
        ids = clients[0].global_id.new_tensor(list(held))
        masks = {part: mask[ids] for part, mask in federation.masks.items()}
        return GraphClient([whole.graphs[i] for i in held], whole.truth[ids], ids, masks)

    @staticmethod
    def phrase(measure: Measure, model: str, data: str) -> str:
        where = {"local": "local test, mean over clients", "global": "whole set", "union": "union of the clients"}
        return f"{MEASURES[measure]} of graphs, {model} model, {where[data]}"
