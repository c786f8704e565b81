"""Backbones whose propagation has fixed weights: GCN, SGC, and the MLP that ignores edges."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field

from ..batch import Batch, Features
from ..rng import Streams
from ..segment_ops import dropout, propagate, segment_add
from .backbone import BACKBONES, Backbone, Forward, Params, affine, linear_map, product


@BACKBONES.register("gcn")
class GCN(Backbone):
    """Kipf & Welling, ICLR 2017: H' = D^-1/2 (A + I) D^-1/2 H W + b. Any depth."""

    by_blocks: ClassVar[bool] = True

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        return propagate(batch.gcn, product(h, params[f"{i}.weight"], batch), params[f"{i}.bias"], batch.above.sizes)


@BACKBONES.register("sgc")
class SGC(Backbone):
    """Wu et al., ICML 2019: logits = S^k X W + b, S = D^-1/2 (A + I) D^-1/2, k = `layers`. Nothing hidden.

    With `linear_head`, S^k X W + b is the embedding of width h and a linear classifier follows.
    """

    by_blocks: ClassVar[bool] = True

    dropout: float = Field(0.0, ge=0, lt=1, description="dropout before the linear head, where there is one")

    def widths(self, features: int, classes: int) -> list[tuple[int, int]]:
        return [(features, self.hidden if self.linear_head else classes)]

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        x = batch.x if streams is None else batch.x.dropout(self.input_dropout, streams)
        # W first: the product is the same as (S^k X) W, and the sparse features stay sparse.
        z = x @ params["0.weight"]
        for i in range(self.layers):
            z = batch.layer(i).gcn @ z
        z = segment_add(z, params["0.bias"], batch.sizes)
        if not self.linear_head:
            return Forward(z)
        h = z if streams is None else dropout(z, self.dropout, streams, batch.sizes)
        return Forward(affine(params, "head", h, batch), [z], activate=lambda rows: rows)


@BACKBONES.register("mlp")
class MLP(Backbone):
    """Linear layers on each node's own features; edges are ignored. PyTorch's own initialisation of a linear layer."""

    by_blocks: ClassVar[bool] = True

    @property
    def hops(self) -> int:
        return 0

    def init_layer(self, n_in: int, n_out: int, source: torch.Generator, *, hidden: bool) -> Params:
        weight, bias = linear_map(n_in, n_out, source, "torch")
        return {"weight": weight, "bias": bias}

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        return affine(params, str(i), batch.own(h), batch.above)
