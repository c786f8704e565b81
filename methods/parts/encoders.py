"""Encoders of graph sets, and the small networks on top of them, stacked over the clients like every backbone.

They are built by methods whose paper fixes the architecture (`Method.architecture`), take width and depth from the
cell's backbone, and have no dropout. Rows are dense; `sizes` says how many belong to each client, some perhaps none.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from pydantic import Field

from ...benchmark.engine import (
    STATISTICS,
    Encoder,
    GraphBatch,
    Operator,
    Params,
    glorot,
    owners,
    section,
    segment_add,
    segment_product,
)
from ...registry import option

Sizes = tuple[int, ...]


@dataclass
class Codes:
    """nodes: (N, c); graphs: (B, L h), the sums over each graph of every layer's output, side by side."""

    nodes: torch.Tensor
    graphs: torch.Tensor


class GINEncoder(Encoder):
    """L layers z = MLP(h + sum over neighbours h), h' = BatchNorm(ReLU(z)), MLP = linear, ReLU, linear (InfoGraph's).

    A node's code is the concatenation of all layers' outputs. BatchNorm normalises over the client's nodes in the
    batch when training and by the running statistics when scoring (momentum 0.1 and epsilon 1e-5, torch's defaults).
    """

    batch_norm: bool = option(True, "BatchNorm after every layer")

    def draw(self, features: int, source: torch.Generator) -> Params:
        params: Params = {}
        for i in range(self.layers):
            params |= init_linear(f"{i}.inner", self.hidden if i else features, self.hidden, source)
            params |= init_linear(f"{i}.outer", self.hidden, self.hidden, source)
            if self.batch_norm:
                ones, zeros = torch.ones(self.hidden), torch.zeros(self.hidden)
                values = {"weight": ones, "bias": zeros, "running_mean": zeros, "running_var": ones}
                params |= {f"{i}.norm.{name}": value.clone() for name, value in values.items()}
        return params

    def encode(
        self, params: Params, batch: GraphBatch, view: Operator, *, training: bool = True, track: bool = False
    ) -> Codes:
        """The graphs seen through `view`. track: the running statistics in `params` follow this batch, in place."""
        matrix, h, outputs = batch.view(view), batch.x, []
        for i in range(self.layers):
            # The inner linear map goes first: it commutes with the sum and may narrow the rows.
            z = segment_product(h, params[f"{i}.inner.weight"], batch.sizes)
            z = segment_add(z + matrix @ z, params[f"{i}.inner.bias"], batch.sizes)
            h = torch.relu(linear(params, f"{i}.outer", torch.relu(z), batch.sizes))
            if self.batch_norm:
                h = normalise(params, f"{i}.norm", h, batch.sizes, training=training, track=track)
            outputs.append(h)
        nodes = torch.cat(outputs, 1)
        return Codes(nodes, batch.pool(nodes))


class GCNEncoder(Encoder):
    """L layers h' = PReLU(S h W + b) with one slope per layer (MVGRL's); a node's code is the last layer's output."""

    def draw(self, features: int, source: torch.Generator) -> Params:
        params: Params = {}
        for i in range(self.layers):
            params |= init_linear(f"{i}", self.hidden if i else features, self.hidden, source)
            params[f"{i}.slope"] = torch.tensor([0.25])
        return params

    def encode(self, params: Params, batch: GraphBatch, view: Operator) -> Codes:
        matrix, h, pooled = batch.view(view), batch.x, []
        for i in range(self.layers):
            z = matrix @ segment_product(h, params[f"{i}.weight"], batch.sizes)
            h = prelu(segment_add(z, params[f"{i}.bias"], batch.sizes), params[f"{i}.slope"], batch.sizes)
            pooled.append(batch.pool(h))
        return Codes(h, torch.cat(pooled, 1))


class Head(Encoder):
    """Three layers and a linear shortcut: y = f3 f2 f1 x + W x + b, f = activation after linear, all of width `out`.

    activation "relu" is InfoGraph's discriminator, "prelu" MVGRL's projection.
    """

    inputs: int = Field(ge=1, description="width of the rows")
    out: int = Field(ge=1, description="width of the projection")
    activation: str = option("relu", "relu, or prelu with one slope per layer", pattern="^p?relu$")

    def draw(self, features: int, source: torch.Generator) -> Params:
        params = init_linear("shortcut", self.inputs, self.out, source)
        for i in range(3):
            params |= init_linear(f"{i}", self.out if i else self.inputs, self.out, source)
            if self.activation == "prelu":
                params[f"{i}.slope"] = torch.tensor([0.25])
        return params

    def __call__(self, params: Params, rows: torch.Tensor, sizes: Sizes) -> torch.Tensor:
        """(n, inputs) -> (n, out)."""
        h = rows
        for i in range(3):
            h = linear(params, f"{i}", h, sizes)
            h = torch.relu(h) if self.activation == "relu" else prelu(h, params[f"{i}.slope"], sizes)
        return h + linear(params, "shortcut", rows, sizes)


def named(params: Params, prefix: str) -> Params:
    """The parameters under `prefix.`, without it."""
    return {name.removeprefix(f"{prefix}."): v for name, v in params.items() if name.startswith(f"{prefix}.")}


def init_linear(name: str, n_in: int, n_out: int, source: torch.Generator) -> Params:
    """Glorot-uniform weight (in, out) and zero bias: what InfoGraph's and MVGRL's releases use."""
    return {f"{name}.weight": glorot(n_in, n_out, source), f"{name}.bias": torch.zeros(n_out)}


def linear(params: Params, name: str, rows: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """Each client's rows through its own linear layer `name`."""
    return segment_add(segment_product(rows, params[f"{name}.weight"], sizes), params[f"{name}.bias"], sizes)


def prelu(rows: torch.Tensor, slope: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """max(x, 0) + a min(x, 0) with each client's own a; slope: (K, 1)."""
    return torch.where(rows > 0, rows, rows * slope[owners(sizes)])


@section("batch norm")
def normalise(
    params: Params, name: str, rows: torch.Tensor, sizes: Sizes, *, training: bool, track: bool
) -> torch.Tensor:
    """BatchNorm over each client's rows; a client with a single row has no variance and keeps the running one."""
    out = []
    for k, client_rows in enumerate(rows.split(sizes)):
        affine = params[f"{name}.weight"][k], params[f"{name}.bias"][k]
        mean, var = (params[f"{name}.{statistic}"].detach()[k] for statistic in STATISTICS)
        if training and len(client_rows) > 1:
            running = (mean, var) if track else (None, None)
            out.append(F.batch_norm(client_rows, running[0], running[1], affine[0], affine[1], training=True))
        else:
            out.append(F.batch_norm(client_rows, mean, var, *affine) if len(client_rows) else client_rows)
    return torch.cat(out)
