"""The kernels of every device except the CPU: torch's operations, because DGL is installed for CPUs.

All sums over neighbours, clients or edges are sums of bags of rows (`torch.embedding_bag`), in the order of the stored
entries: without atomic additions, a repeated run is bitwise identical. One thread adds the entries of a bag one after
the other, so long bags are summed in parts first (`layers_of`). The kernels also run on a CPU, where the tests compare
them with DGL.
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

from .kernels import Bags, Kernels, applied, sum_bags

LONGEST = 64  # most entries that a thread adds one after the other
Layers = tuple[Bags, ...]  # a sparse matrix as a product of layers; the first is applied first


def layers_of(bags: Bags) -> Layers:
    """Split the sums into parts of at most `LONGEST` entries, then sums of the parts. The parts of a bag depend only on
    its length: its sum does not depend on the other bags."""
    counts = bags.ends.diff()
    if not len(counts) or int(counts.max()) <= LONGEST:
        return (bags,)
    parts = (counts + (LONGEST - 1)) // LONGEST
    ends = torch.zeros_like(bags.ends)
    ends[1:] = parts.cumsum(0)
    total = int(ends[-1])
    each = torch.arange(total, dtype=ends.dtype, device=ends.device)
    begin = each * LONGEST - (ends[:-1] * LONGEST - bags.ends[:-1]).repeat_interleave(parts)
    first = Bags(torch.cat([begin, bags.ends[-1:]]), bags.indices, bags.values, (total, bags.shape[1]))
    return (first, *layers_of(Bags(ends, each, None, (bags.shape[0], total))))


def sum_layers(layers: Layers, dense: torch.Tensor, *, ones: bool = False) -> torch.Tensor:
    """(n, m) @ (m, c) -> (n, c), no gradient. ones: all stored values of the first layer are one."""
    summed = sum_bags(layers[0], dense, ones=ones)
    for layer in layers[1:]:
        summed = sum_bags(layer, summed)
    return summed


class GpuKernels(Kernels):
    """The same methods as `Kernels`, by bags of rows and padded batches of clients."""

    def csr(self, ends: torch.Tensor, indices: torch.Tensor, values: torch.Tensor, shape: tuple[int, int]) -> Layers:
        return layers_of(Bags(ends, indices, values, shape))

    def csr_product(self, matrix: Any, dense: torch.Tensor, *, ones: bool = False) -> torch.Tensor:
        return sum_layers(matrix, dense, ones=ones)

    def products(
        self, rows: torch.Tensor, weight: torch.Tensor, sizes: Sequence[int], bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        padded = padding_of(tuple(sizes), rows.device)
        products = [group.padded(rows) @ weight.index_select(0, group.clients) for group in padded.groups]
        flat = [product.flatten(0, 1) for product in products]
        joined = _joined(flat, padded.place, rows.new_empty(0, weight.shape[2]))
        return joined if bias is None else joined.add_(bias.index_select(0, clients_of(tuple(sizes), rows.device)[0]))

    def weight_gradients(self, rows: torch.Tensor, grad: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        padded, none = padding_of(tuple(sizes), rows.device), rows.new_zeros(1, rows.shape[1], grad.shape[1])
        gradients = [group.padded(rows).mT @ group.padded(grad).mul_(group.filled) for group in padded.groups]
        return _joined([*gradients, none], padded.client, none)

    def put(self, target: torch.Tensor, at: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        # Different rows can be written in any order; torch's deterministic kernel sorts them: 20 kernels instead of 1.
        before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        torch.use_deterministic_algorithms(False)
        try:
            return target.index_copy_(0, at, rows)
        finally:
            torch.use_deterministic_algorithms(before[0], warn_only=before[1])

    def segment_dot(self, rows: torch.Tensor, vector: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
        owner, held = clients_of(tuple(sizes), rows.device)
        of_each = applied(_Gather, vector.flatten(1), owner, held)
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
        return applied(_SumByBag, e, edges.target, edges.entering)

    def copy_e_max(self, graph: dgl.DGLGraph, e: torch.Tensor) -> torch.Tensor:
        target = edges_of(graph, e.device).target.view(-1, *[1] * (e.dim() - 1)).expand_as(e)
        return e.new_full((graph.num_nodes(), *e.shape[1:]), -torch.inf).scatter_reduce(0, target, e, "amax")

    def edge_softmax(self, graph: dgl.DGLGraph, e: torch.Tensor) -> torch.Tensor:
        weight = self.e_sub_v(graph, e, self.copy_e_max(graph, e.detach())).exp()
        return weight / _from_target(edges_of(graph, e.device), self.copy_e_sum(graph, weight))


class Group(NamedTuple):
    """Clients whose rows are padded to the same length: one batched product for all of them.

    The length depends only on the client's number of rows: its product is the same in any client batch. clients: (g,)
    their positions. rows: (g * length,) the row at each place; a client with fewer rows repeats its first one.
    filled: (g, length, 1) 1 for a row, 0 for a repetition of the first row.
    """

    clients: torch.Tensor
    rows: torch.Tensor
    filled: torch.Tensor

    def padded(self, values: torch.Tensor) -> torch.Tensor:
        """(N, c) -> (g, length, c)."""
        return values.index_select(0, self.rows).view(*self.filled.shape[:2], values.shape[1])


class Padding(NamedTuple):
    """All clients with rows, in groups. place: (N,) the position of each row in the joined results of all groups.
    client: (K,) the position of each client in them; a client without rows has the position after all others."""

    groups: list[Group]
    place: torch.Tensor
    client: torch.Tensor


@lru_cache(maxsize=64)
def padding_of(sizes: tuple[int, ...], device: torch.device) -> Padding:
    """Group the clients by their number of rows, padded to a power of two. Computed on the host, then moved."""
    starts, lengths = [0, *accumulate(sizes)], [1 << (n - 1).bit_length() if n else 0 for n in sizes]
    groups, place, client = list[Group](), torch.zeros(starts[-1], dtype=torch.long, device="cpu"), dict[int, int]()
    at = 0
    for length in sorted(set(lengths) - {0}):
        clients = [k for k, padded in enumerate(lengths) if padded == length]
        order = torch.arange(length, device="cpu")
        filled = torch.stack([order < sizes[k] for k in clients])
        first = torch.tensor([starts[k] for k in clients], device="cpu").unsqueeze(1)
        rows = first + order * filled
        place[rows[filled]] = at + filled.flatten().nonzero().flatten()
        client |= {k: len(client) + i for i, k in enumerate(clients)}
        at += len(clients) * length
        of_clients = torch.tensor(clients, device="cpu")
        groups.append(Group(of_clients.to(device), rows.flatten().to(device), filled.unsqueeze(2).float().to(device)))
    of_client = torch.tensor([client.get(k, len(client)) for k in range(len(sizes))], device="cpu")
    return Padding(groups, place.to(device), of_client.to(device))


def _joined(parts: list[torch.Tensor], place: torch.Tensor, none: torch.Tensor) -> torch.Tensor:
    """The rows `place` of the joined parts; `none` if there are no parts."""
    return torch.cat(parts).index_select(0, place) if parts else none


@lru_cache(maxsize=64)
def clients_of(sizes: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, Layers]:
    """(N,) the client of each row, and the bags (K, N) of each client's rows."""
    lengths = torch.tensor(sizes, device="cpu")
    owner = torch.repeat_interleave(torch.arange(len(sizes), device="cpu"), lengths)
    return owner.to(device), _bags(owner, len(sizes), device)


def _bags(bag: torch.Tensor, bags: int, device: torch.device) -> Layers:
    """(bags, n) with a one at (b, i) if entry i is in bag b. bag: (n,) the bag of each entry."""
    ends = torch.zeros(bags + 1, dtype=torch.long, device="cpu")
    ends[1:] = torch.bincount(bag, minlength=bags).cumsum(0)
    order = bag.argsort(stable=True)
    return layers_of(Bags(ends.int().to(device), order.int().to(device), None, (bags, len(bag))))


class _Gather(Function):
    """(bags, ...) -> (n, ...): each entry gets the row of its bag; the gradient of a bag is the sum of its entries'."""

    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, bag: torch.Tensor, bags: Layers) -> torch.Tensor:
        ctx.bags = bags
        return rows.index_select(0, bag)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return _summed(ctx.bags, grad), None, None


class _SumByBag(Function):
    """(n, ...) -> (bags, ...): each bag gets the sum of its entries; an entry gets the gradient of its bag."""

    @staticmethod
    def forward(ctx: Any, entries: torch.Tensor, bag: torch.Tensor, bags: Layers) -> torch.Tensor:
        ctx.bag = bag
        return _summed(bags, entries)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return grad.index_select(0, ctx.bag), None, None


def _summed(bags: Layers, entries: torch.Tensor) -> torch.Tensor:
    """(n, ...) -> (bags, ...)."""
    width = entries[:1].numel() if len(entries) else entries.new_empty(1, *entries.shape[1:]).numel()
    flat = entries.reshape(len(entries), width)
    return sum_layers(bags, flat).view(bags[-1].shape[0], *entries.shape[1:])


@dataclass(frozen=True)
class Edges:
    """A graph's edges on a device, in the order of their ids. source, target: (E,). leaving, entering: the bags of each
    node's out-edges and in-edges."""

    source: torch.Tensor
    target: torch.Tensor
    leaving: Layers
    entering: Layers


_known: WeakKeyDictionary[dgl.DGLGraph, dict[torch.device, Edges]] = WeakKeyDictionary()


def edges_of(graph: dgl.DGLGraph, device: torch.device) -> Edges:
    """The edges of a graph, which itself stays on the host; cached per device."""
    by_device = _known.setdefault(graph, {})
    if device not in by_device:
        source, target = graph.edges(order="eid")
        bags = (_bags(end, graph.num_nodes(), device) for end in (source, target))
        by_device[device] = Edges(source.to(device), target.to(device), *bags)
    return by_device[device]


def _from_source(edges: Edges, rows: torch.Tensor) -> torch.Tensor:
    return applied(_Gather, rows, edges.source, edges.leaving)


def _from_target(edges: Edges, rows: torch.Tensor) -> torch.Tensor:
    return applied(_Gather, rows, edges.target, edges.entering)


GPU = GpuKernels()
