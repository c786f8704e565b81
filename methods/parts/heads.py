"""Clients whose models end in a linear head on an embedding of one common width, with any architectures."""

from __future__ import annotations

from collections.abc import Sequence

from ...benchmark.engine import Backbone, Facts
from ..fedavg import LocalTraining


class CommonWidth(LocalTraining):
    """Every backbone gets `linear_head`: all its layers yield the cell's width h, and a linear map h -> C follows.

    Without it the last layer of a GNN is the classifier, SGC has no embedding at all, and heads of different
    architectures have different shapes. Private models, so it delivers the clients' own. So on a board of one
    architecture they (and Fed-PUB, whose paper has the same head) run a network with one linear map more than the
    other methods; `local` and `fedavg` with it stay within a point of themselves on Cora, CiteSeer and Amazon Photo.
    """

    delivers = "personal"
    heterogeneous = True

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return [given.model_copy(update={"linear_head": True}) for given in super().architecture(backbones)]

    def skip(self, facts: Facts, backbones: Sequence[Backbone]) -> str | None:
        widths = sorted({backbone.hidden for backbone in backbones})
        if len(widths) > 1:
            return f"{self.name} needs one embedding width for all clients, got {', '.join(map(str, widths))}"
        return super().skip(facts, backbones)
