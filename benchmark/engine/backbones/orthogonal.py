"""A deep GCN whose hidden weights are orthogonalised by Newton iterations in every pass."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from ....registry import option
from ..batch import Batch, Features
from ..measuring import section
from ..rng import Streams
from ..segment_ops import is_shared
from .backbone import BACKBONES, Forward, Params, product
from .convolutional import GCN

RIDGE = 1e-5  # added to the Gram matrix, as released with Ortho-GConv


def orthogonalise(weight: torch.Tensor, iterations: int) -> torch.Tensor:
    """(..., n, m) matrices pushed towards orthogonality, all in one batched program.

    Z = W minus the mean of each row, S = (Z Z^T + 1e-5 I) / ||Z Z^T + 1e-5 I||_F, B_0 = I,
    B_{t+1} = 1.5 B_t - 0.5 B_t^3 S, result B_T Z / sqrt(||Z Z^T + 1e-5 I||_F), with singular values near 1, except
    that of the vector of ones, which centring removes. For n > m the m x m matrix Z^T Z replaces Z Z^T: a
    polynomial commutes, p(Z Z^T) Z = Z p(Z^T Z), so the result is the same without a matrix of n x n.

    The iteration amplifies rounding in the direction that centring removed: finite in float32 up to about 8 iterations.
    """
    centred = weight - weight.mean(-1, keepdim=True)
    n, m = centred.shape[-2:]
    tall = n > m
    gram = centred.mT @ centred if tall else centred @ centred.mT
    eye = torch.eye(gram.shape[-1], dtype=gram.dtype)
    gram = gram + RIDGE * eye
    # The n - m eigenvalues that Z Z^T has and Z^T Z has not are the ridge's.
    norm = (gram.square().sum((-2, -1), keepdim=True) + max(n - m, 0) * RIDGE**2).sqrt()
    gram = gram / norm
    root = 1.5 * eye - 0.5 * gram if iterations else eye
    for _ in range(iterations - 1):
        root = 1.5 * root - 0.5 * (root @ root @ (root @ gram))
    return (centred @ root if tall else root @ centred) / norm.sqrt()


@BACKBONES.register("ortho-gcn")
class OrthoGCN(GCN):
    """Ortho-GConv (Guo et al., AAAI 2022, arXiv 2109.11338) as FedOMD uses it: GCNConv, orthogonal layers, GCNConv.

    The first and the last layer are Kipf's; a layer between them is H' = A_hat H W_o without bias, where W_o is the
    orthogonalised mixing W + (1 - mixing) I (see `orthogonalise`) and W starts uniform in +-1/sqrt(h). The first
    layer's weight is orthogonalised once, when it is drawn, and then trained freely.
    """

    by_blocks: ClassVar[bool] = False

    layers: int = option(4, "number of layers, first and last included (FedOMD: 4, two orthogonal)", ge=1)
    iterations: int = option(
        4, "Newton iterations T (Ortho-GConv's script for Cora); float32 blows up beyond 7", ge=0, le=6
    )
    mixing: float = option(0.5, "share of W beside the identity (Ortho-GConv's script for Cora)", ge=0, le=1)

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
        """The weights that the orthogonal layers multiply with, (K, h, h) each; expanded where the model is shared."""
        names = [f"{i}.weight" for i in self.orthogonal]
        if not names:
            return {}
        with section("orthogonalisation"):
            clients = len(params[names[0]])
            shared = all(is_shared(params[name]) and not params[name].requires_grad for name in names)
            stack = torch.stack([params[name][:1] if shared else params[name] for name in names])
            eye = torch.eye(self.hidden, dtype=stack.dtype)
            done = orthogonalise(self.mixing * stack + (1 - self.mixing) * eye, self.iterations)
            return {name: own.expand(clients, -1, -1) for name, own in zip(names, done, strict=True)}
