"""The arithmetic that is not the same on every device: one interface, and which implementation computes now.

`hostkernels` is the CPU's, `devicekernels` that of everything else. Both give the same to float32 rounding, gradients
included; a test holds each function of the one against the other. Shapes as in `ops`: K clients, N rows, E edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import dgl
import torch

from . import devicekernels, hostkernels


class Kernels(Protocol):
    """What there is. `graph` is a DGLGraph on the host; u, v are of its nodes (N, ...), e of its edges (E, ...)."""

    def csr(self, ends: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> Any:
        """A sparse matrix (n, m) for `csr_product`: row ends (n + 1,) and column indices, 32 bits, and values."""

    def csr_product(self, matrix: Any, dense: torch.Tensor, *, ones: bool = False) -> torch.Tensor:
        """(n, m) @ (m, c), no gradient. ones: all stored values are one."""

    def csr_product_onto(self, total: torch.Tensor, matrix: Any, dense: torch.Tensor) -> torch.Tensor:
        """The sum of total (n, c), in place, and (n, m) @ (m, c), no gradient."""

    def products(self, rows: torch.Tensor, weight: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """(N, in) x (K, in, out) -> (N, out): client k's rows times client k's matrix, no gradient."""

    def weight_gradients(self, rows: torch.Tensor, grad: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """(N, in), (N, out) -> (K, in, out): client k's rows transposed times client k's gradient, no gradient."""

    def segment_dot(self, rows: torch.Tensor, vector: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """(N, heads, c) . (K, heads, c) -> (N, heads)."""

    def positive(self, rows: torch.Tensor) -> torch.Tensor:
        """Bool, of the same shape: which entries are above zero."""

    def u_add_v(self, graph: dgl.DGLGraph, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """(E, ...) source plus target."""

    def u_dot_v(self, graph: dgl.DGLGraph, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """(E, ..., 1) dot products of source and target over the last axis."""

    def u_mul_e_sum(self, graph: dgl.DGLGraph, u: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        """(N, ...) sum over in-edges of source times edge."""

    def e_sub_v(self, graph: dgl.DGLGraph, e: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """(E, ...) edge minus target."""

    def copy_e_sum(self, graph: dgl.DGLGraph, e: torch.Tensor) -> torch.Tensor:
        """(N, ...) sum over in-edges."""

    def copy_e_max(self, graph: dgl.DGLGraph, e: torch.Tensor) -> torch.Tensor:
        """(N, ...) largest of the in-edges, no gradient. A node without any gets something that means nothing."""

    def edge_softmax(self, graph: dgl.DGLGraph, e: torch.Tensor) -> torch.Tensor:
        """(E, ...) softmax over the in-edges of each node."""


_current: Kernels = hostkernels


def kernels() -> Kernels:
    """Those that compute now."""
    return _current


@contextmanager
def using(chosen: Kernels) -> Iterator[None]:
    """Let these compute within the block: `device.on` does, and tests that have `devicekernels` compute on a CPU."""
    global _current
    before, _current = _current, chosen
    try:
        yield
    finally:
        _current = before


def kernels_of(device: torch.device) -> Kernels:
    return hostkernels if device.type == "cpu" else devicekernels
