"""Moments of hidden features: each client's, those of all clients pooled exactly, and the distance between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch.autograd import Function

from ...benchmark.engine import section

ORDER = 5  # the highest moment: Algorithm 1, and Zellinger et al.'s code
Norm = Literal["l2", "squared", "mean"]


class _Moments(Function):
    """Client by client and in place, which is several times faster than autograd on whole columns of powers."""

    @staticmethod
    @section("moments")
    def forward(ctx: Any, rows: torch.Tensor, sizes: Sequence[int], order: int) -> torch.Tensor:
        out = rows.new_zeros(len(sizes), order, rows.shape[1])
        for z, own in zip(rows.split(list(sizes)), out, strict=True):
            if len(z):
                own[0] = z.mean(0)
                _powers(z, own[0], own[1:])
        ctx.save_for_backward(rows, out)
        ctx.sizes = sizes
        return out

    @staticmethod
    @section("moments")
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """sum_j g_j dC_j/dz = g_1/n + 1/n sum_{j>1} j g_j (gap^(j-1) - C_(j-1)) with gap = z - mean and C_1 = 0."""
        rows, out = ctx.saved_tensors
        d_rows = torch.empty_like(rows)
        factor = torch.arange(1, out.shape[1] + 1, dtype=rows.dtype, device=rows.device).unsqueeze(1)
        for z, d, g, own in zip(rows.split(list(ctx.sizes)), d_rows.split(list(ctx.sizes)), grad, out, strict=True):
            if not len(z):
                continue
            slope = g * factor / len(z)  # j g_j / n
            gap, value = z - own[0], slope[-1]
            for coefficient in slope[1:-1].flip(0):  # Horner's scheme
                value = torch.addcmul(coefficient, value, gap)
            torch.mul(value, gap, out=d)
            d += slope[0] - (slope[2:] * own[1:-1]).sum(0)
        return d_rows, None, None


def _powers(z: torch.Tensor, centre: torch.Tensor, out: torch.Tensor) -> None:
    """out[j - 2] = mean over rows of (z - centre)^j, j = 2 and up."""
    gap = z - centre
    power = gap.clone()
    for moment in out:
        moment.copy_(power.mul_(gap).mean(0))


def central_moments(rows: torch.Tensor, sizes: Sequence[int], order: int) -> torch.Tensor:
    """(K, order, c) of (N, c) rows, client k's `sizes[k]` of them in client order: the mean, and for j = 2 .. order the
    moment of order j about it, column by column. 0 for a client without rows. Needs order > 1."""
    return _Moments.apply(rows, sizes, order)


@torch.no_grad()
@section("moments")
def moments_about(rows: torch.Tensor, sizes: Sequence[int], centre: torch.Tensor, order: int) -> torch.Tensor:
    """(K, order - 1, c): E_k[(Z_k - centre_k)^j] for j = 2 .. order; centre: (K, c). Constants, without gradient."""
    out = rows.new_zeros(len(sizes), order - 1, rows.shape[1])
    for z, about, own in zip(rows.split(list(sizes)), centre, out, strict=True):
        if len(z):
            _powers(z, about, own)
    return out


def pooled(values: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """sum_k n_k v_k / sum_k n_k of (K, ...) values: with means, and with moments about one common centre, exactly the
    mean and the moments of all rows together. counts: (K,) rows behind each value."""
    return torch.tensordot(counts / counts.sum().clamp(min=1), values, 1)


def moment_distance(own: torch.Tensor, target: torch.Tensor, span: float = 1.0, norm: Norm = "l2") -> torch.Tensor:
    """(K,) central moment discrepancy (Zellinger et al., ICLR 2017), summed over layers.

    sum_l sum_j span^-j ||own_jl - target_jl||_2 over moments (K, J, L, h), j = 1 (the mean) .. J. span: b - a of the
    interval that the features lie in. norm "squared": ||.||_2^2 in its place; "mean": that divided by h. Of two equal
    moments the distance has gradient 0.
    """
    weight = span ** -torch.arange(1, own.shape[1] + 1, dtype=own.dtype)
    gap = own - target
    if norm == "l2":
        apart = torch.linalg.vector_norm(gap, dim=-1)
    else:
        apart = gap.square().sum(-1) if norm == "squared" else gap.square().mean(-1)
    return (apart.sum(2) * weight).sum(1)
