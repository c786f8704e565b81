"""The method interface for sets of graphs: unsupervised embeddings that the benchmark clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, TypeVar

import numpy as np
import torch
from pydantic import Field

from ....datasets.federation import Goal
from ..backbones import Backbone, Params
from ..client_batch import ClientBatch
from ..config import TrainConfig
from ..method import Method
from ..network import Network
from .clustering_batch import GraphClientBatch
from .graphsets import GraphBatch


class Encoder(Backbone):
    """A backbone for graph sets; `hidden` and `layers` have effect, the other fields of a backbone have not."""

    @property
    def width(self) -> int:
        """L h, the width of a graph's code."""
        return self.layers * self.hidden

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        source = torch.Generator().manual_seed(int(generator.integers(2**63)))
        return self.draw(features, source)

    def draw(self, features: int, source: torch.Generator) -> Params:
        """Fresh parameters of one client (no client axis): Glorot-uniform weights, zero biases."""
        raise NotImplementedError


E = TypeVar("E", bound=Encoder)


def encoder_of(network: Network, kind: type[E]) -> E:
    """The architecture of a network whose method says that it is of this kind."""
    found = network.backbones[0]
    assert isinstance(found, kind)
    return found


class GraphMethod(Method):
    """A method that learns one embedding per graph without labels. Subclasses give `encoder`, `batch_loss` and `embed`.

    Without labels nothing can be selected by validation, so the last round counts; the embeddings of all graphs are
    clustered together. The cell's `select_by`, `patience` and `score_on` are therefore
    replaced.
    """

    tasks: ClassVar[tuple[Goal, ...]] = ("graph",)
    heterogeneous_features: ClassVar[bool] = False

    encoder: ClassVar[type[Encoder]]  # the architecture that the paper fixes

    scored_codes: Literal["raw", "unit"] = Field(
        "raw",
        description="cluster embeddings as they are, or scaled to length 1; not in the papers, raw is our choice: "
        "FCLG's MVGRL rows are those of raw sums, in which k-means splits off a few large graphs",
    )

    def architecture(self, backbones: Sequence[Backbone]) -> Sequence[Backbone]:
        return [self.encoder(hidden=given.hidden, layers=given.layers) for given in backbones]

    def protocol(self, config: TrainConfig) -> TrainConfig:
        return config.model_copy(update={"select_by": "last", "patience": None, "score_on": "global"})

    def local_loss(self, cohort: ClientBatch) -> torch.Tensor:
        """(K,) each client's loss on its minibatch; 0 for a client that sits the step out."""
        assert isinstance(cohort, GraphClientBatch)
        return self.batch_loss(cohort)

    def batch_loss(self, cohort: GraphClientBatch) -> torch.Tensor:
        """(K,) the same, on `cohort.minibatch`."""
        raise NotImplementedError

    def embed(self, params: Params, network: Network, batch: GraphBatch) -> torch.Tensor:
        """(B, c) embeddings of the graphs under models (K, ...), before any scaling."""
        raise NotImplementedError
