"""A backbone of nodes as a classifier of graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..backbones import Backbone, Forward, Params, affine, linear_map
from ..batch import Features
from ..rng import Streams
from ..segment_ops import segment_sum
from ..timing import section
from .rows import GraphRows


class GraphModel(Backbone):
    """h = X W_in + b_in for each node; the layers of `encoder`, all of width h, the last one activated too; the sum (or
    mean) over each graph's nodes; z = linear h -> h, activated: the embedding; logits = linear head on it (the layout
    of GCFL's and FedStar's released models). Dropout after every activation.

    Parameters: "input.", "post." and "head." beside the encoder's own names.
    """

    encoder: Backbone

    @classmethod
    def around(cls, given: Backbone) -> GraphModel:
        """The classifier with the layers of a backbone."""
        plain = given.model_copy(update={"linear_head": False, "input_dropout": 0.0})
        shared = {name: getattr(given, name) for name in Backbone.model_fields if name != "linear_head"}
        return cls(encoder=plain, linear_head=True, **shared)

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = self.encoder.init(generator, self.hidden, self.hidden)
        source = torch.Generator().manual_seed(int(generator.integers(2**63)))
        ends = {"input": (features, self.hidden), "post": (self.hidden, self.hidden), "head": (self.hidden, classes)}
        for name, shape in ends.items():
            params[f"{name}.weight"], params[f"{name}.bias"] = linear_map(*shape, source, self.linear_start)
        return params

    def forward(self, params: Params, batch: GraphRows, streams: Streams | None = None) -> Forward:  # type: ignore[override]
        """Logits (B, C) of graphs; `pre` holds z alone, (B, h)."""
        h = affine(params, "input", self.entered(batch, streams), batch.nodes)
        out = self.encoder.forward(params, batch.nodes.seen(h), streams).logits
        return self.classified(params, batch, self.active(out, batch.nodes.sizes, streams), streams)

    def entered(self, batch: GraphRows, streams: Streams | None) -> Features:
        """The nodes' features as they enter the model."""
        return batch.nodes.x if streams is None else batch.nodes.x.dropout(self.input_dropout, streams)

    def classified(self, params: Params, batch: GraphRows, h: torch.Tensor, streams: Streams | None) -> Forward:
        """What becomes of the nodes' values (N, h)."""
        z = affine(params, "post", self.pooled(h, batch), batch)
        logits = affine(params, "head", self.active(z, batch.sizes, streams), batch)
        return Forward(batch.own_classes(logits), [z])

    @section("pooling")
    def pooled(self, h: torch.Tensor, batch: GraphRows) -> torch.Tensor:
        """(N, h) node values -> (B, h)."""
        found = segment_sum(h, batch.of.membership, len(batch.label))
        return found if self.readout == "sum" else found / batch.lengths.unsqueeze(1)


def graph_models(backbones: Sequence[Backbone]) -> list[Backbone]:
    """Classifiers of graphs with these layers; a model that a method brings for graphs is taken as it is."""
    return [given if isinstance(given, GraphModel) else GraphModel.around(given) for given in backbones]
