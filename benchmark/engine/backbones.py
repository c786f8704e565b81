"""The backbones of the benchmark: GCN, SGC, MLP, GAT, GraphSAGE, GIN, GINE, and OrthoGCN for many layers."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import model_validator

from ...registry import option
from .backbone import BACKBONES, Backbone, Forward, Params, affine, glorot, linear_map, linear_maps, product
from .batch import Batch
from .device import section
from .features import Features
from .kernels import active_kernels
from .rng import Streams
from .segment_ops import dropout, is_shared, propagate, segment_add, segment_dot, segment_product, segment_sum

__all__ = [
    "BACKBONES", "GAT", "GCN", "GIN", "GINE", "MLP", "SGC", "Backbone", "Forward", "GraphSAGE", "OrthoGCN", "Params",
    "affine", "glorot", "linear_map", "linear_maps",
]  # fmt: skip


@BACKBONES.register("gcn")
class GCN(Backbone):
    """Kipf & Welling, ICLR 2017: H' = D^-1/2 (A + I) D^-1/2 H W + b. Any depth."""

    by_blocks: ClassVar[bool] = True

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        if i == 0 and isinstance(batch, Batch) and h is batch.x and batch.summed is not None:
            return affine(params, "0", batch.summed, batch)
        return propagate(batch.gcn, product(h, params[f"{i}.weight"], batch), params[f"{i}.bias"], batch.above.sizes)


@BACKBONES.register("sgc")
class SGC(Backbone):
    """Wu et al., ICML 2019: logits = S^k X W + b, S = D^-1/2 (A + I) D^-1/2, k = `layers`. No hidden layer.

    With `linear_head`, S^k X W + b is the embedding of width h and a linear classifier follows.
    """

    by_blocks: ClassVar[bool] = True

    dropout: float = option(0.0, "dropout before the linear head, if there is one", ge=0, lt=1)

    def widths(self, features: int, classes: int) -> list[tuple[int, int]]:
        return [(features, self.hidden if self.linear_head else classes)]

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        x = batch.x.dropout(self.input_dropout, streams)
        # S^k (X W) = (S^k X) W, and sparse features stay sparse.
        z = x @ params["0.weight"]
        for i in range(self.layers):
            z = batch.layer(i).gcn @ z
        z = segment_add(z, params["0.bias"], batch.sizes)
        if not self.linear_head:
            return Forward(z)
        h = dropout(z, self.dropout, streams, batch.sizes)
        return Forward(affine(params, "head", h, batch), [z], activate=lambda rows: rows)


@BACKBONES.register("mlp")
class MLP(Backbone):
    """Linear layers on the features of each node, without edges. Initial values are those of torch.nn.Linear."""

    by_blocks: ClassVar[bool] = True

    @property
    def hops(self) -> int:
        return 0

    def init_layer(self, n_in: int, n_out: int, source: torch.Generator, *, hidden: bool) -> Params:
        weight, bias = linear_map(n_in, n_out, source, "torch")
        return {"weight": weight, "bias": bias}

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        return affine(params, str(i), batch.computed(h), batch.above)


@BACKBONES.register("gat")
class GAT(Backbone):
    """Velickovic et al., ICLR 2018: attention over neighbours and the node itself.

    e_uv = LeakyReLU(a_l . W h_u + a_r . W h_v), softmax over the in-edges of v, h'_v = sum alpha_uv W h_u + b.
    The output of a hidden layer joins `heads` heads of width hidden / heads; the last layer has one head.
    """

    by_blocks: ClassVar[bool] = True

    heads: int = option(1, "attention heads of each hidden layer; divides the hidden width", ge=1)
    slope: float = option(0.2, "negative slope of the LeakyReLU on attention scores", ge=0)

    @model_validator(mode="after")
    def _divides(self) -> GAT:
        if self.hidden % self.heads:
            raise ValueError(f"hidden width {self.hidden} is not divisible by {self.heads} heads")
        return self

    def init_layer(self, n_in: int, n_out: int, source: torch.Generator, *, hidden: bool) -> Params:
        heads = self.heads if hidden else 1
        width = n_out // heads
        return {
            "weight": glorot(n_in, n_out, source),
            "left": glorot(width, heads, source).T.contiguous(),
            "right": glorot(width, heads, source).T.contiguous(),
            "bias": torch.zeros(n_out),
        }

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        left, right = params[f"{i}.left"], params[f"{i}.right"]
        z = product(h, params[f"{i}.weight"], batch).view(-1, *left.shape[1:])
        score_l = segment_dot(z, left, batch.sizes).unsqueeze(-1)
        score_r = segment_dot(batch.computed(z), right, batch.above.sizes).unsqueeze(-1)
        graph = batch.looped
        with section("message passing"):
            score = F.leaky_relu(active_kernels().u_add_v(graph, score_l, score_r), self.slope)
            alpha = active_kernels().edge_softmax(graph, score)
            out = active_kernels().u_mul_e_sum(graph, z, alpha)
        return segment_add(out.flatten(1), params[f"{i}.bias"], batch.above.sizes)


@BACKBONES.register("sage")
class GraphSAGE(Backbone):
    """Hamilton et al., NeurIPS 2017, mean aggregator: h'_v = W_self h_v + W_neigh mean_{u in N(v)} h_u + b."""

    by_blocks: ClassVar[bool] = True

    def init_layer(self, n_in: int, n_out: int, source: torch.Generator, *, hidden: bool) -> Params:
        weight = torch.cat([glorot(n_in, n_out, source), glorot(n_in, n_out, source)], 1)
        return {"weight": weight, "bias": torch.zeros(n_out)}

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        # One product for both halves: columns [W_self, W_neigh].
        centre, neighbour = product(h, params[f"{i}.weight"], batch).chunk(2, dim=1)
        summed = batch.computed(centre) + batch.mean @ neighbour.contiguous()
        return segment_add(summed, params[f"{i}.bias"], batch.above.sizes)


@BACKBONES.register("gin")
class GIN(Backbone):
    """Xu et al., ICLR 2019: h'_v = MLP((1 + eps) h_v + sum_{u in N(v)} h_u), MLP = linear, ReLU, linear, width h.

    With `batch_norm` there is a BatchNorm before every ReLU: the paper's experiments have it on every hidden layer.
    """

    by_blocks: ClassVar[bool] = True

    eps: float = option(0.0, "weight of the node itself; fixed unless train_eps")
    train_eps: bool = option(False, "learn one eps per layer")
    batch_norm: bool = option(False, "BatchNorm before every ReLU, over each client's rows of the batch", later=True)

    def whole_only(self) -> str | None:
        if self.batch_norm:
            return "BatchNorm needs all rows of a client"
        return super().whole_only()

    def init_layer(self, n_in: int, n_out: int, source: torch.Generator, *, hidden: bool) -> Params:
        params: Params = {}
        for name, shape in {"inner": (n_in, self.hidden), "outer": (self.hidden, n_out)}.items():
            params[f"{name}.weight"], params[f"{name}.bias"] = linear_map(*shape, source, self.linear_start)
            if self.batch_norm and (hidden or name == "inner"):
                params |= {f"{name}.scale": torch.ones(shape[1]), f"{name}.shift": torch.zeros(shape[1])}
        return params | ({"eps": torch.tensor([self.eps])} if self.train_eps else {})

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        # The inner linear map commutes with the sum. It comes first, so that sparse features stay sparse.
        z, bias = product(h, params[f"{i}.inner.weight"], batch), params[f"{i}.inner.bias"]
        if isinstance(batch, Batch) and not (self.train_eps or self.eps):
            return self.outer(params, i, propagate(batch.sum, z, bias, batch.sizes, own=True), batch)
        scaled = z * (1 + params[f"{i}.eps"])[batch.owner] if self.train_eps else z * (1 + self.eps)
        z = segment_add(batch.computed(scaled) + batch.sum @ z, bias, batch.above.sizes)
        return self.outer(params, i, z, batch)

    def outer(self, params: Params, i: int, z: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The rest of layer i after its inner linear map: (N, h) -> (N, out)."""
        z = affine(params, f"{i}.outer", torch.relu_(_normalised(params, f"{i}.inner", z, batch.above)), batch.above)
        return _normalised(params, f"{i}.outer", z, batch.above)


def _normalised(params: Params, name: str, rows: torch.Tensor, batch: Batch) -> torch.Tensor:
    """BatchNorm `name` (Ioffe & Szegedy 2015) over each client's rows; the rows themselves if the model has none.

    Evaluation also uses the statistics of its batch, so methods need not average running statistics. If a client's
    whole graph is one batch, they are those of training except for dropout.
    """
    if f"{name}.scale" not in params:
        return rows
    scales, shifts = params[f"{name}.scale"], params[f"{name}.shift"]
    return torch.cat([
        F.batch_norm(values, None, None, scale, shift, training=True) if len(values) > 1 else values * 0 + shift
        for values, scale, shift in zip(torch.split(rows, list(batch.sizes)), scales, shifts, strict=True)
    ])  # fmt: skip


@BACKBONES.register("gine")
class GINE(GIN):
    """Hu et al., ICLR 2020: h'_v = MLP((1 + eps) h_v + sum_{u in N(v)} relu(h_u + W_e e_uv + b_e)), e_uv the features
    of an edge (molecules: one-hot features of a bond, as in OGB), the MLP of `gin`. The same as PyG's GINEConv.
    """

    by_blocks: ClassVar[bool] = False

    edge_features: int = option(13, "number of features of an edge; 13 for a bond", ge=1)

    def init_layer(self, n_in: int, n_out: int, source: torch.Generator, *, hidden: bool) -> Params:
        params = super().init_layer(n_in, n_out, source, hidden=hidden)
        weight, bias = linear_map(self.edge_features, n_in, source, self.linear_start)
        return {**params, "edge.weight": weight, "edge.bias": bias}

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        rows, edges = h.dense() if isinstance(h, Features) else h, batch.edges
        edge_values = segment_product(edges.feat, params[f"{i}.edge.weight"], edges.sizes)
        edge_values = segment_add(edge_values, params[f"{i}.edge.bias"], edges.sizes)
        with section("message passing"):
            messages = torch.relu(rows.index_select(0, edges.source) + edge_values)
            summed = segment_sum(messages, edges.target, len(rows))
        scaled = rows * (1 + params[f"{i}.eps"])[batch.owner] if self.train_eps else rows * (1 + self.eps)
        return self.outer(params, i, affine(params, f"{i}.inner", scaled + summed, batch), batch)


RIDGE = 1e-5  # added to the Gram matrix, as in the released code of Ortho-GConv


def orthogonalise(weight: torch.Tensor, iterations: int) -> torch.Tensor:
    """Make matrices (..., n, m) nearly orthogonal, all in one batched computation.

    Z = W minus the mean of each row, S = (Z Z^T + 1e-5 I) / ||Z Z^T + 1e-5 I||_F, B_0 = I,
    B_{t+1} = 1.5 B_t - 0.5 B_t^3 S, result B_T Z / sqrt(||Z Z^T + 1e-5 I||_F). Its singular values are near 1, except
    that of the vector of ones, which centring removes. For n > m, Z^T Z (m, m) replaces Z Z^T (n, n): the result is the
    same because p(Z Z^T) Z = Z p(Z^T Z) for a polynomial p.

    The iteration amplifies rounding in the direction that centring removed: finite in float32 up to about 8 iterations.
    """
    centred = weight - weight.mean(-1, keepdim=True)
    n, m = centred.shape[-2:]
    tall = n > m
    gram = centred.mT @ centred if tall else centred @ centred.mT
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype)
    gram = gram + RIDGE * eye
    # Z Z^T has n - m more eigenvalues than Z^T Z; with the ridge each of them is RIDGE.
    norm = (gram.square().sum((-2, -1), keepdim=True) + max(n - m, 0) * RIDGE**2).sqrt()
    gram = gram / norm
    root = 1.5 * eye - 0.5 * gram if iterations else eye
    for _ in range(iterations - 1):
        root = 1.5 * root - 0.5 * (root @ root @ (root @ gram))
    return (centred @ root if tall else root @ centred) / norm.sqrt()


@BACKBONES.register("ortho-gcn")
class OrthoGCN(GCN):
    """Ortho-GConv (Guo et al., AAAI 2022, arXiv 2109.11338) as FedOMD uses it: GCNConv, orthogonal layers, GCNConv.

    The first and the last layer are those of `gcn`. A layer between them is H' = A_hat H W_o without bias, with
    W_o = orthogonalise(mixing W + (1 - mixing) I) in every pass and W initially uniform in +-1/sqrt(h). The first
    layer's weight is orthogonalised only once, when it is drawn.
    """

    by_blocks: ClassVar[bool] = False

    layers: int = option(4, "number of layers, first and last included (FedOMD: 4, two orthogonal)", ge=1)
    iterations: int = option(
        4, "Newton iterations T (Ortho-GConv's script for Cora); float32 overflows beyond 7", ge=0, le=6
    )
    mixing: float = option(0.5, "share of W, the rest is the identity (Ortho-GConv's script for Cora)", ge=0, le=1)

    @property
    def orthogonal(self) -> range:
        """The numbers of the orthogonal layers."""
        return range(1, self.layers - 1)

    def init(self, generator: np.random.Generator, features: int, classes: int) -> Params:
        params = super().init(generator, features, classes)
        for i in self.orthogonal:
            params[f"{i}.weight"] /= 3**0.5  # from Glorot's +-sqrt(3 / h) to +-1/sqrt(h)
            del params[f"{i}.bias"]
        if self.layers > 1:
            params["0.weight"] = orthogonalise(params["0.weight"], self.iterations)
        return params

    def layer(self, params: Params, i: int, h: torch.Tensor | Features, batch: Batch) -> torch.Tensor:
        if i not in self.orthogonal:
            return super().layer(params, i, h, batch)
        return batch.gcn @ product(h, params[f"{i}.weight"], batch)

    def forward(self, params: Params, batch: Batch, streams: Streams | None = None) -> Forward:
        return super().forward(params | self.mixed(params), batch, streams)

    def mixed(self, params: Params) -> Params:
        """The weights W_o of the orthogonal layers, (K, h, h) each; expanded if all clients share the model."""
        names = [f"{i}.weight" for i in self.orthogonal]
        if not names:
            return {}
        with section("orthogonalisation"):
            clients = len(params[names[0]])
            shared = all(is_shared(params[name]) and not params[name].requires_grad for name in names)
            stack = torch.stack([params[name][:1] if shared else params[name] for name in names])
            eye = torch.eye(self.hidden, dtype=stack.dtype)
            done = orthogonalise(self.mixing * stack + (1 - self.mixing) * eye, self.iterations)
            return {name: weight.expand(clients, -1, -1) for name, weight in zip(names, done, strict=True)}
