"""Classification of graphs: model, client batches, and scores on each client's own graphs, the whole set, the union."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ....datasets.federation import GraphClient, GraphSetData, Measure
from ..backbone import Backbone, Forward, Params, affine, linear_maps
from ..batch import LabelledRows
from ..client_batch import ClientBatch
from ..device import section
from ..evaluate import MEASURES, Evaluator, Models, Scored, Task, add_task
from ..features import Features
from ..method import Method, at_home, crossing
from ..rng import Streams, torch_source
from ..sampled_batch import MinibatchClientBatch, Shown
from ..segment_ops import is_shared, segment_affine, segment_sum
from ..target import Target
from ..views import HIDDEN
from .graphsets import GraphRows, LabelledStack


class LabelledClientBatch(MinibatchClientBatch):
    """Members are `GraphClient`s with masks; a row is a graph."""

    def _collate(self) -> None:
        self.stacked = LabelledStack(self.members)
        trained = self.stacked.masks["train"].numpy()
        self._trained = [graphs[trained[graphs]] for graphs in self.stacked.held]
        self._full: Shown | None = None  # the minibatch if an epoch has one step
        self.batch, self.data = self.shown(self.stacked.held)

    def shown(self, picks: Sequence[np.ndarray]) -> Shown:
        """`batch` and `data` of some of the graphs. picks: per client, the numbers of its graphs in the stack."""
        rows = self.stacked.rows(picks)
        if not self.network.heterogeneous:
            return rows, (rows,)
        groups = [group.positions for group in self.network.groups]
        return rows, tuple(self.stacked.rows([picks[p] for p in group], group) for group in groups)

    def _part(self, positions: Sequence[int]) -> ClientBatch:
        part = super()._part(positions)
        assert isinstance(part, LabelledClientBatch)
        if positions:
            part.stacked.stack.adopt(self.stacked.stack, np.concatenate([self.stacked.held[p] for p in positions]))
        return part

    def shareable(self, params: Params) -> Params:
        return crossing(params) if any(self.stacked.classes) else params

    def _minibatch(self, picks: Sequence[np.ndarray]) -> Shown:
        if sum(map(len, picks)) < sum(map(len, self._trained)):
            return self.shown(picks)
        self._full = self._full or self.shown(picks)
        return self._full


def sets_of(clients: list[GraphClient]) -> Target:
    """The target that scores every client on its own graphs."""
    return Target.of([c.label for c in clients], [c.masks for c in clients], [len(c.graphs) for c in clients])


def _scored(client: Any) -> torch.Tensor:
    """Bool, per graph of a client: whether it is in the validation or test part."""
    scored: torch.Tensor = client.masks["val"] | client.masks["test"]
    return scored


def _held_out(client: GraphClient) -> GraphClient:
    """The client without graphs that are not scored."""
    at = _scored(client)
    masks = {part: mask[at] for part, mask in client.masks.items()}
    graphs = [client.graphs[i] for i in at.nonzero().flatten().tolist()]
    return replace(client, graphs=graphs, label=client.label[at], global_id=client.global_id[at], masks=masks)


class GraphEvaluator(Evaluator):
    """Scores graphs as `Evaluator` scores nodes."""

    @cached_property
    def _one_by_one(self) -> bool:
        """Whether predictions for a graph do not depend on the other graphs of a batch, so that only validation and
        test graphs are computed for local scores."""
        method, backbones = type(self.method), self.client_batches[0].network.backbones
        plain = all(type(model) is GraphModel and model.encoder.whole_only() is None for model in backbones)
        return plain and method.predict is Method.predict and method.predict_own is Method.predict_own

    @cached_property
    def _clients(self) -> list[GraphClient]:
        """The clients with the graphs that local scores compute."""
        clients = [client for client in self.original.clients if isinstance(client, GraphClient)]
        return [_held_out(client) for client in clients] if self._one_by_one else clients

    @cached_property
    def _local(self) -> Target:
        return sets_of(self._clients)

    @cached_property
    def _sizes(self) -> list[int]:
        return [len(client.graphs) for client in self._clients]

    def _predict_own(self, params: Params, clients: ClientBatch) -> torch.Tensor:
        if not self._one_by_one:
            return super()._predict_own(params, clients)
        if clients.ids not in self._data:
            assert isinstance(clients, LabelledClientBatch)
            of_clients = [_scored(self.original.clients[k]).numpy() for k in clients.ids]
            picks = [held[scored] for held, scored in zip(clients.stacked.held, of_clients, strict=True)]
            self._data[clients.ids] = clients.shown(picks)[1]
        return self.method.predict(params, clients.network, self._data[clients.ids])

    @cached_property
    def _data(self) -> dict[tuple[int, ...], tuple[Any, ...]]:
        """`data` of each client batch with the graphs of `_clients` only."""
        return {}

    def score(self, models: Models, model: str, data: str, *, with_loss: bool = False) -> Scored | None:
        """As for nodes. If each client has its own set and classes, None on the whole and the union."""
        if not self.original.domains:
            return super().score(models, model, data, with_loss=with_loss)
        if data != "local":
            return None
        if model == "global" and models.server is not None:
            models = Models(None, [self._whole(models, place) for place in range(len(self.client_batches))])
            return super().score(models, "personal", data, with_loss=with_loss)
        return super().score(models, model, data, with_loss=with_loss)

    def _whole(self, models: Models, place: int) -> Params:
        """The server's encoder with the first and last layers of each client of a client batch."""
        own_layers = at_home((models.personal or [])[place])
        return own_layers | models.expanded(len(self.client_batches[place]))

    def beyond(self, data: str) -> tuple[LabelledRows, Target]:  # type: ignore[override]
        """The whole set ("global") or all graphs of the clients ("union"), and the rows to score; cached."""
        if data not in self._graphs:
            truth = self._set(data)
            hidden = torch.full_like(truth.label, HIDDEN)
            stacked = LabelledStack([replace(truth, label=hidden)])
            self._graphs[data] = stacked.rows(stacked.held), sets_of([truth])  # type: ignore[assignment]
        return self._graphs[data]

    def _set(self, data: str) -> GraphClient:
        federation = self.original
        whole, clients = federation.whole, [client for client in federation.clients if isinstance(client, GraphClient)]
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


class Mapped(Features):
    """X W + b of features X (N, d), with W (K, d, h) and b (K, h) of each client. Times V (K, h, c) it is computed as
    X (W V) + b V, which is less work."""

    def __init__(self, x: Features, weight: torch.Tensor, bias: torch.Tensor) -> None:
        self.x, self.sizes, self.weight, self.bias = x, x.sizes, weight, bias

    @cached_property
    def value(self) -> torch.Tensor:  # type: ignore[override]
        return segment_affine(self.x.dense(), self.weight, self.bias, self.sizes)

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        rows = torch.cat([self.weight, self.bias.unsqueeze(1)], 1)
        clients = len(rows)
        if is_shared(self.weight) and is_shared(weight):
            rows, weight = rows[:1], weight[:1]
        mapped = (rows @ weight).expand(clients, -1, -1)
        return segment_affine(self.x.dense(), mapped[:, :-1], mapped[:, -1], self.sizes)


class GraphModel(Backbone):
    """A classifier of graphs, with the layers of the released models of GCFL and FedStar.

    1. h = X W_in + b_in for each node; 2. the layers of `encoder`, all of width h, each with activation; 3. the sum (or
    mean) over each graph's nodes; 4. z = linear map h -> h, activated: the embedding; 5. logits = linear head.
    Dropout follows every activation.

    Parameters: "input.", "post.", "head.", and those of the encoder.
    """

    encoder: Backbone

    @classmethod
    def around(cls, given: Backbone) -> GraphModel:
        """The classifier with the layers of a backbone."""
        plain = given.model_copy(update={"linear_head": False, "input_dropout": 0.0})
        return given.turned_into(cls, encoder=plain, linear_head=True)

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = self.encoder.init(generator, self.hidden, self.hidden)
        ends = {"input": (features, self.hidden), "post": (self.hidden, self.hidden), "head": (self.hidden, classes)}
        return params | linear_maps(ends, torch_source(generator), self.linear_start)

    def forward(self, params: Params, batch: GraphRows, streams: Streams | None = None) -> Forward:  # type: ignore[override]
        """Logits (B, C) of graphs; `pre` holds z alone, (B, h)."""
        h = Mapped(self.entered(batch, streams), params["input.weight"], params["input.bias"])
        out = self.encoder.forward(params, batch.nodes.seen(h), streams).logits
        return self.classified(params, batch, self.active(out, batch.nodes.sizes, streams), streams)

    def entered(self, batch: GraphRows, streams: Streams | None) -> Features:
        """The nodes' features, in a training pass with dropout."""
        return batch.nodes.x.dropout(self.input_dropout, streams)

    def classified(self, params: Params, batch: GraphRows, h: torch.Tensor, streams: Streams | None) -> Forward:
        """Steps 3 to 5, given the nodes' values (N, h)."""
        z = affine(params, "post", self.pooled(h, batch), batch)
        logits = affine(params, "head", self.active(z, batch.sizes, streams), batch)
        return Forward(batch.own_classes(logits), [z])

    @section("pooling")
    def pooled(self, h: torch.Tensor, batch: GraphRows) -> torch.Tensor:
        """(N, h) node values -> (B, h)."""
        summed = segment_sum(h, batch.of.membership, len(batch.label))
        return summed if self.readout == "sum" else summed / batch.lengths.unsqueeze(1)


def graph_models(backbones: Sequence[Backbone]) -> list[Backbone]:
    """Classifiers of graphs with the layers of these backbones; a `GraphModel` is not changed."""
    return [given if isinstance(given, GraphModel) else GraphModel.around(given) for given in backbones]


add_task(Task("graph-classification", LabelledClientBatch, GraphEvaluator, graph_models))
