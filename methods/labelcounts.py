"""References for sets of graphs that train nothing: one cluster, and what a graph's nodes are labelled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from ..benchmark.engine import METHODS, Backbone, GraphBatch, GraphMethod, Network, Params, Server, segment_sum
from .majority import Untrained


class UntrainedCodes(Untrained, GraphMethod):
    """Codes of graphs without a model; the backbone of the cell is in the row and has no effect."""

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return backbones

    def global_model(self, server: Server) -> Params | None:
        return {}


@METHODS.register("one-cluster")
class OneCluster(UntrainedCodes):
    """Reference: all graphs have the same code and so fall into one cluster, that of the largest class.

    Messages: none.
    """

    family = "reference"
    summary = "all graphs in one cluster: the answer without learning"
    title = "One cluster"

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        return torch.zeros(len(batch.picks), 1)


@METHODS.register("label-counts")
class LabelCounts(UntrainedCodes):
    """Reference: a graph's code is how many nodes of each label it has; no edge and no network is looked at.

    Labels are the features that are 0 or 1 at every node of the set (one-hot labels, or degrees of a set that has no
    labels); where there is none, all features are summed. Messages: none.
    """

    family = "reference"
    summary = "graph codes that count a graph's node labels: the answer without learning"
    title = "k-means on label counts"

    counts: Literal["plain", "log", "shares"] = Field(
        "plain", description="numbers of nodes as they are, log(1 + number), or divided by the graph's nodes"
    )

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        every = batch.stack.feat
        label = ((every == 0) | (every == 1)).all(0)
        found = segment_sum(batch.x[:, label] if label.any() else batch.x, batch.membership, len(batch.picks))
        if self.counts == "log":
            return found.clamp(min=0).log1p()
        return found / torch.from_numpy(batch.lengths).unsqueeze(1) if self.counts == "shares" else found
