"""References that train nothing: what a score must beat before it means anything."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    METHODS,
    Batch,
    ClientBatch,
    Download,
    Method,
    Network,
    Params,
    Phase,
    Server,
    Step,
    TrainConfig,
    Tree,
    segment_sum,
)


class Untrained(Method):
    """One round in which nothing is trained and nothing is sent."""

    reference = True
    trains = False
    heterogeneous = True

    def phases(self, config: TrainConfig) -> list[Phase]:
        return [Phase((Step(self.client, self.server),), 1)]

    def client(self, cohort: ClientBatch) -> Tree:
        return {}

    def server(self, server: Server, uploads: Tree) -> Download:
        return {}


@METHODS.register("majority")
class Majority(Untrained):
    """Reference: every client names the most frequent class of its own training nodes, for every node.

    Of equally frequent classes the first; class 0 where a client has no training node. Messages: none.
    """

    family = "reference"
    summary = "the most frequent class of each client: the answer without learning"
    title = "Majority class"
    tasks = ("node", "graph-classification")
    heterogeneous_features = True

    delivers = "personal"

    def prepare(self, cohort: ClientBatch) -> None:
        batch, rows = cohort.batch, cohort.batch.rows["train"]
        votes = F.one_hot(batch.label[rows], cohort.classes).float()
        cohort.state["votes"] = segment_sum(votes, batch.owner[rows], len(cohort))

    def personal_model(self, cohort: ClientBatch) -> Params | None:
        return {"votes": cohort.state["votes"]}

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        return params["votes"].repeat_interleave(torch.tensor(network.sizes(data)), 0)
