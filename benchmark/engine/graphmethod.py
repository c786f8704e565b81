"""The method interface for sets of graphs: unsupervised embeddings that the benchmark clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field

from .backbones import Backbone, Params
from .cohort import Cohort
from .config import TrainConfig
from .encoders import Encoder
from .graphcohort import GraphCohort
from .graphsets import GraphBatch
from .method import Method
from .network import Network


class GraphMethod(Method):
    """A method that learns one embedding a graph without labels. Subclasses give `encoder`, `batch_loss` and `embed`.

    Without labels nothing can be selected by validation, so the last round counts; the embeddings of all graphs are
    clustered together. The cell's `select`, `patience` and `data` are therefore replaced.
    """

    task: ClassVar[Literal["node", "graph"]] = "graph"

    encoder: ClassVar[type[Encoder]]  # the architecture that the paper fixes

    scored_codes: Literal["raw", "unit"] = Field(
        "raw",
        description="cluster embeddings as they are, or scaled to length 1; not in the papers, raw is our choice: "
        "FCLG's MVGRL rows are those of raw sums, in which k-means splits off a few large graphs",
    )

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return [self.encoder(hidden=given.hidden, layers=given.layers) for given in backbones]

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"select": "last", "patience": None, "data": "global"})

    def local_loss(self, cohort: Cohort) -> torch.Tensor:
        """(K,) each client's loss on its minibatch; 0 for a client that sits the step out."""
        assert isinstance(cohort, GraphCohort)
        return self.batch_loss(cohort)

    def batch_loss(self, cohort: GraphCohort) -> torch.Tensor:
        """(K,) the same, on `cohort.minibatch`."""
        raise NotImplementedError

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        """(B, c) embeddings of the graphs under models (K, ...), before any scaling."""
        raise NotImplementedError
