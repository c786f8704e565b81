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
    """(n, k) @ (k, m), plus a bias (m,) to every row; gradients pass to all three."""
    found: torch.Tensor = _Product.apply(a, b, bias)
    return found


def multiply(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`product` without gradients."""
    if ONEDNN and a.is_cpu and a.numel() and b.numel():  # oneDNN refuses empty matrices
        found: torch.Tensor = torch.ops.mkldnn._linear_pointwise(a, b.T, bias, "none", [], "")
        return found
    return a @ b if bias is None else torch.addmm(bias, a, b)


class _Product(Function):
    @staticmethod
    def forward(ctx: Any, a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(a, b)
        return multiply(a, b, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grad,), (a, b) = grads, ctx.saved_tensors
        for_a, for_b, for_bias = ctx.needs_input_grad
        return (
            multiply(grad, b.T) if for_a else None,
            multiply(grad.T, a).T if for_b else None,  # with m far below k, four times as fast as a.T @ grad
            grad.sum(0) if for_bias else None,
        )
