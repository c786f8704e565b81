"""Products of large dense matrices, by oneDNN where torch was built with it.

torch's own products of float32 matrices call MKL, which keeps to AVX2 on processors of other makers; oneDNN takes what
the processor has. On an AMD EPYC with AVX-512 a product as wide as NeighGen's takes half the time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function

ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """(n, k) @ (k, m), plus a bias (m,) to every row; no gradient passes."""
    if ONEDNN and a.numel() and b.numel():  # oneDNN refuses empty matrices
        found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(a, b.T, bias, "none", [], "")
        return found
    return a @ b if bias is None else torch.addmm(bias, a, b)


def affine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """The map x W^T + b, with gradients: (n, in), (out, in), (out,) -> (n, out)."""
    found: torch.Tensor = _Affine.apply(x, weight, bias)
    return found


class _Affine(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return product(x, weight.T, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grad,), (x, weight) = grads, ctx.saved_tensors
        for_x, for_weight, for_bias = ctx.needs_input_grad
        return (
            product(grad, weight) if for_x else None,
            product(grad.T, x) if for_weight else None,
            grad.sum(0) if for_bias else None,
        )
