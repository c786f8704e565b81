"""The arithmetic that differs between devices: the kernels of the CPU, and the choice of the active kernels.

Weighted sums of rows, of sparse matrices and over the edges of a graph, are sums of torch's bags. Over edges they take
a fifth to a tenth of the time of DGL's operators.

`gpu_kernels.GpuKernels` has the same methods for every other device. Both give the same values and gradients up to
float32 rounding; a test compares them method by method. Shapes: K clients, N rows, E edges, H heads, c columns.
`graph` is a DGLGraph on the host; u and v are values of its nodes (N, ...), e of its edges (E, ...).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import groupby, repeat
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import dgl
import dgl.ops
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from ...foundations import prefers_onednn

BAGGED = range(32, 128)  # numbers of columns for which weighted sums of bags are faster than MKL; see docs/speed.md
# From this number of multiplications on, and of rows, oneDNN's call is faster than MKL's where `prefers_onednn`.
WORK, ROWS = 2**18, 2**8


def applied(function: type[Function], *inputs: Any) -> torch.Tensor:
    """The output of a differentiable function."""
    out: torch.Tensor = function.apply(*inputs)  # type: ignore[no-untyped-call]
    return out


class Bags(NamedTuple):
    """A sparse matrix (n, m) by rows: row i has the columns indices[ends[i]:ends[i + 1]]. Both have 32 bits."""

    ends: torch.Tensor
    indices: torch.Tensor
    values: torch.Tensor | None  # None: all ones
    shape: tuple[int, int]


def sum_bags(matrix: Bags, dense: torch.Tensor, *, ones: bool = False) -> torch.Tensor:
    """(n, m) @ (m, c), no gradient: row i is the sum of a bag of rows of `dense`. ones: all stored values are one."""
    values = None if ones else matrix.values
    sums: torch.Tensor = torch.embedding_bag(
        dense.detach().contiguous(), matrix.indices, matrix.ends, False, 0, False, values, True
    )[0]
    return sums


class EdgeBags(NamedTuple):
    """The edges of a graph at one end, for H heads: row (node, head) has an entry (other end, head) for each edge.

    matrix: values are not set. edge: (E * H,) for each entry, its place in values of edges (E, H), flat.
    """

    matrix: Bags
    edge: torch.Tensor

    @classmethod
    def of(cls, ends: torch.Tensor, others: torch.Tensor, ids: torch.Tensor, nodes: int, heads: int) -> EdgeBags:
        """ends, others, ids: the edges by node, as DGL's `adj_tensors`. nodes: number of nodes at the other end."""
        counts = ends.diff().long()
        node = torch.repeat_interleave(counts)
        first = torch.arange(len(ids)) + (heads - 1) * ends[:-1].long()[node]  # the place of an edge's entry of head 0
        places = (first.unsqueeze(1) + torch.arange(heads) * counts[node].unsqueeze(1)).flatten()
        head = torch.arange(heads)
        indices, edge = torch.empty(len(places), dtype=torch.int32), torch.empty(len(places), dtype=torch.long)
        indices[places] = (others.long().unsqueeze(1) * heads + head).flatten().int()
        edge[places] = (ids.long().unsqueeze(1) * heads + head).flatten()
        rows = torch.cat([counts.new_zeros(1), counts.repeat_interleave(heads).cumsum(0)]).int()
        return cls(Bags(rows, indices, None, (heads * len(counts), heads * nodes)), edge)

    def sums(self, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """(nodes, H, c): the sum over each node's edges of the other end's row (N, H, c) times weights (E, H, 1)."""
        values = weights.detach().reshape(-1).index_select(0, self.edge)
        sums = sum_bags(self.matrix._replace(values=values), rows.flatten(0, 1))
        return sums.view(-1, *rows.shape[1:])

    def dots(self, rows: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
        """(E, H, 1): for each edge the dot products of its ends' rows (nodes, H, c), (N, H, c)."""
        ends, indices, _, shape = self.matrix
        left, right = rows.detach().flatten(0, 1), others.detach().flatten(0, 1)
        if len(indices) > shape[0] * shape[1]:  # repeated edges; torch refuses more entries than the matrix has
            products = (left[torch.repeat_interleave(ends.diff())] * right[indices]).sum(1)
        else:
            pattern = torch.sparse_csr_tensor(ends, indices, rows.new_zeros(len(indices)), size=shape)
            products = torch.sparse.sampled_addmm(pattern, left, right.T, beta=0).values()
        return torch.empty_like(products).index_copy_(0, self.edge, products).view(-1, rows.shape[1], 1)


_EDGES: WeakKeyDictionary[dgl.DGLGraph, dict[tuple[str, int], EdgeBags]] = WeakKeyDictionary()


def edge_bags(graph: dgl.DGLGraph, end: str, heads: int) -> EdgeBags:
    """Return the edges by target (end "target") or by source, computed once for each graph."""
    known = _EDGES.setdefault(graph, {})
    if (end, heads) not in known:
        layout, nodes = ("csc", graph.num_src_nodes()) if end == "target" else ("csr", graph.num_dst_nodes())
        ends, others, ids = graph.adj_tensors(layout)
        known[end, heads] = EdgeBags.of(ends, others, ids, nodes, heads)
    return known[end, heads]


class EdgeSum(Function):
    """(N, H, c): for each node the sum over its in-edges of the source's row u (N, H, c) times e (E, H, 1)."""

    @staticmethod
    def forward(ctx: Any, graph: dgl.DGLGraph, u: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        ctx.graph = graph
        ctx.save_for_backward(u, e)
        return edge_bags(graph, "target", u.shape[1]).sums(u, e)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, torch.Tensor | None, torch.Tensor | None]:
        u, e = ctx.saved_tensors
        _, of_u, of_e = ctx.needs_input_grad
        d_u = edge_bags(ctx.graph, "source", u.shape[1]).sums(grad, e) if of_u else None
        return None, d_u, edge_bags(ctx.graph, "target", u.shape[1]).dots(grad, u) if of_e else None


class EdgeDot(Function):
    """(E, H, 1): for each edge the dot products of the source's row u (N, H, c) and the target's row v (N, H, c)."""

    @staticmethod
    def forward(ctx: Any, graph: dgl.DGLGraph, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        ctx.graph = graph
        ctx.save_for_backward(u, v)
        return edge_bags(graph, "target", u.shape[1]).dots(v, u)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[None, torch.Tensor | None, torch.Tensor | None]:
        u, v = ctx.saved_tensors
        _, of_u, of_v = ctx.needs_input_grad
        d_u = edge_bags(ctx.graph, "source", u.shape[1]).sums(v, grad) if of_u else None
        return None, d_u, edge_bags(ctx.graph, "target", u.shape[1]).sums(u, grad) if of_v else None


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
        return applied(_SegmentDot, rows, vector, sizes)

    def positive(self, rows: torch.Tensor) -> torch.Tensor:
        """Bool, of the same shape: whether each entry is above zero. NumPy is several times faster here than torch."""
        return torch.from_numpy(rows.detach().numpy() > 0)

    def u_add_v(self, graph: dgl.DGLGraph, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """(E, ...) source plus target."""
        values: torch.Tensor = dgl.ops.u_add_v(graph, u, v)
        return values

    def u_dot_v(self, graph: dgl.DGLGraph, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """(E, 1) or (E, H, 1) dot products of source and target, (N, c) or (N, H, c)."""
        if u.dim() == v.dim() == 2:
            return applied(EdgeDot, graph, u.unsqueeze(1), v.unsqueeze(1)).squeeze(2)
        return applied(EdgeDot, graph, u, v)

    def u_mul_e_sum(self, graph: dgl.DGLGraph, u: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        """(N, ...) sum over in-edges of source times edge."""
        if u.dim() == 3 and e.shape[1:] == (u.shape[1], 1):
            return applied(EdgeSum, graph, u, e)
        sums: torch.Tensor = dgl.ops.u_mul_e_sum(graph, u, e)
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
