"""AdaFGL's personal step: the topology corrected by what the extractor knows, and propagation with signs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

from ...benchmark.engine import Batch, Features, Params, section

DENSE = 3072  # columns of X~ up to which it is kept: a product with it then costs less than propagating h columns
LARGE = 1000  # nodes of a client from which its similarities are not kept for the gradient
HEADS = ("homo", "smooth", "signed")  # the MLPs that see the propagated features


class Topology:
    """What the clients of a client batch know after step 1. known: P (N, C). alike: each client's S (n, n), bool."""

    def __init__(self, batch: Batch, known: torch.Tensor, alpha: float, similar: float, powers: int) -> None:
        self.batch, self.known, self.powers = batch, known, powers
        self.alike = [cosine(own) > similar for own in known.split(batch.sizes)]
        for own in self.alike:
            own.fill_diagonal_(False)
        self.blocks = []
        matrix = batch.sum.scipy()
        for first, alike in zip(batch.offsets, self.alike, strict=False):
            last = first + len(alike)
            edges = torch.from_numpy(matrix[first:last, first:last].toarray())
            block = alpha * edges + (1 - alpha) * alike
            block.diagonal().add_(1)
            scale = block.sum(1).rsqrt()
            self.blocks.append(block.mul_(scale).mul_(scale.unsqueeze(1)))

    @section("topology")
    def propagate(self, rows: torch.Tensor) -> torch.Tensor:
        """A~ rows, client by client."""
        parts = rows.split(self.batch.sizes)
        return torch.cat([block @ own for block, own in zip(self.blocks, parts, strict=True)])

    @cached_property
    def _features(self) -> Features | None:
        """X~ (N, (powers + 1) d) where d is small; else None, and the products are propagated.

        It depends on d alone: the same for a client in any client batch.
        """
        if (self.powers + 1) * self.batch.x.width > DENSE:
            return None
        columns = [self.batch.x.dense()]
        for _ in range(self.powers):
            columns.append(self.propagate(columns[-1]))
        return Features(torch.cat(columns, 1), self.batch.sizes)

    def smoothed(self, weights: Sequence[torch.Tensor]) -> torch.Tensor:
        """X~ W (N, c) = the sum over l of A~^l X W_l, for W_0, W_1, ... (K, d, c)."""
        if self._features is not None:
            return self._features @ torch.cat(list(weights), 1)
        *lower, highest = weights
        out = self.batch.x @ highest
        for weight in reversed(lower):
            out = self.batch.x @ weight + self.propagate(out)
        return out


def cosine(rows: torch.Tensor) -> torch.Tensor:
    """(n, n) cosines of softmax(rows)."""
    unit = F.normalize(rows.softmax(1), dim=1)
    return unit @ unit.T


def prelu(rows: torch.Tensor, slope: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
    """(N, c) with each client's slope (K, 1) below zero."""
    own = torch.repeat_interleave(slope, torch.tensor(sizes), 0)
    return torch.relu(rows) - own * torch.relu(-rows)


@section("signed propagation")
def signed_propagation(h: torch.Tensor, slope: torch.Tensor, alike: torch.Tensor, beta: float) -> torch.Tensor:
    """(n, C) of one client, h (n, C), slope (1,). A large client's matrices are made again for the gradient."""
    if h.requires_grad and len(h) >= LARGE:
        return checkpoint(_signed, h, slope, alike, beta, use_reentrant=False)
    return _signed(h, slope, alike, beta)


def _signed(h: torch.Tensor, slope: torch.Tensor, alike: torch.Tensor, beta: float) -> torch.Tensor:
    similar = cosine(h)
    if beta:
        similar = (1 - beta) * similar + beta * alike
    similar = similar.fill_diagonal_(0)
    mean, largest = similar.mean(), similar.max()
    # r = r+ - r-, PReLU(r) = r+ - a r-, PReLU(-r) = r- - a r+; what scales a whole matrix scales its product instead.
    # A divisor of 0 (one node alone) belongs to a matrix of zeros, which stays one.
    attract = torch.relu(similar - mean) @ h / (largest - mean + (largest == mean)) + h
    repel = similar.masked_fill(similar > mean, 0) @ h / (mean + (mean == 0))
    positive, negative = attract - slope * repel, repel - slope * attract
    return (positive.softmax(1) - negative.softmax(1) + h) / 2


def heads(source: torch.Generator, features: int, hidden: int, classes: int, powers: int) -> Params:
    """Xavier-uniform weights with ReLU's gain, zero biases, PReLU slopes 1/4 (released code).

    The first layers of the three MLPs on X~ are one tensor (d, 3 h) a power.
    """

    def xavier(n_in: int, n_out: int) -> torch.Tensor:
        bound = 2**0.5 * (6 / (n_in + n_out)) ** 0.5
        return torch.empty(n_in, n_out).uniform_(-bound, bound, generator=source)

    wide = [xavier((powers + 1) * features, hidden).view(powers + 1, features, hidden) for _ in HEADS]
    params = {f"wide.{power}.weight": torch.cat(own, 1) for power, own in enumerate(zip(*wide, strict=True))}
    params |= {"wide.bias": torch.zeros(3 * hidden)}
    params |= {"own.0.weight": xavier(features, hidden), "own.0.bias": torch.zeros(hidden)}
    for name in ("own", "smooth", "signed"):
        params |= {f"{name}.1.weight": xavier(hidden, hidden), f"{name}.1.bias": torch.zeros(hidden)}
        params |= {f"{name}.2.weight": xavier(hidden, classes), f"{name}.2.bias": torch.zeros(classes)}
    params |= {"homo.1.weight": xavier(hidden, classes), "homo.1.bias": torch.zeros(classes)}
    return params | {f"{name}.slope": torch.full((1,), 0.25) for name in ("homo", "hete", "signed")}
