"""The kernels of the CPU: MKL's sparse products, a loop of dense ones, DGL edge by edge. See `kernelsets`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dgl.ops
import torch
from torch.autograd import Function

from .devicekernels import Bags, csr_product as sums_of_bags

# Edge by edge, DGL's own, under the same names.
u_add_v = dgl.ops.u_add_v
u_dot_v = dgl.ops.u_dot_v
u_mul_e_sum = dgl.ops.u_mul_e_sum
e_sub_v = dgl.ops.e_sub_v
copy_e_sum = dgl.ops.copy_e_sum
copy_e_max = dgl.ops.copy_e_max
edge_softmax = dgl.ops.edge_softmax


def csr(ends: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    return torch.sparse_csr_tensor(ends, indices, values, size=shape)


BAGGED = range(32, 128)  # columns for which sums of bags with weights are the faster ones; see docs/speed.md


def csr_product(matrix: torch.Tensor, dense: torch.Tensor, *, ones: bool = False) -> torch.Tensor:
    """Each row is the sum of a bag of rows, for which torch has a kernel that adds in MKL's order: of a matrix of ones
    it takes half of MKL's time, with weights of rows of middling width 0.6 to 0.95 of it."""
    if ones or dense.shape[1] in BAGGED:
        bags = Bags(matrix.crow_indices(), matrix.col_indices(), matrix.values(), (matrix.shape[0], matrix.shape[1]))
        return sums_of_bags(bags, dense, ones=ones)
    # `matrix @ dense` would first fill, then copy an n x c zero matrix.
    return torch.empty(matrix.shape[0], dense.shape[1]).addmm_(matrix, dense, beta=0)


def csr_product_onto(total: torch.Tensor, matrix: torch.Tensor, dense: torch.Tensor) -> torch.Tensor:
    return total.addmm_(matrix, dense)


def products(rows: torch.Tensor, weight: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    out = rows.new_empty(rows.shape[0], weight.shape[2])
    for x, w, o in zip(rows.split_with_sizes(sizes), weight, out.split_with_sizes(sizes), strict=True):
        torch.mm(x, w, out=o)
    return out


def weight_gradients(rows: torch.Tensor, grad: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    found = rows.new_empty(len(sizes), rows.shape[1], grad.shape[1])
    turned = rows.T.split_with_sizes(sizes, 1)
    for x, g, out in zip(turned, grad.split_with_sizes(sizes), found, strict=True):
        torch.mm(x, g, out=out)
    return found


def segment_dot(rows: torch.Tensor, vector: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    found: torch.Tensor = _SegmentDot.apply(rows, vector, sizes)  # type: ignore[no-untyped-call]
    return found


class _SegmentDot(Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, vector: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        ctx.save_for_backward(rows, vector)
        ctx.sizes = sizes
        return torch.cat([(x * v).sum(-1) for x, v in zip(rows.split_with_sizes(sizes), vector, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        rows, vector = ctx.saved_tensors
        grads = grad.split_with_sizes(ctx.sizes)
        d_rows = torch.cat([g.unsqueeze(-1) * v for g, v in zip(grads, vector, strict=True)])
        d_vector = torch.stack(
            [(g.unsqueeze(-1) * x).sum(0) for g, x in zip(grads, rows.split_with_sizes(ctx.sizes), strict=True)]
        )
        return d_rows, d_vector, None


def positive(rows: torch.Tensor) -> torch.Tensor:
    """NumPy compares several times faster than torch."""
    return torch.from_numpy(rows.detach().numpy() > 0)
