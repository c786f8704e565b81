"""Graph augmentation: random edges dropped, random feature columns set to zero."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ...benchmark.engine import Batch, ClientBatch, Streams, as_graph, section
from ...registry import Spec

Strength = Literal["weak", "strong"]


@section("augmentation")
def augment(batch: Batch, streams: Streams, purpose: str, edge_rate: float, feature_rate: float) -> Batch:
    """The same nodes with each edge dropped with probability `edge_rate` and each column with `feature_rate`.

    An edge is a pair of nodes: both directions stay or go together. Self-loops, which backbones add on their own, stay.
    A column is dropped for all nodes of a client, and each client draws its own columns. streams: of the clients of the
    batch, in order; purpose: names the streams, so that two views of different purposes are independent.
    """
    graph, x = batch.graph, batch.x
    if edge_rate > 0:
        pair, counts = batch.links
        kept = streams.keep(f"{purpose} edges", counts, edge_rate)[pair]
        source, target = batch.ends
        graph = as_graph(source[kept], target[kept], graph.num_nodes())
    if feature_rate > 0:
        columns = streams.keep(f"{purpose} columns", [x.width] * batch.clients, feature_rate)
        x = x.drop_columns(columns.view(batch.clients, -1))
    return batch.replace(graph=graph, x=x)


class Views(Spec):
    """Hyper-parameters of weak and strong views, for methods to inherit. Defaults: FGSSL's released code."""

    weak_edges: float = Field(0.3, ge=0, lt=1, description="share of edges that a weak view drops (FGSSL's code: 0.3)")
    weak_features: float = Field(0.3, ge=0, lt=1, description="share of columns that a weak view drops (0.3)")
    strong_edges: float = Field(0.8, ge=0, lt=1, description="share of edges that a strong view drops (0.8)")
    strong_features: float = Field(0.5, ge=0, lt=1, description="share of columns that a strong view drops (0.5)")

    def rates(self, strength: Strength) -> tuple[float, float]:
        """(edges, feature columns): the shares that a view drops."""
        weak, strong = (self.weak_edges, self.weak_features), (self.strong_edges, self.strong_features)
        return weak if strength == "weak" else strong

    def view(self, cohort: ClientBatch, strength: Strength, purpose: str) -> tuple[Batch, ...]:
        """A fresh view of all clients of a client batch, one batch per architecture, as `Network.forward` takes it."""
        groups = zip(cohort.network.groups, cohort.data, strict=True)
        rates = self.rates(strength)
        return tuple(augment(data, cohort.streams.select(group.positions), purpose, *rates) for group, data in groups)
