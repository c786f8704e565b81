"""FedVN: virtual nodes that all clients share, linked to graphs by a network of every client's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from pydantic import Field

from ...benchmark.engine import (
    METHODS,
    Backbone,
    ClientBatch,
    Download,
    GraphRows,
    Params,
    Server,
    Tree,
    average,
    segment_sum,
)
from ...registry import tunable
from ..fedavg import FedAvg
from ..parts.contrast import unit_rows
from .model import FIXED, GENERATOR, HALF, Pass, VirtualModel


@METHODS.register("fedvn")
class FedVN(FedAvg):
    """Fu et al., AAAI 2025 ("Virtual Nodes Can Help"): sets of graphs, virtual nodes.

    Every graph gets M virtual nodes, with values V that all clients share, and links s_i in (0, 1)^M to its nodes i,
    which a network of the client's own generates (VirtualModel). Client k, with the received classifier and V: first E
    epochs of its generator, all else fixed, on the mean over graphs of
        CE + link_weight softplus((cos(S, S') - cos(S, S_k)) / temperature),
    S the sum of a graph's s_i, S_k the mean S of the client's minibatch before, S' the rival; then E epochs of
    classifier and V, generator fixed, on CE + spread_weight mean over pairs of corr(V_a, V_b)^2, the correlation over
    entries, pairs of a node with itself included. Server and messages as FedAvg, of the classifier and V; the generator
    stays. Scored: the global classifier with the client's own generator. So a client takes twice the steps of FedAvg,
    each parameter as many.

    S' is 1 / M for all links in the released code, which never changes it (`rival` "uniform"); with "mean" it is the
    mean over clients of S_k of the round before, M scalars more up and down.
    Width, depth and dropout are the cell's backbone's; the architecture is always the paper's. From
    the released code, the paper's text was not to be had. Departures: a pass that scores normalises by running
    statistics, which are averaged too; in the code, without any, it takes those of the graphs that it scores. V starts
    at Glorot's draw, in the code at 0, around which the gradient of a correlation has no bound. The code trains by SGD.
    """

    family = "personal"
    summary = "FedAvg on graphs with shared virtual nodes, linked by a network of every client's own"
    title = "FedVN"
    venue = "AAAI 2025"
    tasks = ("graph-classification",)
    delivers = "personal"

    virtual: int = Field(
        20, ge=1, description="M, virtual nodes of a graph (code: 20)", json_schema_extra=tunable(5, 10, 20)
    )
    spread_weight: float = Field(
        0.1, ge=0, description="lambda_1, weight of the correlations of virtual nodes (code: 0.1)"
    )
    link_weight: float = Field(
        1.0, ge=0, description="lambda_2, weight of the contrast of links (code: 1)",
        json_schema_extra=tunable(0.1, 1.0, 10.0),
    )  # fmt: skip
    temperature: float = Field(0.1, gt=0, description="t, temperature of the contrast (code: 0.1)")
    rival: Literal["uniform", "mean"] = Field(
        "uniform", description="S', links of equal weight (released code), or the clients' mean"
    )

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return [
            VirtualModel(
                encoder=own, virtual=self.virtual, **{name: getattr(own, name) for name in Backbone.model_fields}
            )
            for own in super().architecture(backbones)
        ]

    def prepare(self, cohort: ClientBatch) -> None:
        super().prepare(cohort)
        cohort.state["links"] = torch.full((len(cohort), self.virtual), HALF)

    def open(self, server: Server) -> Download:
        server.state["model"] = crossing(server.initial_model())
        rival = {"links": torch.full((self.virtual,), 1 / self.virtual)} if self.rival == "mean" else {}
        return {"model": server.state["model"], **rival}

    def client(self, cohort: ClientBatch) -> Tree:
        cohort.load(cohort.received["model"])
        own = {name: value for name, value in cohort.params.items() if name.startswith(GENERATOR)}
        cohort.fit(self.generator_loss, params=own, name="generator")
        cohort.fit(self.local_loss, params=crossing(cohort.params))
        links = {"links": cohort.state["links"]} if self.rival == "mean" else {}
        return {"model": crossing(cohort.params), **links}

    def generator_loss(self, cohort: ClientBatch) -> torch.Tensor:
        """(K,) the first loss; the mean links of the minibatch are kept for the next."""
        model, batch = parts(cohort)
        links = model.links(cohort.params, batch, Pass(cohort.streams, of_batch=True, track=True))
        loss = cohort.cross_entropy(model.classify(cohort.params, batch, links, FIXED).logits)
        total = segment_sum(links, batch.of.membership, len(batch.label))
        rows, owner = batch.rows["train"], batch.owner[batch.rows["train"]]
        unit = unit_rows(total[rows])
        uniform = torch.full((len(cohort), self.virtual), 1 / self.virtual)
        rival = cohort.received["links"] if self.rival == "mean" else uniform
        near, far = ((unit * unit_rows(fixed)[owner]).sum(1) for fixed in (cohort.state["links"], rival))
        each = F.softplus((far - near) / self.temperature)
        self._keep(cohort, total[rows].detach(), owner)
        return loss + self.link_weight * cohort.mean_over(each, rows)

    @staticmethod
    def _keep(cohort: ClientBatch, links: torch.Tensor, owner: torch.Tensor) -> None:
        """The mean links of each client's graphs in this minibatch, if it has any."""
        count = segment_sum(torch.ones_like(owner), owner, len(cohort)).unsqueeze(1)
        mean = segment_sum(links, owner, len(cohort)) / count.clamp(min=1)
        cohort.state["links"] = torch.where(count > 0, mean, cohort.state["links"])

    def local_loss(self, cohort: ClientBatch) -> torch.Tensor:
        values = cohort.params["virtual"]
        apart = values - values.mean(2, keepdim=True)
        unit = unit_rows(apart.flatten(0, 1)).view_as(apart)
        correlation = (unit @ unit.mT).square().mean((1, 2))
        return super().local_loss(cohort) + self.spread_weight * correlation

    def server(self, server: Server, uploads: Tree) -> Download:
        found = super().server(server, {"model": uploads["model"]})
        assert isinstance(found, dict)
        return found | ({"links": average(uploads["links"], server.weights)} if self.rival == "mean" else {})

    def global_model(self, server: Server) -> Params | None:
        return None  # without a generator it answers nothing

    def personal_model(self, cohort: ClientBatch) -> Params | None:
        return cohort.params | cohort.received["model"]


def crossing(params: Params) -> Params:
    """The classifier and the virtual nodes."""
    return {name: value for name, value in params.items() if not name.startswith(GENERATOR)}


def parts(cohort: ClientBatch) -> tuple[VirtualModel, GraphRows]:
    """The model, and the graphs of the step."""
    model, batch = cohort.network.groups[0].backbone, cohort.batch
    assert isinstance(model, VirtualModel)
    assert isinstance(batch, GraphRows)
    return model, batch
