"""Products of NeighGen's wide matrices: dense ones by oneDNN where torch was built with it, thinned ones by entry.

torch's own products of float32 matrices call MKL, which keeps to AVX2 on processors of other makers; oneDNN takes what
the processor has. On an AMD EPYC with AVX-512 a product as wide as NeighGen's takes half the time.

A ReLU and a dropout leave few entries of a trained wide layer: on Coauthor-Physics a node keeps half of
the 2048 at first, and 8 of them after twenty epochs. A product then reads only the rows of the matrix that these meet,
and takes a thirtieth of the time; while more than FEW are left it is dense.
"""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp
import torch
from torch.autograd import Function

from ...benchmark.engine import to_scipy_csr, to_torch_csr

ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """(n, k) @ (k, m), plus a bias (m,) to every row; gradients pass to all three."""
    result: torch.Tensor = _Product.apply(a, b, bias)
    return result


def multiply(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """`product` without gradients."""
    if ONEDNN and a.is_cpu and a.numel() and b.numel():  # oneDNN refuses empty matrices
        result: torch.Tensor = torch.ops.mkldnn._linear_pointwise(a, b.T, bias, "none", [], "")
        return result
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


FEW = 1 / 25  # share of entries up to which all three products are faster by entry


class Thinned:
    """(n, k) rows of which few entries may be left. No gradient passes here."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows
        few = rows.is_cpu and int(rows.count_nonzero()) <= FEW * rows.numel()
        self.entries = rows.to_sparse_csr() if few else None

    def times(self, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """(n, k) @ (k, m) + (m,)."""
        if self.entries is None:
            return multiply(self.rows, b, bias)
        return (self.entries @ b).add_(bias)

    def across(self, grad: torch.Tensor | sp.csr_matrix) -> Any:
        """(n, k)^T @ (n, m), the gradient of b; sparse where both factors are."""
        if self.entries is None:
            return multiply(self.rows.T, grad) if isinstance(grad, torch.Tensor) else (_turned(grad) @ self.rows).T
        entries = to_scipy_csr(self.entries)
        return _turned(entries) @ grad if isinstance(grad, torch.Tensor) else entries.T @ grad

    def towards(self, grad: torch.Tensor | sp.csr_matrix, b: torch.Tensor) -> torch.Tensor:
        """(n, m) @ (k, m)^T, the gradient of the rows. Where few entries are left it is zero elsewhere, since nothing
        passes a ReLU or a dropout there."""
        if self.entries is None:
            return multiply(grad, b.T) if isinstance(grad, torch.Tensor) else to_torch_csr(grad) @ b.T
        dense, where = grad if isinstance(grad, torch.Tensor) else torch.from_numpy(grad.toarray()), self.entries
        pattern = torch.sparse_csr_tensor(
            where.crow_indices(), where.col_indices(), torch.zeros_like(where.values()), where.shape
        )
        return torch.sparse.sampled_addmm(pattern, dense, b.T, beta=0).to_dense()


def _turned(matrix: sp.csr_matrix) -> torch.Tensor:
    """Its transpose, in torch."""
    return to_torch_csr(matrix.T.tocsr())


def thinned_product(rows: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """(n, k) @ (k, m) + (m,), gradients to all three; the rows' only as far as a ReLU or a dropout before needs it."""
    result: torch.Tensor = _ThinnedProduct.apply(rows, b, bias)
    return result


class _ThinnedProduct(Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.thinned = Thinned(rows)
        ctx.save_for_backward(b)
        return ctx.thinned.times(b, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        (grad,), (b,) = grads, ctx.saved_tensors
        for_rows, for_b, for_bias = ctx.needs_input_grad
        return (
            ctx.thinned.towards(grad, b) if for_rows else None,
            ctx.thinned.across(grad) if for_b else None,
            grad.sum(0) if for_bias else None,
        )
