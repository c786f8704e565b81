"""The arithmetic of a client batch: the rows of each client with the weights of that client.

Shapes: K clients, N rows (client k has `sizes[k]` consecutive rows), weights (K, in, out). A weight whose client axis
is expanded from one tensor (stride 0) is shared by all clients, and one product serves every row.

The products for client k have the same shape and operands in any client batch, so results do not depend on it.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from functools import cached_property, lru_cache
from typing import Any, cast

import dgl
import numpy as np
import scipy.sparse as sp
import torch
from torch.autograd import Function

from .device import here, on_host, section
from .kernels import ROWS, active_kernels, applied
from .rng import Streams, rate

warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
# The matrices here come from SciPy, whose CSR is valid, so torch need not check or warn.
torch.sparse.check_sparse_tensor_invariants.disable()  # type: ignore[no-untyped-call]


def to_torch_csr(matrix: sp.csr_matrix) -> torch.Tensor:
    """A SciPy CSR matrix as a torch CSR tensor of float32 with 32-bit indices (MKL would convert 64-bit ones)."""
    return torch.sparse_csr_tensor(*_parts(matrix), size=matrix.shape)


def to_csr(matrix: sp.csr_matrix) -> Any:
    """A SciPy CSR matrix in the format of the active kernels."""
    return active_kernels().csr(*_parts(matrix), matrix.shape)


def _parts(matrix: sp.csr_matrix) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return (
        torch.from_numpy(matrix.indptr.astype(np.int32, copy=False)),
        torch.from_numpy(matrix.indices.astype(np.int32, copy=False)),
        torch.from_numpy(matrix.data.astype(np.float32, copy=False)),
    )


def to_scipy_csr(tensor: torch.Tensor) -> sp.csr_matrix:
    """A torch CSR tensor as a SciPy CSR matrix (shares memory)."""
    parts = (tensor.values().numpy(), tensor.col_indices().numpy(), tensor.crow_indices().numpy())
    return sp.csr_matrix(parts, shape=tuple(tensor.shape))


def take_rows(feat: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The rows `ids` of a dense or sparse CSR feature matrix, in the same layout."""
    return to_torch_csr(to_scipy_csr(feat)[ids.numpy()]) if feat.layout == torch.sparse_csr else feat[ids]


class SparseMatrix:
    """A constant sparse matrix that multiplies dense tensors and passes gradients to them."""

    def __init__(self, matrix: sp.csr_matrix, label: str = "message passing", *, symmetric: bool = False) -> None:
        """label: the `section` of its products. symmetric: the matrix is its transpose, which need not be made."""
        self.shape: tuple[int, int] = matrix.shape
        self._matrix, self.label, self._symmetric = matrix, label, symmetric

    @cached_property
    def forward_csr(self) -> Any:
        """On the device of the first product; a matrix may be created on the host."""
        return to_csr(self._matrix)

    @cached_property
    def backward_csr(self) -> Any:
        return self.forward_csr if self._symmetric else to_csr(self._matrix.T.tocsr())

    @cached_property
    def ones(self) -> bool:
        """Whether all stored values are one, as in bags of words and in unweighted sums over neighbours."""
        return bool((self._matrix.data == 1).all())

    def scipy(self) -> sp.csr_matrix:
        return self._matrix

    def times(self, dense: torch.Tensor) -> torch.Tensor:
        """(n, m) @ (m, c) -> (n, c), no gradient."""
        with section(self.label):
            return csr_product(self.forward_csr, dense, ones=self.ones)

    def times_transposed(self, dense: torch.Tensor) -> torch.Tensor:
        """(n, m)^T @ (n, c) -> (m, c), no gradient."""
        with section(self.label):
            return csr_product(self.backward_csr, dense.contiguous(), ones=self.ones)

    def __matmul__(self, dense: torch.Tensor) -> torch.Tensor:
        """(n, m) @ (m, c) -> (n, c)."""
        return applied(_SparseProduct, dense, self)


def csr_product(matrix: Any, dense: torch.Tensor, *, ones: bool = False) -> torch.Tensor:
    """CSR (n, m) @ dense (m, c), no gradient. matrix: made by `active_kernels().csr`. ones: all values are one."""
    return active_kernels().csr_product(matrix, dense, ones=ones)


class _SparseProduct(Function):
    @staticmethod
    def forward(ctx: Any, dense: torch.Tensor, matrix: SparseMatrix) -> torch.Tensor:
        ctx.matrix = matrix
        return matrix.times(dense)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.matrix.times_transposed(grad), None


@on_host()
def adjacency(graph: dgl.DGLGraph, weight: np.ndarray | None = None) -> SparseMatrix:
    """The graph's in-edges as a matrix: (A @ h)[v] = sum over edges u -> v of weight(u, v) * h[u].

    weight: (edges,) in the order of the graph's edge ids; None: ones. The same sum as DGL's
    `update_all(u_mul_e, sum)`, several times faster for constant weights.
    """
    indptr, indices, eids = (part.numpy() for part in graph.adj_tensors("csc"))
    values = np.ones(len(indices), np.float32) if weight is None else weight[eids].astype(np.float32)
    return SparseMatrix(sp.csr_matrix((values, indices, indptr), shape=(graph.num_nodes(), graph.num_nodes())))


def is_shared(weight: torch.Tensor) -> bool:
    return weight.shape[0] == 1 or weight.stride(0) == 0


class _SegmentProduct(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, sizes: Sequence[int]
    ) -> torch.Tensor:
        ctx.save_for_backward(rows, weight)
        ctx.sizes = sizes
        with section("dense"):
            return active_kernels().products(rows, weight, sizes, bias)

    @staticmethod
    def backward(
        ctx: Any, grad: torch.Tensor
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None, None]:
        rows, weight = ctx.saved_tensors
        need_rows, need_weight, need_bias, _ = ctx.needs_input_grad
        grad = grad.contiguous()
        with section("dense"):
            d_rows = active_kernels().products(grad, weight.mT, ctx.sizes) if need_rows else None
            d_weight = active_kernels().weight_gradients(rows, grad, ctx.sizes) if need_weight else None
            d_bias = csr_product(_membership(ctx.sizes), grad) if need_bias else None
        return d_rows, d_weight, d_bias, None


def segment_product(rows: torch.Tensor, weight: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """(N, in) x (K, in, out) -> (N, out): client k's rows times client k's matrix."""
    if is_shared(weight) and not weight.requires_grad:
        with section("dense"):
            if rows.requires_grad:
                return rows @ weight[0]
            return active_kernels().products(rows, weight[:1], (len(rows),))
    return applied(_SegmentProduct, rows, weight, None, sizes)


def segment_affine(
    rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, sizes: tuple[int, ...]
) -> torch.Tensor:
    """`segment_add(segment_product(rows, weight, sizes), bias, sizes)`, as one autograd node if clients have many rows:
    one addition per client is faster there than one for all rows."""
    if len(rows) < ROWS * len(sizes) or is_shared(weight) or is_shared(bias):
        return segment_add(segment_product(rows, weight, sizes), bias, sizes)
    return applied(_SegmentProduct, rows, weight, bias, sizes)


class _SegmentAdd(Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, bias: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        ctx.sizes = sizes
        with section("dense"):
            return bias.index_select(0, owners(sizes)).add_(rows)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None, None]:
        with section("dense"):
            return grad, csr_product(_membership(ctx.sizes), grad) if ctx.needs_input_grad[1] else None, None


def owners(sizes: Sequence[int]) -> torch.Tensor:
    """(N,) the position of the client that holds each row."""
    return _owners(sizes, here())


@lru_cache(maxsize=64)
def _owners(sizes: Sequence[int], device: torch.device) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(sizes), device=device), torch.tensor(sizes, device=device))


def _membership(sizes: Sequence[int]) -> Any:
    """(K, N) with a one at (k, n) if row n is client k's: one product sums every client's rows."""
    return _members(sizes, here(), cast(Hashable, active_kernels()))


@lru_cache(maxsize=64)
def _members(sizes: Sequence[int], device: torch.device, by: Hashable) -> Any:
    total = sum(sizes)
    ends = np.cumsum((0, *sizes))
    return to_csr(sp.csr_matrix((np.ones(total), np.arange(total), ends), shape=(len(sizes), total)))


class _Propagate(Function):
    @staticmethod
    def forward(
        ctx: Any, rows: torch.Tensor, bias: torch.Tensor, matrix: SparseMatrix, sizes: Sequence[int], own: bool
    ) -> torch.Tensor:
        ctx.matrix, ctx.sizes, ctx.own = matrix, sizes, own
        out = matrix.times(rows)
        with section("dense"):
            return (out.add_(rows) if own else out).add_(bias.index_select(0, owners(sizes)))

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor | None, None, None, None]:
        need_rows, need_bias, _, _, _ = ctx.needs_input_grad
        with section("dense"):
            d_bias = csr_product(_membership(ctx.sizes), grad) if need_bias else None
        d_rows = ctx.matrix.times_transposed(grad) if need_rows else None
        return d_rows.add_(grad) if ctx.own and d_rows is not None else d_rows, d_bias, None, None, None


def propagate(
    matrix: SparseMatrix, rows: torch.Tensor, bias: torch.Tensor, sizes: tuple[int, ...], *, own: bool = False
) -> torch.Tensor:
    """`segment_add(matrix @ rows, bias, sizes)` as one autograd node. own: of matrix @ rows + rows."""
    if is_shared(bias) and not bias.requires_grad:
        summed = matrix @ rows
        return (summed.add_(rows) if own else summed).add_(bias[0])
    return applied(_Propagate, rows, bias, matrix, sizes, own)


def segment_add(rows: torch.Tensor, bias: torch.Tensor, sizes: tuple[int, ...]) -> torch.Tensor:
    """(N, c) + (K, c) -> (N, c): client k's vector is added to each of its rows."""
    if is_shared(bias) and not bias.requires_grad:
        return rows + bias[0]
    return applied(_SegmentAdd, rows, bias, sizes)


def segment_dot(rows: torch.Tensor, vector: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """(N, heads, c) . (K, heads, c) -> (N, heads): client k's rows times client k's vectors."""
    return active_kernels().segment_dot(rows, vector, sizes)


def segment_sum(values: torch.Tensor, owner: torch.Tensor, clients: int) -> torch.Tensor:
    """(n, ...) values -> (K, ...) sums; 0 for a client without values. owner: (n,) position of each value's client."""
    return values.new_zeros((clients, *values.shape[1:])).index_add_(0, owner, values)


def of_shape(numbers: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """(K,) -> (K, 1, ...), with as many axes as `value` (K, ...). K: clients, rows, ..."""
    return numbers.view(-1, *[1] * (value.dim() - 1))


class _Masked(Function):
    """rows * scale where `keep`, else 0. The backward pass stores the mask in bytes: a quarter of the memory."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, keep: torch.Tensor, scale: float) -> torch.Tensor:
        ctx.keep, ctx.scale = keep, scale
        return _masked(rows, keep, scale)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _masked(grad, ctx.keep, ctx.scale), None, None


def _masked(rows: torch.Tensor, keep: torch.Tensor, scale: float) -> torch.Tensor:
    # Bytes convert faster than bools.
    return keep.view(torch.uint8).to(rows.dtype).mul_(scale).mul_(rows)


def dropout(
    rows: torch.Tensor, p: float, streams: Streams | None, sizes: Sequence[int], *, relu: bool = False
) -> torch.Tensor:
    """Inverted dropout of rows (N, c), drawn from each client's stream; with `relu`, of max(rows, 0). streams: None
    outside training, when nothing is dropped."""
    if p == 0 or streams is None:
        return torch.relu(rows) if relu else rows
    with section("dropout"):
        keep = streams.keep("dropout", [n * rows.shape[1] for n in sizes], p).view(rows.shape)
        if relu:
            keep &= active_kernels().positive(rows)
        return applied(_Masked, rows, keep, 1 / (1 - rate(p)))
