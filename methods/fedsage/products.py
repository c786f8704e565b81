"""Products of NeighGen's wide matrices: dense ones by oneDNN if torch has it, thinned ones (few non-zeros) by entry.

torch's products of float32 matrices call MKL, which uses only AVX2 on processors of other vendors; oneDNN uses all
instructions of the processor. On an AMD EPYC with AVX-512 a product as wide as NeighGen's takes half the time.

After ReLU and dropout a trained wide layer has few non-zeros: on Coauthor-Physics half of a node's 2048 entries at the
start, and 8 after twenty epochs. A sparse product reads only the matrix rows of these entries and takes a thirtieth of
the time. With a share of non-zeros above FEW the product is dense.
"""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp
import torch
from torch.autograd import Function

from ...benchmark.engine import to_scipy_csr, to_torch_csr

ONEDNN = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def product(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return (n, k) @ (k, m), plus a bias (m,); all three get gradients."""
    result: torch.Tensor = _Product.apply(a, b, bias)
    return result


def multiply(a: torch.Tensor, b: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """Return `product` without gradients."""
    if ONEDNN and a.is_cpu and a.numel() and b.numel():  # oneDNN does not accept empty matrices
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


FEW = 1 / 25  # up to this share of non-zeros all three products are faster by entry


class Thinned:
    """Rows (n, k) that may have few non-zeros. Its products have no gradients."""

    def __init__(self, rows: torch.Tensor) -> None:
        self.rows = rows
        few = rows.is_cpu and int(rows.count_nonzero()) <= FEW * rows.numel()
        self.entries = rows.to_sparse_csr() if few else None

    def times(self, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Return (n, k) @ (k, m) + (m,)."""
        if self.entries is None:
            return multiply(self.rows, b, bias)
        return (self.entries @ b).add_(bias)

    def across(self, grad: torch.Tensor | sp.csr_matrix) -> Any:
        """Return (n, k)^T @ (n, m), the gradient of b; sparse if both factors are."""
        if self.entries is None:
            return multiply(self.rows.T, grad) if isinstance(grad, torch.Tensor) else (_transposed(grad) @ self.rows).T
        entries = to_scipy_csr(self.entries)
        return _transposed(entries) @ grad if isinstance(grad, torch.Tensor) else entries.T @ grad

    def towards(self, grad: torch.Tensor | sp.csr_matrix, b: torch.Tensor) -> torch.Tensor:
        """Return (n, m) @ (k, m)^T, the gradient of the rows; with few non-zeros only at these, because ReLU and
        dropout have no gradient elsewhere."""
        if self.entries is None:
            return multiply(grad, b.T) if isinstance(grad, torch.Tensor) else to_torch_csr(grad) @ b.T
        dense, entries = grad if isinstance(grad, torch.Tensor) else torch.from_numpy(grad.toarray()), self.entries
        pattern = torch.sparse_csr_tensor(
            entries.crow_indices(), entries.col_indices(), torch.zeros_like(entries.values()), entries.shape
        )
        return torch.sparse.sampled_addmm(pattern, dense, b.T, beta=0).to_dense()


def _transposed(matrix: sp.csr_matrix) -> torch.Tensor:
    """Return the transpose as a torch tensor."""
    return to_torch_csr(matrix.T.tocsr())


def thinned_product(rows: torch.Tensor, b: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Return (n, k) @ (k, m) + (m,) with gradients of all three; see `Thinned.towards` for that of the rows."""
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
