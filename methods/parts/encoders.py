"""Encoders of graph sets, and the small networks on top of them, stacked over the clients like every backbone.

Methods whose paper fixes the architecture build them (`Method.architecture`), with width and depth of the run's
backbone and without dropout. Rows are dense; `sizes`: rows per client, possibly 0.
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
    """nodes: (N, c); graphs: (B, L h), the concatenated sums over each graph of all layers' outputs."""

    nodes: torch.Tensor
    graphs: torch.Tensor


class GINEncoder(Encoder):
    """L layers z = MLP(h + sum over neighbours h), h' = BatchNorm(ReLU(z)), MLP = linear, ReLU, linear (InfoGraph's).

    A node's code is the concatenation of all layers' outputs. BatchNorm uses the client's nodes in the batch in
    training and the running statistics in scoring (momentum 0.1 and epsilon 1e-5, torch's defaults).
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
        """Return the codes of the graphs with operator `view`. track: update the running statistics in `params`."""
        matrix, h, outputs = batch.view(view), batch.x, []
        for i in range(self.layers):
            # The inner linear map comes first: it commutes with the sum and may reduce the width.
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
        """Return (n, out) of rows (n, inputs)."""
        h = rows
        for i in range(3):
            h = linear(params, f"{i}", h, sizes)
            h = torch.relu(h) if self.activation == "relu" else prelu(h, params[f"{i}.slope"], sizes)
        return h + linear(params, "shortcut", rows, sizes)


def named(params: Params, prefix: str) -> Params:
    """Return the parameters whose names start with `prefix.`, without the prefix."""
    return {name.removeprefix(f"{prefix}."): v for name, v in params.items() if name.startswith(f"{prefix}.")}


def init_linear(name: str, n_in: int, n_out: int, source: torch.Generator) -> Params:
    """Return Glorot-uniform weight (in, out) and zero bias, as in InfoGraph's and MVGRL's released code."""
    return {f"{name}.weight": glorot(n_in, n_out, source), f"{name}.bias": torch.zeros(n_out)}


def linear(params: Params, name: str, rows: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """Return the rows after the linear layer `name` of their client."""
    return segment_add(segment_product(rows, params[f"{name}.weight"], sizes), params[f"{name}.bias"], sizes)


def prelu(rows: torch.Tensor, slope: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """Return max(x, 0) + a min(x, 0). slope: (K, 1), a of each client."""
    return torch.where(rows > 0, rows, rows * slope[owners(sizes)])


@section("batch norm")
def normalise(
    params: Params, name: str, rows: torch.Tensor, sizes: Sizes, *, training: bool, track: bool
) -> torch.Tensor:
    """Return BatchNorm over each client's rows; a single row has no variance, so the running statistics are used."""
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
