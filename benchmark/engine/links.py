"""Link prediction: a batch whose rows are pairs of nodes, the model that scores them, and the evaluator.

To a method such a batch is what a batch of nodes is: rows with labels (edge or none) and masks, client after client.
Only the model looks at the nodes below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from ...datasets.federation import LinkClient, Measure
from .backbones import Backbone, Forward, Params, affine, linear_map
from .batch import Batch, Features, LabelledRows, collate
from .client_batch import ClientBatch
from .device import placed
from .evaluate import MEASURES, Evaluator, Models, Scored, Target
from .rng import Streams


@dataclass(frozen=True, eq=False)
class LinkRows(LabelledRows):
    """M pairs of nodes of K clients. nodes: the clients' graphs, of training edges alone. pairs: (M, 2) rows of
    `nodes`. sizes: pairs of each client. label: (M,), 1 = an edge, 0 = none; masks: bool (M,)."""

    nodes: Batch
    pairs: torch.Tensor
    sizes: tuple[int, ...]
    label: torch.Tensor
    masks: dict[str, torch.Tensor]

    @classmethod
    def of(cls, members: Sequence[LinkClient]) -> LinkRows:
        """The pairs of some clients, in the given order."""
        nodes = collate(members)
        shifted = [own.pairs + start for own, start in zip(members, nodes.offsets, strict=False)]
        masks = {part: placed(torch.cat([own.masks[part] for own in members])) for part in members[0].masks}
        label = placed(torch.cat([own.label for own in members]))
        return cls(nodes, placed(torch.cat(shifted)), tuple(len(own.label) for own in members), label, masks)


class LinkClientBatch(ClientBatch):
    """Members are `LinkClient`s. `batch` and `data` are all their pairs, of which the training ones make the loss."""

    def _batch_of(self, members: Sequence[LinkClient]) -> LinkRows:  # type: ignore[override]
        return LinkRows.of(members)

    @property
    def inputs(self) -> Features:
        assert isinstance(self.batch, LinkRows)
        return self.batch.nodes.x


class LinkModel(Backbone):
    """z = the layers of `encoder` on the training edges, all of width h, the last one without activation. The logit of
    an edge between u and v is the inner product of z_u and z_v, that of none is 0: their cross-entropy is the binary
    cross-entropy of the inner product (Kipf & Welling 2016, arXiv 1611.07308). With `decoder` "mlp" both logits are
    W_2 relu(W_1 (z_u * z_v) + b_1) + b_2, with dropout after the activation.

    Parameters: the encoder's own names; of the MLP "post." and "head.".
    """

    encoder: Backbone

    @classmethod
    def around(cls, given: Backbone) -> LinkModel:
        """The predictor of links with the layers of a backbone."""
        shared = {name: getattr(given, name) for name in Backbone.model_fields if name != "linear_head"}
        return cls(encoder=given.model_copy(update={"linear_head": False}), linear_head=False, **shared)

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = self.encoder.init(generator, features, self.hidden)
        if self.decoder == "mlp":
            source = torch.Generator().manual_seed(int(generator.integers(2**63)))
            for name, shape in {"post": (self.hidden, self.hidden), "head": (self.hidden, classes)}.items():
                params[f"{name}.weight"], params[f"{name}.bias"] = linear_map(*shape, source, self.linear_start)
        return params

    def forward(self, params: Params, batch: LinkRows, streams: Streams | None = None) -> Forward:  # type: ignore[override]
        """Logits (M, 2) of pairs; `pre` holds what the decoder gets of each pair, (M, h)."""
        z = self.encoder.forward(params, batch.nodes, streams).logits
        pair = z.index_select(0, batch.pairs[:, 0]) * z.index_select(0, batch.pairs[:, 1])
        if self.decoder == "dot":
            edge = pair.sum(1)
            return Forward(torch.stack([torch.zeros_like(edge), edge], 1), [pair], activate=lambda rows: rows)
        hidden = affine(params, "post", pair, batch)
        return Forward(affine(params, "head", self.active(hidden, batch.sizes, streams), batch), [hidden])


def link_models(backbones: Sequence[Backbone]) -> list[Backbone]:
    """Predictors of links with these layers."""
    return [LinkModel.around(given) for given in backbones]


class LinkEvaluator(Evaluator):
    """Each client's model, or the server's, on the client's own pairs: ROC AUC or mean reciprocal rank."""

    @cached_property
    def _links(self) -> list[LinkClient]:
        return [own for own in self.original.clients if isinstance(own, LinkClient)]

    @cached_property
    def _local(self) -> Target:
        return Target.of([own.label for own in self._links], [own.masks for own in self._links], self._sizes)

    @cached_property
    def _sizes(self) -> list[int]:
        return [len(own.label) for own in self._links]

    def score(self, models: Models, model: str, data: str, *, with_loss: bool = False) -> Scored | None:
        """As for nodes; None on the whole graph and the union, whose edges are to be predicted."""
        return super().score(models, model, data, with_loss=with_loss) if data == "local" else None

    @staticmethod
    def phrase(measure: Measure, model: str, data: str) -> str:
        return f"{MEASURES[measure]} of links, {model} model, local test, mean over clients"
