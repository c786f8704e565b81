"""GINE, which looks at the features of edges."""

from __future__ import annotations

from typing import ClassVar

import torch
from pydantic import Field

from ..batch import Batch, Features
from ..segment_ops import segment_add, segment_product, segment_sum
from ..timing import section
from .backbone import BACKBONES, Params, affine, linear_map
from .convolutional import GIN


@BACKBONES.register("gine")
class GINE(GIN):
    """Hu et al., ICLR 2020: h'_v = MLP((1 + eps) h_v + sum_{u in N(v)} relu(h_u + W_e e_uv + b_e)), e_uv the features
    of an edge (molecules: OGB's of a bond, one-hot), the MLP as of `gin`. The same as PyG's GINEConv.
    """

    by_blocks: ClassVar[bool] = False

    edge_features: int = Field(13, ge=1, description="width of the features of an edge; 13 of a bond")

    def init_layer(self, n_in: int, n_out: int, source: torch.Generator, *, hidden: bool) -> Params:
        params = super().init_layer(n_in, n_out, source, hidden=hidden)
        weight, bias = linear_map(self.edge_features, n_in, source, self.linear_start)
        return {**params, "edge.weight": weight, "edge.bias": bias}

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        rows, edges = h.dense() if isinstance(h, Features) else h, batch.edges
        said = segment_product(edges.feat, params[f"{i}.edge.weight"], edges.sizes)
        said = segment_add(said, params[f"{i}.edge.bias"], edges.sizes)
        with section("message passing"):
            messages = torch.relu(rows.index_select(0, edges.source) + said)
            summed = segment_sum(messages, edges.target, len(rows))
        own = rows * (1 + params[f"{i}.eps"])[batch.owner] if self.train_eps else rows * (1 + self.eps)
        return self.outer(params, i, affine(params, f"{i}.inner", own + summed, batch), batch)
