"""FedSSP: clients that hold sets of graphs share how spectra are read, and keep how messages pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field

from ...benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Download,
    Facts,
    Network,
    Params,
    Server,
    Tree,
    average,
    is_statistic,
    segment_add,
    segment_sum,
)
from ...registry import tunable
from ..fedavg import LocalTraining
from ..parts.encoders import linear
from .model import SpectralModel

SHARED = ("eigen.", "filter.")


@METHODS.register("fedssp")
class FedSSP(LocalTraining):
    """Tan, Wan, Huang, Ye, NeurIPS 2024 (arXiv 2410.20105): sets of graphs, generic spectral knowledge, preferences.

    A graph's eigenvalues are coded, attend to each other and become filters, whose values at the edges are encoded as
    what each edge passes (SpectralModel). Client k: the encoders of eigenvalues and of filters <- the global ones, then
    E epochs of its whole model, with a preference p_k of its own, on the mean over graphs of
        CE(head(r + p_k)) + tau/2 mean_h (m - M)^2,
    r a graph's mean node value, m the mean of r over the minibatch, M the received consensus; without p_k and the
    second term as long as there is no M. Server: means of the encoders and of the clients' mean r over their training
    graphs, M, both weighted by the training configuration's `weighting`. Everything else stays at the client, running
    statistics of the encoders' BatchNorm too. Messages: the encoders and the mean up, the encoders and M down:
    2 h^2 + (heads + 8) h scalars of encoders and h of means. Scored: each client's own model under the new encoders.

    Depth and width are the cell's backbone's; the architecture is always the paper's. As in the
    released code p_k shifts r only in training; `preference` "always" is the other reading. Departures: the code's
    entry of the identity at an edge, always 0, is left out, and so is dropout on attention weights. It has rates of
    AdamW and SGD for model and p_k (here the cell's optimiser for both), makes AdamW anew for each minibatch, never
    clears the gradient of p_k, draws each client's first model itself, averages without weights, sends no encoders in
    the first round, and takes the mean of the last minibatch, times 1/2, for m and for M: its tau 100 is 25 here.
    """

    family = "personal"
    summary = "clients average what encodes spectra, are held near a common mean graph, and keep the rest"
    title = "FedSSP"
    venue = "NeurIPS 2024"
    paper_url = "https://arxiv.org/abs/2410.20105"
    tasks = ("graph-classification",)
    heterogeneous_features = True
    delivers = "personal"

    heads: int = Field(4, ge=1, description="filters, and heads of the attention (released code: 4)")
    rate: float = Field(0.1, ge=0, lt=1, description="dropout in the place of the cell's (released code: 0.1)")
    tau: float = Field(
        25.0, ge=0, description="weight of the distance to the consensus (released code: 100 on halves, which is 25)",
        json_schema_extra=tunable(0.25, 2.5, 25.0),
    )  # fmt: skip
    preference: Literal["training", "always"] = Field(
        "training", description="when p_k is added: only in training (released code), or in predictions too"
    )

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        own = {"heads": self.heads, "rate": self.rate, "dropout": 0.0}
        return [
            SpectralModel(encoder=given, **{name: getattr(given, name) for name in Backbone.model_fields} | own)
            for given in super().architecture(backbones)
        ]

    def skip(self, facts: Facts, backbones: Sequence[Backbone]) -> str | None:
        for width in {backbone.hidden for backbone in backbones}:
            if width % self.heads or width % 2:
                return f"{self.name} needs a width that 2 and its {self.heads} heads divide, not {width}"
        return super().skip(facts, backbones)

    def open(self, server: Server) -> Download:
        return {"model": shared(server.initial_model())}

    def local_loss(self, cohort: ClientBatch) -> torch.Tensor:
        out = cohort.forward()
        if "consensus" not in cohort.received:
            return cohort.cross_entropy(out.logits)
        logits = preferred(cohort.params, out.embedding, cohort.batch)
        mean, held = self._means(cohort, out.embedding)
        apart = (mean - cohort.received["consensus"]).square().mean(1)
        return cohort.cross_entropy(logits) + self.tau / 2 * apart.masked_fill(~held, 0)

    def client(self, cohort: ClientBatch) -> Tree:
        cohort.load(cohort.received["model"])
        cohort.fit(self.local_loss)
        with torch.no_grad():
            mean, held = self._means(cohort, cohort.forward(training=False).embedding)
        known = cohort.received.get("consensus", torch.zeros_like(mean))  # nothing of its own to say
        return {"model": shared(cohort.params), "consensus": torch.where(held.unsqueeze(1), mean, known)}

    def server(self, server: Server, uploads: Tree) -> Download:
        return average(uploads, server.weights)

    @staticmethod
    def _means(cohort: ClientBatch, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """(K, h) the mean over each client's training graphs, 0 without any; (K,) whether it has any."""
        at = cohort.batch.rows["train"]
        owner = cohort.batch.owner[at]
        count = segment_sum(torch.ones_like(owner), owner, len(cohort))
        return segment_sum(rows[at], owner, len(cohort)) / count.clamp(min=1).unsqueeze(1), count > 0

    def personal_model(self, cohort: ClientBatch) -> Params | None:
        return cohort.params | cohort.received["model"]

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        out = network.forward(params, data)
        return out.logits if self.preference == "training" else preferred(params, out.embedding, data[0])


def preferred(params: Params, rows: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Logits of the head on graphs (B, h) shifted by each client's preference."""
    logits = linear(params, "head", segment_add(rows, params["preference"], batch.sizes), batch.sizes)
    found: torch.Tensor = batch.own_classes(logits)  # type: ignore[attr-defined]
    return found


def shared(params: Params) -> Params:
    """The parameters of the two encoders, without running statistics."""
    return {name: value for name, value in params.items() if name.startswith(SHARED) and not is_statistic(name)}
