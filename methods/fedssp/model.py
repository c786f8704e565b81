"""FedSSP's classifier of graphs: filters of the spectrum say how much each edge passes in each channel."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field

from ...benchmark.engine import (
    Forward,
    GraphModel,
    GraphRows,
    Params,
    Streams,
    active_kernels,
    affine,
    dropout,
    linear_map,
    owners,
    segment_add,
    segment_product,
)
from ..parts.encoders import linear, normalise
from .spectra import Spectra

SCALE, PERIOD = 100, 10000.0  # of an eigenvalue, and the longest wave of its code


class SpectralModel(GraphModel):
    """x = ReLU(X W_in); then for each layer x = x + drop(sum over neighbours u of GELU(x_u W_pre) * s_uv), and
    x = x + drop(ReLU(BN(ReLU(BN(x W)) W'))); the mean over each graph's nodes r; logits = linear head on r.

    s_uv, (h,), is the softmax over the neighbours u of drop(GELU(BN(GELU(BN(B_uv W)) W'))), B_uv the entries of
    U diag(g_m) U^T for heads m, and g = z W_dec of each eigenvalue's z: its code (itself, sines and cosines) times W_e,
    plus attention among the eigenvalues of the graph, plus a two-layer map, each on normalised rows.

    Parameters: "eigen." and "filter." for the two encoders; "preference", (h,), is the method's.
    """

    heads: int = Field(4, ge=1, description="filters of the spectrum, and heads of the attention")
    rate: float = Field(0.1, ge=0, lt=1, description="dropout")

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        source, h = torch.Generator().manual_seed(int(generator.integers(2**63))), self.hidden
        maps = {"input": (features, h), "eigen": (h + 1, h), "filter.inner": (self.heads, h), "filter.outer": (h, h)}
        maps |= {f"attention.{name}": (h, h) for name in ("query", "key", "value", "out")}
        maps |= {"map.inner": (h, h), "map.outer": (h, h), "decoder": (h, self.heads)}
        for i in range(self.layers):
            maps |= {f"{i}.{name}": (h, h) for name in ("pre", "inner", "outer")}
        params: Params = {}
        for name, shape in (maps | {"head": (h, classes)}).items():
            params[f"{name}.weight"], params[f"{name}.bias"] = linear_map(*shape, source, self.linear_start)
        ones, zeros = torch.ones(h), torch.zeros(h)
        layered = ("attention.norm", "map.norm")
        batched = [f"{part}.{name}.norm" for part in ("filter", *range(self.layers)) for name in ("inner", "outer")]
        for name in (*layered, *batched):
            params |= {f"{name}.weight": ones.clone(), f"{name}.bias": zeros.clone()}
        for name in batched:
            params |= {f"{name}.running_mean": zeros.clone(), f"{name}.running_var": ones.clone()}
        return params | {"preference": zeros.clone()}

    def forward(self, params: Params, batch: GraphRows, streams: Streams | None = None) -> Forward:  # type: ignore[override]
        """Logits (B, C) of graphs; `pre` holds r alone, (B, h)."""
        nodes, spectra = batch.nodes, Spectra.of(batch.of)
        passed = self._passed(params, batch, spectra, streams)
        x = torch.relu(affine(params, "input", self.entered(batch, streams), nodes))
        for i in range(self.layers):
            sent = F.gelu(linear(params, f"{i}.pre", x, nodes.sizes))
            x = x + self._dropped(active_kernels().u_mul_e_sum(nodes.graph, sent, passed), streams, nodes.sizes)
            x = x + self._dropped(
                self._mapped(params, str(i), x, nodes.sizes, streams, torch.relu), streams, nodes.sizes
            )
        mean = batch.of.pool(x) / batch.lengths.unsqueeze(1)
        return Forward(batch.own_classes(linear(params, "head", mean, batch.sizes)), [mean], activate=lambda rows: rows)

    def _passed(self, params: Params, batch: GraphRows, spectra: Spectra, streams: Streams | None) -> torch.Tensor:
        """(E, h) how much of its source each edge passes in each channel."""
        sizes = batch.nodes.sizes
        z = linear(params, "eigen", self.coded(spectra.values), sizes)
        rows = self._normal(params, "attention.norm", z, sizes)
        split = [linear(params, f"attention.{name}", rows, sizes) for name in ("query", "key", "value")]
        seen = spectra.attention(split[0], split[1], split[2], self.heads)
        z = z + self._dropped(linear(params, "attention.out", seen, sizes), streams, sizes)
        rows = F.gelu(linear(params, "map.inner", self._normal(params, "map.norm", z, sizes), sizes))
        z = z + self._dropped(linear(params, "map.outer", rows, sizes), streams, sizes)
        at_edges = spectra.at_edges @ linear(params, "decoder", z, sizes)
        score = self._mapped(params, "filter", at_edges, spectra.sizes, streams, F.gelu)
        return active_kernels().edge_softmax(batch.nodes.graph, self._dropped(score, streams, spectra.sizes))

    def coded(self, values: torch.Tensor) -> torch.Tensor:
        """(N, h + 1) an eigenvalue, and the sines and cosines of SCALE times it in h / 2 wave lengths."""
        waves = torch.exp(torch.arange(0, self.hidden, 2) * (-math.log(PERIOD) / self.hidden))
        angle = values * SCALE * waves
        return torch.cat([values, angle.sin(), angle.cos()], 1)

    def _mapped(
        self, params: Params, part: str, rows: torch.Tensor, sizes: tuple[int, ...], streams: Streams | None, act: Any
    ) -> torch.Tensor:
        """Two linear maps, each with BatchNorm over the client's rows and an activation after it."""
        for name in (f"{part}.inner", f"{part}.outer"):
            rows = segment_add(segment_product(rows, params[f"{name}.weight"], sizes), params[f"{name}.bias"], sizes)
            training = streams is not None
            rows = act(normalise(params, f"{name}.norm", rows, sizes, training=training, track=training))
        return rows

    @staticmethod
    def _normal(params: Params, name: str, rows: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
        """LayerNorm of each row."""
        scaled = F.layer_norm(rows, rows.shape[1:]) * params[f"{name}.weight"].index_select(0, owners(sizes))
        return segment_add(scaled, params[f"{name}.bias"], sizes)

    def _dropped(self, rows: torch.Tensor, streams: Streams | None, sizes: tuple[int, ...]) -> torch.Tensor:
        return rows if streams is None else dropout(rows, self.rate, streams, sizes)
