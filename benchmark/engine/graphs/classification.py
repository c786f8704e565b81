"""Scores of classified graphs: on each client's own graphs, on the whole set, on all that the clients hold."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property

import torch

from ....datasets.federation import GraphClient, GraphSetData, Measure
from ..backbones import Params
from ..batch import LabelledRows
from ..evaluate import MEASURES, Evaluator, Models, Scored, Target
from ..method import at_home
from ..views import HIDDEN
from .rows import LabelledStack


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
