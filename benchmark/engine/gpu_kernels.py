"""The kernels of every device except the CPU: torch's own operations, since DGL is installed for CPUs.

All sums over neighbours, clients or edges are sums of bags of rows (`torch.embedding_bag`), in the order in which the
entries are stored: no atomic additions, so the same run is bitwise identical. They run on a CPU too, where the tests
compare them with DGL.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import dgl
import torch
from torch.autograd import Function

from .kernels import Bags, Kernels, sum_bags


class GpuKernels(Kernels):
    """The same methods as `Kernels`, by bags of rows and padded batches of clients."""

    def csr(self, ends: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> Bags:
        return Bags(ends, indices, values, shape)

    def csr_product(self, matrix: Any, dense: torch.Tensor, *, ones: bool = False) -> torch.Tensor:
        return sum_bags(matrix, dense, ones=ones)

    def csr_product_onto(self, total: torch.Tensor, matrix: Any, dense: torch.Tensor) -> torch.Tensor:
        return total.add_(self.csr_product(matrix, dense))

    def products(self, rows: torch.Tensor, weight: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        found = rows.new_zeros(rows.shape[0], weight.shape[2])
        for group in groups_of(tuple(sizes), rows.device):
            made = group.padded(rows) @ weight.index_select(0, group.clients)
            found.index_copy_(0, group.rows, made.flatten(0, 1).index_select(0, group.place))
        return found

    def weight_gradients(self, rows: torch.Tensor, grad: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        found = rows.new_zeros(len(sizes), rows.shape[1], grad.shape[1])
        for group in groups_of(tuple(sizes), rows.device):
            found.index_copy_(0, group.clients, group.padded(rows).mT @ group.padded(grad))
        return found

    def segment_dot(self, rows: torch.Tensor, vector: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        owner, held = clients_of(tuple(sizes), rows.device)
        of_each: torch.Tensor = _Handed.apply(vector.flatten(1), owner, held)  # type: ignore[no-untyped-call]
        return (rows * of_each.view(len(rows), *vector.shape[1:])).sum(-1)

    def positive(self, rows: torch.Tensor) -> torch.Tensor:
        return rows.detach() > 0

    def u_add_v(self, graph: dgl.DGLGraph, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        edges = edges_of(graph, u.device)
        return _from_source(edges, u) + _from_target(edges, v)

    def u_dot_v(self, graph: dgl.DGLGraph, u: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        edges = edges_of(graph, u.device)
        return (_from_source(edges, u) * _from_target(edges, v)).sum(-1, keepdim=True)

    def u_mul_e_sum(self, graph: dgl.DGLGraph, u: torch.Tensor, e: torch.Tensor) -> torch.Tensor:
        return self.copy_e_sum(graph, _from_source(edges_of(graph, u.device), u) * e)

    def e_sub_v(self, graph: dgl.DGLGraph, e: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return e - _from_target(edges_of(graph, e.device), v)

    def copy_e_sum(self, graph: dgl.DGLGraph, e: torch.Tensor) -> torch.Tensor:
        edges = edges_of(graph, e.device)
        found: torch.Tensor = _Collected.apply(e, edges.target, edges.entering)  # type: ignore[no-untyped-call]
        return found

    def copy_e_max(self, graph: dgl.DGLGraph, e: torch.Tensor) -> torch.Tensor:
        target = edges_of(graph, e.device).target.view(-1, *[1] * (e.dim() - 1)).expand_as(e)
        return e.new_full((graph.num_nodes(), *e.shape[1:]), -torch.inf).scatter_reduce(0, target, e, "amax")

    def edge_softmax(self, graph: dgl.DGLGraph, e: torch.Tensor) -> torch.Tensor:
        weight = self.e_sub_v(graph, e, self.copy_e_max(graph, e.detach())).exp()
        return weight / _from_target(edges_of(graph, e.device), self.copy_e_sum(graph, weight))


class Padded(NamedTuple):
    """Clients whose rows are padded with zeros to the same length: with each other they are one batched product.

    The length depends only on the client's own number of rows: its product is the same in any client batch. clients:
    (g,) their positions. rows: (n,) their rows. place: (n,) where these lie when padded, of g * length.
    """

    clients: torch.Tensor
    rows: torch.Tensor
    place: torch.Tensor
    length: int

    def padded(self, values: torch.Tensor) -> torch.Tensor:
        """(N, c) -> (g, length, c)."""
        flat = values.new_zeros(len(self.clients) * self.length, values.shape[1])
        return flat.index_copy_(0, self.place, values.index_select(0, self.rows)).view(-1, self.length, values.shape[1])


@lru_cache(maxsize=64)
def groups_of(sizes: tuple[int, ...], device: torch.device) -> list[Padded]:
    """The clients that have rows, by the power of two that their number of rows is padded to."""
    starts, found = [0, *accumulate(sizes)], []
    lengths = [1 << (n - 1).bit_length() if n else 0 for n in sizes]
    for length in sorted(set(lengths) - {0}):
        clients = [k for k, own in enumerate(lengths) if own == length]
        rows = [row for k in clients for row in range(starts[k], starts[k + 1])]
        place = [i * length + row for i, k in enumerate(clients) for row in range(sizes[k])]
        at = [torch.tensor(part, dtype=torch.long, device=device) for part in (clients, rows, place)]
        found.append(Padded(at[0], at[1], at[2], length))
    return found


@lru_cache(maxsize=64)
def clients_of(sizes: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, Bags]:
    """(N,) the client of each row, and the bags (K, N) of each client's rows."""
    lengths = torch.tensor(sizes, device="cpu")
    owner = torch.repeat_interleave(torch.arange(len(sizes), device="cpu"), lengths)
    return owner.to(device), _bags(owner, len(sizes), device)


def _bags(bag: torch.Tensor, bags: int, device: torch.device) -> Bags:
    """(bags, n) ones where entry n is in a bag, which `bag` (n,) says; entries of a bag in order."""
    ends = torch.zeros(bags + 1, dtype=torch.long, device="cpu")
    ends[1:] = torch.bincount(bag, minlength=bags).cumsum(0)
    order = bag.argsort(stable=True)
    return Bags(ends.int().to(device), order.int().to(device), None, (bags, len(bag)))


class _Handed(Function):
    """Each entry gets the row of its bag; gradients are summed up by bags."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, bag: torch.Tensor, bags: Bags) -> torch.Tensor:
        ctx.bags = bags
        return rows.index_select(0, bag)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _summed(ctx.bags, grad), None, None


class _Collected(Function):
    """Each bag gets the sum of its entries; an entry gets its bag's gradient."""

    @staticmethod
    def forward(ctx: Any, entries: torch.Tensor, bag: torch.Tensor, bags: Bags) -> torch.Tensor:
        ctx.bag = bag
        return _summed(bags, entries)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return grad.index_select(0, ctx.bag), None, None


def _summed(bags: Bags, entries: torch.Tensor) -> torch.Tensor:
    """(n, ...) -> (bags, ...)."""
    width = entries[:1].numel() if len(entries) else entries.new_empty(1, *entries.shape[1:]).numel()
    flat = entries.reshape(len(entries), width)
    return sum_bags(bags, flat).view(bags.shape[0], *entries.shape[1:])


@dataclass(frozen=True)
class Edges:
    """A graph's edges on a device, in the order of their ids: `source`, `target` (E,), and the bags of each node's
    out-edges and in-edges."""

    source: torch.Tensor
    target: torch.Tensor
    leaving: Bags
    entering: Bags


_known: WeakKeyDictionary[dgl.DGLGraph, dict[torch.device, Edges]] = WeakKeyDictionary()


def edges_of(graph: dgl.DGLGraph, device: torch.device) -> Edges:
    """The edges of a graph, which itself stays on the host; moved once."""
    found = _known.setdefault(graph, {})
    if device not in found:
        source, target = graph.edges(order="eid")
        bags = (_bags(end, graph.num_nodes(), device) for end in (source, target))
        found[device] = Edges(source.to(device), target.to(device), *bags)
    return found[device]


def _from_source(edges: Edges, rows: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = _Handed.apply(rows, edges.source, edges.leaving)  # type: ignore[no-untyped-call]
    return found


def _from_target(edges: Edges, rows: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = _Handed.apply(rows, edges.target, edges.entering)  # type: ignore[no-untyped-call]
    return found


GPU = GpuKernels()
