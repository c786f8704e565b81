"""The arithmetic that differs between devices: the kernels of the CPU, and the choice of the active kernels.

`gpu_kernels.GpuKernels` has the same methods for every other device. Both give the same values and gradients up to
float32 rounding; a test compares them method by method. Shapes: K clients, N rows, E edges. `graph` is a DGLGraph on
the host; u and v are values of its nodes (N, ...), e of its edges (E, ...).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby, repeat
from typing import Any, NamedTuple

import dgl.ops
import torch
from torch.autograd import Function

from ...foundations import prefers_onednn
from .bags import Bags, EdgeDot, EdgeSum, sum_bags

BAGGED = range(32, 128)  # numbers of columns for which weighted sums of bags are faster than MKL; see docs/speed.md


# From this number of multiplications on, and of rows, oneDNN's call is faster than MKL's where `prefers_onednn`.
WORK, ROWS = 2**18, 2**8


@contextmanager
def onednn() -> Iterator[None]:
    """Let torch multiply matrices by oneDNN within the block, in float32, where `prefers_onednn`."""
    before = torch.get_float32_matmul_precision()
    if prefers_onednn():  # elsewhere "medium" may mean bfloat16
        torch.set_float32_matmul_precision("medium")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


class Run(NamedTuple):
    """Consecutive clients with the same small number of rows, or one client.

    clients: how many. size: rows of each. head: how many of these oneDNN multiplies; MKL multiplies the others.
    """

    clients: int
    size: int
    head: int


@lru_cache(maxsize=64)
def runs(sizes: tuple[int, ...], width: int) -> tuple[list[Run], list[int], list[int]]:
    """The runs of clients with these numbers of rows; rows and clients of each run. width: (in) x (out).

    oneDNN compiles code for each number of rows, so `head` has few different values.
    """
    found = []
    for n, same in groupby(sizes):
        clients, head = len(list(same)), 0
        if n >= ROWS and n * width >= WORK and prefers_onednn():
            unit = max(ROWS // 2, 1 << (n.bit_length() - 4))
            head = n // unit * unit
        found += [Run(clients, n, 0)] if n < 2 * ROWS and not head else [Run(1, n, head)] * clients
    return found, [run.clients * run.size for run in found], [run.clients for run in found]


def by_run(stack: torch.Tensor, counts: list[int]) -> Sequence[torch.Tensor]:
    """(K, ...) cut into the clients of each run; of one client without the first axis. counts: clients of each run."""
    if len(counts) == len(stack):
        return stack.unbind()
    pieces = stack.split_with_sizes(counts)
    return [piece if count > 1 else piece[0] for piece, count in zip(pieces, counts, strict=True)]


class Kernels:
    """The kernels of the CPU: MKL's sparse products, a loop of dense ones per client, bags and DGL over edges."""

    def csr(self, ends: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> Any:
        """A sparse matrix (n, m) for `csr_product`: row ends (n + 1,) and column indices, 32 bits, and values."""
        return torch.sparse_csr_tensor(ends, indices, values, size=shape)

    def csr_product(self, matrix: Any, dense: torch.Tensor, *, ones: bool = False) -> torch.Tensor:
        """(n, m) @ (m, c) -> (n, c), no gradient. ones: all stored values are one.

        torch's sums of bags add in the same order as MKL. They take half of MKL's time for a matrix of ones, and 0.6 to
        0.95 of it for other values and the numbers of columns in `BAGGED`.
        """
        if ones or dense.shape[1] in BAGGED:
            shape = (matrix.shape[0], matrix.shape[1])
            return sum_bags(Bags(matrix.crow_indices(), matrix.col_indices(), matrix.values(), shape), dense, ones=ones)
        # `matrix @ dense` would also fill and copy a zero matrix (n, c).
        return torch.empty(matrix.shape[0], dense.shape[1]).addmm_(matrix, dense, beta=0)

    def products(
        self, rows: torch.Tensor, weight: torch.Tensor, sizes: Sequence[int], bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """(N, in) x (K, in, out) -> (N, out): client k's rows times client k's matrix, no gradient.

        bias: (K, out), added to client k's rows while they are in the cache.
        """
        out = rows.new_empty(rows.shape[0], weight.shape[2])
        found, spans, counts = runs(tuple(sizes), weight.shape[1:].numel())
        pieces = found, rows.split_with_sizes(spans), by_run(weight, counts), out.split_with_sizes(spans)
        shifts = repeat(None) if bias is None else bias.split_with_sizes(counts)
        for ((clients, n, head), x, w, o), b in zip(zip(*pieces, strict=True), shifts, strict=bias is not None):
            if clients > 1:
                torch.bmm(x.view(clients, n, x.shape[1]), w, out=o.view(clients, n, o.shape[1]))
            elif head:
                with onednn():
                    torch.mm(x[:head], w, out=o[:head])
                torch.mm(x[head:], w, out=o[head:])
            else:
                torch.mm(x, w, out=o)
            if b is not None:
                o.view(clients, n, o.shape[1]).add_(b.unsqueeze(1))
        return out

    def weight_gradients(self, rows: torch.Tensor, grad: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """(N, in), (N, out) -> (K, in, out): client k's rows transposed times client k's gradient, no gradient."""
        gradients = rows.new_empty(len(sizes), rows.shape[1], grad.shape[1])
        found, spans, counts = runs(tuple(sizes), gradients.shape[1:].numel())
        pieces = rows.split_with_sizes(spans), grad.split_with_sizes(spans), by_run(gradients, counts)
        for (clients, n, head), x, g, out in zip(found, *pieces, strict=True):
            if clients > 1:
                torch.bmm(x.view(clients, n, x.shape[1]).mT, g.view(clients, n, g.shape[1]), out=out)
            elif head:
                with onednn():
                    torch.mm(x[:head].T, g[:head], out=out)
                out.addmm_(x[head:].T, g[head:])
            else:
                torch.mm(x.T, g, out=out)
        return gradients

    def put(self, target: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Replace the rows `at` of target, all different, in place."""
        return target.index_copy_(0, at, rows)

    def segment_dot(self, rows: torch.Tensor, vector: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        """(N, heads, c) . (K, heads, c) -> (N, heads): client k's rows times client k's vectors."""
        products: torch.Tensor = _SegmentDot.apply(rows, vector, sizes)  # type: ignore[no-untyped-call]
        return products

    def positive(self, rows: torch.Tensor) -> torch.Tensor:
        """Bool, of the same shape: whether each entry is above zero. NumPy is several times faster here than torch."""
        return torch.from_numpy(rows.detach().numpy() > 0)

    def u_add_v(self, graph: dgl.DGLGraph, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """(E, ...) source plus target."""
        values: torch.Tensor = dgl.ops.u_add_v(graph, u, v)
        return values

    def u_dot_v(self, graph: dgl.DGLGraph, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """(E, 1) or (E, H, 1) dot products of source and target, (N, c) or (N, H, c)."""
        products: torch.Tensor
        if u.dim() == v.dim() == 2:
            products = EdgeDot.apply(graph, u.unsqueeze(1), v.unsqueeze(1)).squeeze(2)  # type: ignore[no-untyped-call]
        else:
            products = EdgeDot.apply(graph, u, v)  # type: ignore[no-untyped-call]
        return products

    def u_mul_e_sum(self, graph: dgl.DGLGraph, u: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        """(N, ...) sum over in-edges of source times edge."""
        per_head = u.dim() == 3 and e.shape[1:] == (u.shape[1], 1)
        sums: torch.Tensor = EdgeSum.apply(graph, u, e) if per_head else dgl.ops.u_mul_e_sum(graph, u, e)  # type: ignore[no-untyped-call]
        return sums

    def e_sub_v(self, graph: dgl.DGLGraph, e: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """(E, ...) edge minus target."""
        values: torch.Tensor = dgl.ops.e_sub_v(graph, e, v)
        return values

    def copy_e_sum(self, graph: dgl.DGLGraph, e: torch.Tensor) -> torch.Tensor:
        """(N, ...) sum over in-edges."""
        sums: torch.Tensor = dgl.ops.copy_e_sum(graph, e)
        return sums

    def copy_e_max(self, graph: dgl.DGLGraph, e: torch.Tensor) -> torch.Tensor:
        """(N, ...) largest of the in-edges, no gradient. The value of a node without in-edges is undefined."""
        largest: torch.Tensor = dgl.ops.copy_e_max(graph, e)
        return largest

    def edge_softmax(self, graph: dgl.DGLGraph, e: torch.Tensor) -> torch.Tensor:
        """(E, ...) softmax over the in-edges of each node."""
        weights: torch.Tensor = dgl.ops.edge_softmax(graph, e)
        return weights


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


CPU = Kernels()
_current: Kernels = CPU


def active_kernels() -> Kernels:
    """Return the kernels of the current device."""
    return _current


@contextmanager
def using(chosen: Kernels) -> Iterator[None]:
    """Compute with these kernels within the block (used by `placing.on` and by tests of GPU kernels on a CPU)."""
    global _current
    before, _current = _current, chosen
    try:
        yield
    finally:
        _current = before
