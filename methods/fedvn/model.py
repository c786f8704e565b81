"""FedVN's two networks: a classifier of graphs with virtual nodes, and what says how they are linked to nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from pydantic import Field

from ...benchmark.engine import (
    Forward,
    GraphModel,
    GraphRows,
    Params,
    Streams,
    dropout,
    glorot,
    linear_map,
    segment_sum,
)
from ..parts.encoders import linear, normalise
from ..parts.padded import Padded

GENERATOR = "generator."
HALF = 0.5


@dataclass(frozen=True)
class Pass:
    """How a network is run. streams: of its dropout, None without. of_batch: BatchNorm by the rows of the batch, not by
    the running statistics. track: these follow the batch."""

    streams: Streams | None = None
    of_batch: bool = False
    track: bool = False


SCORING, FIXED = Pass(), Pass(of_batch=True)


class VirtualModel(GraphModel):
    """M virtual nodes with values V (M, h) in every graph, linked to node i by s_i in (0, 1)^M.

    h = X W_in; in layer l, with V_0 = V: T = sum over the graph's nodes i of s_i h_i^T + V_l, h_i <- h_i + s_i V_l,
    h <- drop(ReLU(BN(MLP(h + sum over neighbours h)))), MLP linear h -> 2 h, BN, ReLU, linear 2 h -> h, and
    V_(l+1) = drop(ReLU(BN(f(ReLU(BN(f'(T))))))), f' h -> 2 h, f 2 h -> h, BN for each entry of each virtual node. The
    last layer has no ReLU and makes no V. Mean over nodes; z = linear h -> h; logits = linear head on drop(ReLU(z)).
    s = sigmoid of a network of the same layers without virtual nodes, with linear h -> h, ReLU, linear h -> M in the
    end.

    Parameters: "generator." for what makes s, "virtual" for V.
    """

    virtual: int = Field(20, ge=1, description="virtual nodes of a graph, M")

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        source, h, m = torch.Generator().manual_seed(int(generator.integers(2**63))), self.hidden, self.virtual
        maps = {"input": (features, h), "post": (h, h), "head": (h, classes)}
        norms: dict[str, int] = {}
        maps |= {f"generator.{name}": (features if name == "input" else h, h) for name in ("input", "post")}
        for i in range(self.layers):
            for part in (f"{i}", f"generator.{i}"):
                maps |= {f"{part}.inner": (h, 2 * h), f"{part}.outer": (2 * h, h)}
                norms |= {f"{part}.inner.norm": 2 * h, f"{part}.norm": h}
            if i < self.layers - 1:
                maps |= {f"{i}.virtual.inner": (h, 2 * h), f"{i}.virtual.outer": (2 * h, h)}
                norms |= {f"{i}.virtual.inner.norm": 2 * h * m, f"{i}.virtual.outer.norm": h * m}
        params: Params = {}
        for name, shape in (maps | {"generator.head": (h, m)}).items():
            params[f"{name}.weight"], params[f"{name}.bias"] = linear_map(*shape, source, self.linear_start)
        for name, width in norms.items():
            params |= {f"{name}.{key}": torch.ones(width) for key in ("weight", "running_var")}
            params |= {f"{name}.{key}": torch.zeros(width) for key in ("bias", "running_mean")}
        return params | {"virtual": glorot(m, h, source)}

    def forward(self, params: Params, batch: GraphRows, streams: Streams | None = None) -> Forward:  # type: ignore[override]
        """Logits (B, C) of graphs; `pre` holds z alone, (B, h)."""
        how = Pass(streams, streams is not None, streams is not None)
        return self.classify(params, batch, self.links(params, batch, SCORING), how)

    def links(self, params: Params, batch: GraphRows, how: Pass) -> torch.Tensor:
        """(N, M) s of every node."""
        sizes = batch.nodes.sizes
        h = linear(params, "generator.input", batch.of.x, sizes)
        for i in range(self.layers):
            h = self._layer(params, f"generator.{i}", h, batch, how, last=i == self.layers - 1)
        h = self._dropped(torch.relu(linear(params, "generator.post", h, sizes)), how, sizes)
        return torch.sigmoid(linear(params, "generator.head", h, sizes))

    def classify(self, params: Params, batch: GraphRows, links: torch.Tensor, how: Pass) -> Forward:
        """The classifier's pass. links: (N, M)."""
        padded, sizes = Padded.of(batch.of), batch.nodes.sizes
        h, virtual = linear(params, "input", batch.of.x, sizes), params["virtual"][batch.owner]
        for i in range(self.layers):
            last = i == self.layers - 1
            seen = h
            h = self._layer(params, str(i), h + padded.spread(links, virtual), batch, how, last=last)
            if not last:
                virtual = self._virtual(params, f"{i}.virtual", padded.gathered(links, seen) + virtual, batch, how)
        mean = segment_sum(h, batch.of.membership, len(batch.label)) / batch.lengths.unsqueeze(1)
        z = linear(params, "post", mean, batch.sizes)
        logits = linear(params, "head", self._dropped(torch.relu(z), how, batch.sizes), batch.sizes)
        return Forward(batch.own_classes(logits), [z])

    def _layer(
        self, params: Params, part: str, h: torch.Tensor, batch: GraphRows, how: Pass, *, last: bool
    ) -> torch.Tensor:
        sizes = batch.nodes.sizes
        z = linear(params, f"{part}.inner", h + batch.nodes.sum @ h, sizes)
        z = torch.relu(self._normal(params, f"{part}.inner.norm", z, sizes, how))
        z = self._normal(params, f"{part}.norm", linear(params, f"{part}.outer", z, sizes), sizes, how)
        return self._dropped(z if last else torch.relu(z), how, sizes)

    def _virtual(self, params: Params, part: str, values: torch.Tensor, batch: GraphRows, how: Pass) -> torch.Tensor:
        """(B, M, h) -> (B, M, h)."""
        sizes = tuple(n * self.virtual for n in batch.sizes)
        for name in (f"{part}.inner", f"{part}.outer"):
            rows = linear(params, name, values.flatten(0, 1), sizes).view(len(values), -1)
            rows = torch.relu(self._normal(params, f"{name}.norm", rows, batch.sizes, how))
            values = rows.view(len(values), self.virtual, -1)
        return self._dropped(rows, how, batch.sizes).view_as(values)

    @staticmethod
    def _normal(params: Params, name: str, rows: torch.Tensor, sizes: tuple[int, ...], how: Pass) -> torch.Tensor:
        return normalise(params, name, rows, sizes, training=how.of_batch, track=how.track)

    def _dropped(self, rows: torch.Tensor, how: Pass, sizes: tuple[int, ...]) -> torch.Tensor:
        return rows if how.streams is None else dropout(rows, self.dropout, how.streams, sizes)
