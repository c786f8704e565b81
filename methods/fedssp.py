"""FedSSP: clients with sets of graphs share the encoders of graph spectra; all other parameters are personal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse as sp
import torch
import torch.nn.functional as F

from ..benchmark.engine import (
    METHODS,
    Backbone,
    Batch,
    ClientBatch,
    Facts,
    Forward,
    GraphBatch,
    GraphModel,
    GraphRows,
    Network,
    Params,
    SparseMatrix,
    Streams,
    Tree,
    active_kernels,
    affine,
    dropout,
    is_statistic,
    linear_maps,
    neighbours,
    option,
    owners,
    section,
    segment_add,
    segment_product,
    segment_sum,
    torch_source,
)
from .fedavg import SharedPart
from .parts.encoders import Padded, linear, normalise

# -- spectra -----------------------------------------------------------------------------------------------------------


GAP = 1e-8  # closer eigenvalues count as equal


def _decompose(adjacency: sp.csr_matrix, first: int, last: int) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvalues (n,) and eigenvectors (n, n) of D - A of one graph, in float64.

    The basis of equal eigenvalues, which LAPACK chooses by processor, is made unique: dropout depends on it.
    """
    block = adjacency[first:last, first:last].toarray().astype(np.float64)
    values, vectors = np.linalg.eigh(np.diag(block.sum(1)) - block)
    for equal in np.split(np.arange(len(values)), np.flatnonzero(np.diff(values) > GAP) + 1):
        if len(equal) > 1:
            values[equal] = values[equal].mean()
            vectors[:, equal] = _unique_basis(vectors[:, equal])
    return values, vectors


def _unique_basis(vectors: np.ndarray) -> np.ndarray:
    """Return the basis (n, k) that Gram-Schmidt gives from the projections of nodes 0, 1, ... on their span."""
    rotation = np.empty((0, vectors.shape[1]))
    for row in vectors:
        rest = row - rotation.T @ (rotation @ row)
        if (length := np.linalg.norm(rest)) > 1e-6:
            rotation = np.vstack([rotation, rest / length])
    return vectors @ rotation.T


def eigenvalues(adjacency: sp.csr_matrix, starts: np.ndarray) -> torch.Tensor:
    """Return the eigenvalues (nodes, 1) of the graphs' Laplacians D - A."""
    values = [_decompose(adjacency, *ends)[0] for ends in pairwise(starts)]
    return torch.from_numpy(np.concatenate(values).astype(np.float32)).unsqueeze(1)


def eigenvectors(adjacency: sp.csr_matrix, starts: np.ndarray) -> sp.csr_matrix:
    """Return the eigenvectors as columns, block-diagonal; all entries of a block are stored, also zeros."""
    lengths = np.diff(starts)
    data = [_decompose(adjacency, *ends)[1].ravel() for ends in pairwise(starts)]
    columns = [np.tile(np.arange(a, a + n), n) for a, n in zip(starts[:-1], lengths, strict=True)]
    ends = np.concatenate([[0], np.cumsum(np.repeat(lengths, lengths))])
    return sp.csr_matrix((np.concatenate(data), np.concatenate(columns), ends), shape=adjacency.shape)


@dataclass(frozen=True)
class Spectra:
    """The spectra of a batch's graphs. values: (N, 1) eigenvalues. at_edges: (E, N); at_edges times g(values) is U
    diag(g) U^T of each graph at its edges, by target. sizes: edges per client. padded: the graphs' rows."""

    values: torch.Tensor
    at_edges: SparseMatrix
    sizes: tuple[int, ...]
    padded: Padded

    @classmethod
    def of(cls, batch: GraphBatch) -> Spectra:
        """Return the spectra of a batch, computed once."""
        if "spectra" not in batch.memo:
            with section("spectra"):
                batch.memo["spectra"] = cls._compute(batch)
        spectra: Spectra = batch.memo["spectra"]
        return spectra

    @classmethod
    def _compute(cls, batch: GraphBatch) -> Spectra:
        vectors = batch.cut(batch.stack.operator(eigenvectors))
        edges = batch.view(neighbours).scipy()
        target = np.repeat(np.arange(edges.shape[0]), np.diff(edges.indptr))
        left, right = vectors[target], vectors[edges.indices]
        products = (left.data * right.data, left.indices, left.indptr)
        ends = edges.indptr[np.cumsum((0, *batch.sizes))]
        return cls(
            batch.code(eigenvalues),
            SparseMatrix(sp.csr_matrix(products, shape=(len(target), edges.shape[0])), "filters"),
            tuple(np.diff(ends).tolist()),
            Padded.of(batch),
        )

    def attention(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int) -> torch.Tensor:
        """Return (N, h) the attention of each row to the rows of its graph (Vaswani et al. 2017). heads: number."""
        outputs = []
        for rows, real in zip(self.padded.rows, self.padded.real, strict=True):
            q, k, v = (x[rows].view(*rows.shape, heads, -1).transpose(1, 2) for x in (query, key, value))
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=real[:, None, None])
            outputs.append(out.transpose(1, 2).flatten(2)[real])
        return torch.cat(outputs)[self.padded.nodes]


# -- the model ---------------------------------------------------------------------------------------------------------

SCALE, PERIOD = 100, 10000.0  # factor of an eigenvalue, and the longest wave length of its code


class SpectralModel(GraphModel):
    """x = ReLU(X W_in); then for each layer x = x + drop(sum over neighbours u of GELU(x_u W_pre) * s_uv), and
    x = x + drop(ReLU(BN(ReLU(BN(x W)) W'))); r = mean over each graph's nodes; logits = linear head on r.

    s_uv, (h,), is the softmax over the neighbours u of drop(GELU(BN(GELU(BN(B_uv W)) W'))), B_uv the entries of
    U diag(g_m) U^T for heads m, and g = z W_dec. z of an eigenvalue: its code (the value, sines and cosines) times W_e,
    plus attention among the eigenvalues of the graph, plus a two-layer map, both on normalised rows.

    Parameters: "eigen." and "filter." of the two encoders; "preference", (h,), is used by the method.
    """

    heads: int = option(4, "filters of the spectrum, and heads of the attention", ge=1)
    rate: float = option(0.1, "dropout", ge=0, lt=1)

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        source, h = torch_source(generator), self.hidden
        maps = {"input": (features, h), "eigen": (h + 1, h), "filter.inner": (self.heads, h), "filter.outer": (h, h)}
        maps |= {f"attention.{name}": (h, h) for name in ("query", "key", "value", "out")}
        maps |= {"map.inner": (h, h), "map.outer": (h, h), "decoder": (h, self.heads)}
        for i in range(self.layers):
            maps |= {f"{i}.{name}": (h, h) for name in ("pre", "inner", "outer")}
        params = linear_maps(maps | {"head": (h, classes)}, source, self.linear_start)
        ones, zeros = torch.ones(h), torch.zeros(h)
        layered = ("attention.norm", "map.norm")
        batched = [f"{part}.{name}.norm" for part in ("filter", *range(self.layers)) for name in ("inner", "outer")]
        for name in (*layered, *batched):
            params |= {f"{name}.weight": ones.clone(), f"{name}.bias": zeros.clone()}
        for name in batched:
            params |= {f"{name}.running_mean": zeros.clone(), f"{name}.running_var": ones.clone()}
        return params | {"preference": zeros.clone()}

    def forward(self, params: Params, batch: GraphRows, streams: Streams | None = None) -> Forward:  # type: ignore[override]
        """Return logits (B, C) of graphs; `pre` is [r], r (B, h)."""
        nodes, spectra = batch.nodes, Spectra.of(batch.of)
        passed = self._passed(params, batch, spectra, streams)
        x = torch.relu(affine(params, "input", self.entered(batch, streams), nodes))
        for i in range(self.layers):
            sent = F.gelu(linear(params, f"{i}.pre", x, nodes.sizes))
            x = x + dropout(active_kernels().u_mul_e_sum(nodes.graph, sent, passed), self.rate, streams, nodes.sizes)
            mapped = self._mapped(params, str(i), x, nodes.sizes, streams, torch.relu)
            x = x + dropout(mapped, self.rate, streams, nodes.sizes)
        mean = batch.of.pool(x) / batch.lengths.unsqueeze(1)
        return Forward(batch.own_classes(linear(params, "head", mean, batch.sizes)), [mean], activate=lambda rows: rows)

    def _passed(self, params: Params, batch: GraphRows, spectra: Spectra, streams: Streams | None) -> torch.Tensor:
        """Return s (E, h)."""
        sizes = batch.nodes.sizes
        z = linear(params, "eigen", self.coded(spectra.values), sizes)
        rows = self._normal(params, "attention.norm", z, sizes)
        split = [linear(params, f"attention.{name}", rows, sizes) for name in ("query", "key", "value")]
        attended = spectra.attention(split[0], split[1], split[2], self.heads)
        z = z + dropout(linear(params, "attention.out", attended, sizes), self.rate, streams, sizes)
        rows = F.gelu(linear(params, "map.inner", self._normal(params, "map.norm", z, sizes), sizes))
        z = z + dropout(linear(params, "map.outer", rows, sizes), self.rate, streams, sizes)
        at_edges = spectra.at_edges @ linear(params, "decoder", z, sizes)
        score = self._mapped(params, "filter", at_edges, spectra.sizes, streams, F.gelu)
        return active_kernels().edge_softmax(batch.nodes.graph, dropout(score, self.rate, streams, spectra.sizes))

    def coded(self, values: torch.Tensor) -> torch.Tensor:
        """Return codes (N, h + 1): the eigenvalue, and sines and cosines of SCALE times it in h / 2 wave lengths."""
        waves = torch.exp(torch.arange(0, self.hidden, 2) * (-math.log(PERIOD) / self.hidden))
        angle = values * SCALE * waves
        return torch.cat([values, angle.sin(), angle.cos()], 1)

    def _mapped(
        self, params: Params, part: str, rows: torch.Tensor, sizes: tuple[int, ...], streams: Streams | None, act: Any
    ) -> torch.Tensor:
        """Apply two linear maps, each followed by BatchNorm over the client's rows and an activation."""
        for name in (f"{part}.inner", f"{part}.outer"):
            rows = segment_add(segment_product(rows, params[f"{name}.weight"], sizes), params[f"{name}.bias"], sizes)
            training = streams is not None
            rows = act(normalise(params, f"{name}.norm", rows, sizes, training=training, track=training))
        return rows

    @staticmethod
    def _normal(params: Params, name: str, rows: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
        scaled = F.layer_norm(rows, rows.shape[1:]) * params[f"{name}.weight"].index_select(0, owners(sizes))
        return segment_add(scaled, params[f"{name}.bias"], sizes)


# -- the method --------------------------------------------------------------------------------------------------------

SHARED = ("eigen.", "filter.")


@METHODS.register("fedssp")
class FedSSP(SharedPart):
    """Tan, Wan, Huang, Ye, NeurIPS 2024 (arXiv 2410.20105): sets of graphs, generic spectral knowledge, preferences.

    A graph's eigenvalues are encoded with attention to each other and give filters; an encoding of the filters' values
    at the edges weights the messages (SpectralModel). Client k: the encoders of eigenvalues and of filters <- the
    global ones, then E epochs of its whole model, with a personal preference p_k, on the mean over graphs of
        CE(head(r + p_k)) + tau/2 mean_h (m - M)^2,
    r a graph's mean node value, m the mean of r over the minibatch, M the received consensus; before the first M,
    without p_k and the second term. Server: means of the encoders, and M, the mean of the clients' mean r over their
    training graphs, both weighted by the training configuration's `weighting`. All other parameters, and the running
    statistics of the encoders' BatchNorm, are not sent. Messages: the encoders and the mean up, the encoders and M
    down: 2 h^2 + (heads + 8) h scalars of encoders and h of means. Scored: each client's model with the new encoders.

    Depth and width are those of the run's backbone; the architecture is always the paper's. As in the released code p_k
    shifts r in training only; `preference` "always" is the other reading. Departures: the code's entry of the identity
    at an edge, always 0, and its dropout on attention weights are left out. The code has separate rates of AdamW and
    SGD for model and p_k (here the run's optimiser for both), a new AdamW for each minibatch, never resets the gradient
    of p_k, draws a separate first model per client, averages without weights, sends no encoders in the first round, and
    uses the mean of the last minibatch, times 1/2, as m and as M: its tau 100 is 25 here.
    """

    family = "personal"
    summary = "clients average the encoders of graph spectra and a mean graph embedding; the rest is personal"
    title = "FedSSP"
    venue = "NeurIPS 2024"
    paper_url = "https://arxiv.org/abs/2410.20105"
    tasks = ("graph-classification",)
    heterogeneous_features = True
    revision: ClassVar[int] = 2

    heads: int = option(4, "filters, and heads of the attention (released code: 4)", ge=1)
    rate: float = option(0.1, "dropout rate, instead of the run's (released code: 0.1)", ge=0, lt=1)
    tau: float = option(
        25.0,
        "weight of the distance to the consensus (released code: 100 on halves, which is 25)",
        ge=0,
        tune=[0.25, 2.5, 25.0],
    )
    preference: Literal["training", "always"] = option(
        "training", "p_k is added in training only (released code), or also in predictions"
    )

    def adapt(self, backbone: Backbone) -> Backbone:
        return backbone.turned_into(SpectralModel, encoder=backbone, heads=self.heads, rate=self.rate, dropout=0.0)

    def skip(self, facts: Facts, backbones: Sequence[Backbone]) -> str | None:
        for width in {backbone.hidden for backbone in backbones}:
            if width % self.heads or width % 2:
                return f"{self.name} needs a width that 2 and its {self.heads} heads divide, not {width}"
        return super().skip(facts, backbones)

    def shared(self, params: Params) -> Params:
        return {name: value for name, value in params.items() if name.startswith(SHARED) and not is_statistic(name)}

    def local_loss(self, clients: ClientBatch) -> torch.Tensor:
        out = clients.forward()
        if "consensus" not in clients.received:
            return clients.cross_entropy(out.logits)
        logits = preferred(clients.params, out.embedding, clients.batch)
        mean, trains = self._means(clients, out.embedding)
        distance = (mean - clients.received["consensus"]).square().mean(1)
        return clients.cross_entropy(logits) + self.tau / 2 * distance.masked_fill(~trains, 0)

    def client(self, clients: ClientBatch) -> Tree:
        upload = super().client(clients)
        with torch.no_grad():
            mean, trains = self._means(clients, clients.forward(training=False).embedding)
        received = clients.received.get("consensus", torch.zeros_like(mean))  # for clients without training graphs
        return upload | {"consensus": torch.where(trains.unsqueeze(1), mean, received)}

    @staticmethod
    def _means(clients: ClientBatch, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return (K, h) the mean over each client's training graphs, 0 without any, and (K,) whether it has any."""
        train = clients.batch.rows["train"]
        owner = clients.batch.owner[train]
        count = segment_sum(torch.ones_like(owner), owner, len(clients))
        return segment_sum(rows[train], owner, len(clients)) / count.clamp(min=1).unsqueeze(1), count > 0

    @torch.no_grad()
    def predict(self, params: Params, network: Network, data: Sequence[Batch]) -> torch.Tensor:
        out = network.forward(params, data)
        return out.logits if self.preference == "training" else preferred(params, out.embedding, data[0])


def preferred(params: Params, rows: torch.Tensor, batch: Batch) -> torch.Tensor:
    """Return the head's logits on graphs' rows (B, h) plus each client's preference."""
    logits = linear(params, "head", segment_add(rows, params["preference"], batch.sizes), batch.sizes)
    masked: torch.Tensor = batch.own_classes(logits)  # type: ignore[attr-defined]
    return masked
