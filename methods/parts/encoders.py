"""Encoders of graph sets, and the small networks on top of them, stacked over the clients like every backbone; graphs
padded to a few sizes, for batched products within each graph.

Methods whose paper fixes the architecture build them (`Method.architecture`), with width and depth of the run's
backbone and without dropout. Linear maps start Glorot-uniform with zero bias, as in InfoGraph's and MVGRL's released
code. Rows are dense; `sizes`: rows per client, possibly 0. Also losses of unsupervised graph learning: local-global
mutual information, and contrast between two views.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F
from pydantic import Field

from ...benchmark.engine import (
    STATISTICS,
    Encoder,
    GraphBatch,
    Operator,
    Params,
    Streams,
    linear_maps,
    normalised,
    option,
    owners,
    rate,
    section,
    segment_add,
    segment_product,
)

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
            inner, outer = (self.hidden if i else features, self.hidden), (self.hidden, self.hidden)
            params |= linear_maps({f"{i}.inner": inner, f"{i}.outer": outer}, source, "glorot")
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
            params |= linear_maps({f"{i}": (self.hidden if i else features, self.hidden)}, source, "glorot")
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
        params = linear_maps({"shortcut": (self.inputs, self.out)}, source, "glorot")
        for i in range(3):
            params |= linear_maps({f"{i}": (self.out if i else self.inputs, self.out)}, source, "glorot")
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


def linear(params: Params, name: str, rows: torch.Tensor, sizes: Sizes) -> torch.Tensor:
    """Return the rows after the linear layer `name` of their client."""
    return segment_add(segment_product(rows, params[f"{name}.weight"], sizes), params[f"{name}.bias"], sizes)


def dropout_factors(streams: Streams, purpose: str, shape: tuple[int, int], p: float) -> torch.Tensor:
    """Return the factors of dropout of a single client's rows: 0, or 1 / (1 - p)."""
    return streams.keep(purpose, [shape[0] * shape[1]], p).view(shape).float() / (1 - rate(p))


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


@dataclass(frozen=True)
class PersonalisedPageRank:
    """S = alpha (I - (1 - alpha) D^-1/2 (A + I) D^-1/2)^-1 (Klicpera et al., NeurIPS 2019), exact, for each graph.

    An operator of `GraphStack`: one dense block per graph, 0 between graphs, used without further normalisation.
    threshold: entries below it are dropped (0: none).
    """

    alpha: float
    threshold: float = 0.0

    def __call__(self, adjacency: sp.csr_matrix, starts: np.ndarray) -> sp.csr_matrix:
        walk, lengths = normalised(adjacency, starts), np.diff(starts)
        first = np.concatenate([[0], np.cumsum(lengths**2)])
        data, columns = np.empty(first[-1], np.float32), np.empty(first[-1], np.int64)
        for n in np.unique(lengths):  # one call inverts all graphs of a size
            graphs = np.flatnonzero(lengths == n)
            blocks = np.stack([walk[s : s + n, s : s + n].toarray() for s in starts[graphs]])
            inverse = np.linalg.inv(np.eye(n) - (1 - self.alpha) * blocks)
            place = first[graphs, None] + np.arange(n * n)
            data[place] = (self.alpha * inverse).reshape(len(graphs), -1)
            columns[place] = starts[graphs, None] + np.tile(np.arange(n), n)
        indptr = np.concatenate([[0], np.cumsum(np.repeat(lengths, lengths))])
        diffusion = sp.csr_matrix((data, columns, indptr), shape=adjacency.shape)
        if self.threshold > 0:
            diffusion.data[diffusion.data < self.threshold] = 0
            diffusion.eliminate_zeros()
        return diffusion


def jensen_shannon(
    nodes: torch.Tensor, graphs: torch.Tensor, lengths: Sequence[torch.Tensor], counts: Sequence[int]
) -> torch.Tensor:
    """Return E_neg - E_pos (K,), the Jensen-Shannon bound of InfoGraph and MVGRL on node-graph pairs, per client.

    E_pos = mean over pairs (node, its graph) of log 2 - softplus(-l.g); E_neg = mean over the client's pairs (node,
    other graph) of softplus(-l.g) + l.g - log 2. nodes: (N, c); graphs: (B, c); lengths: per client the nodes of each
    of its graphs; counts: graphs per client. A client without graphs has loss 0, a client with one graph has no E_neg.
    Scores are computed for one client at a time, n_k x B_k.
    """
    losses, sizes = [], [int(length.sum()) for length in lengths]
    for codes, g, length in zip(nodes.split(sizes), graphs.split(list(counts)), lengths, strict=True):
        if not len(g):
            losses.append(nodes.new_zeros(()))
            continue
        scores = codes @ g.T
        home = torch.repeat_interleave(torch.arange(len(g)), length)
        positive = scores.gather(1, home.unsqueeze(1)).squeeze(1)
        # softplus(-s) + s = softplus(s), so the sum over negatives is that over all pairs minus the positive ones.
        total = F.softplus(scores).sum() - F.softplus(positive).sum()
        pairs = len(codes) * (len(g) - 1)
        negative = total / pairs - math.log(2) if pairs else torch.zeros(())
        losses.append(negative + F.softplus(-positive).mean() - math.log(2))
    return torch.stack(losses)


def between_views(first: torch.Tensor, second: torch.Tensor, tau: float) -> torch.Tensor:
    """Return the mean over the 2B codes u of log sum_{z != u} exp(u.z / tau) - u.v / tau, v the same graph in the other
    view, z over both views (FCLG's Eq. 5 and 6; SimCLR's NT-Xent if rows have length 1). first, second: (B, c).
    """
    codes = torch.cat([first, second])
    scores = codes @ codes.T / tau
    scores = scores.masked_fill(torch.eye(len(codes), dtype=torch.bool), -math.inf)
    partner = (first * second).sum(1) / tau
    return torch.logsumexp(scores, 1).mean() - partner.mean()


def to_global_from_previous(
    now: torch.Tensor, shared: torch.Tensor, previous: torch.Tensor, tau: float
) -> torch.Tensor:
    """Return (n,) -log( e^{cos(now, shared)/tau} / (e^{cos(now, shared)/tau} + e^{cos(now, previous)/tau}) ) (MOON;
    FCLG's Eq. 7 and 8). Rows: codes under the current, the received global and the earlier local model.
    """
    return F.softplus((F.cosine_similarity(now, previous) - F.cosine_similarity(now, shared)) / tau)


@dataclass(frozen=True)
class Padded:
    """The graphs of a batch, grouped by size: the number of nodes, rounded up to a power of two.

    For each size: rows (b, size), the nodes of its b graphs; real (b, size), bool, False for padding, which repeats a
    graph's last node; graphs (b,), their indices in the batch. nodes (N,), graphs_at (B,): the index of each node and
    graph in results that are concatenated by size.
    """

    rows: list[torch.Tensor]
    real: list[torch.Tensor]
    graphs: list[torch.Tensor]
    nodes: torch.Tensor
    graphs_at: torch.Tensor

    @classmethod
    def of(cls, batch: GraphBatch) -> Padded:
        """Return the padded graphs of a batch, computed once."""
        if "padded" not in batch.memo:
            batch.memo["padded"] = cls._compute(batch.lengths)
        padded: Padded = batch.memo["padded"]
        return padded

    @classmethod
    def _compute(cls, lengths: np.ndarray) -> Padded:
        first = np.cumsum(lengths) - lengths
        size = 2 ** np.ceil(np.log2(np.maximum(lengths, 1))).astype(np.int64)
        rows, real, graphs = [], [], []
        for width in np.unique(size):
            place = np.flatnonzero(size == width)
            step, n = np.arange(width), lengths[place, None]
            rows.append(first[place, None] + np.minimum(step, n - 1))
            real.append(step < n)
            graphs.append(place)
        nodes = np.concatenate([ids[kept] for ids, kept in zip(rows, real, strict=True)])
        return cls(
            list(map(torch.from_numpy, rows)),
            list(map(torch.from_numpy, real)),
            list(map(torch.from_numpy, graphs)),
            torch.from_numpy(np.argsort(nodes)),
            torch.from_numpy(np.argsort(np.concatenate(graphs))),
        )

    def gathered(self, weights: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return (B, M, h): per graph the sum over its nodes i of weights_i rows_i^T. weights: (N, M), rows: (N, h)."""
        sums = [(weights[at] * real.unsqueeze(2)).mT @ rows[at] for at, real in zip(self.rows, self.real, strict=True)]
        return torch.cat(sums)[self.graphs_at]

    def spread(self, weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """Return (N, h): per node the sum over m of its weights times its graph's values. weights: (N, M), values: (B,
        M, h)."""
        sums = [
            (weights[at] @ values[graphs])[real]
            for at, real, graphs in zip(self.rows, self.real, self.graphs, strict=True)
        ]
        return torch.cat(sums)[self.nodes]
