"""The input features of a client batch; weights of sparse features, stored by the rows that each client's data touch.

If column c of a client's features is zero, row c of its input weights gets no gradient. Clients that started from the
same download therefore have the same untouched rows, as long as each step treats all rows equally. One shared copy of
these rows is stored; only the rows that a client's data touch are stored per client.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch.autograd import Function

from . import lazy
from .kernels import active_kernels, applied
from .lazy import Parts, in_parts, parts_of
from .rng import Streams, rate
from .segment_ops import SparseMatrix, csr_product, is_shared, segment_product

WORTH = 0.9  # weights are stored by rows if this takes less than this share of their size


class Touched:
    """The input rows (of d) that each of K clients touches: R pairs of client and column, client by client."""

    def __init__(self, x: sp.csr_matrix, sizes: Sequence[int]) -> None:
        """x: (N, d) features of all clients' nodes; sizes: nodes of each client."""
        self.clients, self.width = len(sizes), int(x.shape[1])
        ends = x.indptr[np.cumsum((0, *sizes))]
        entry = np.repeat(np.arange(self.clients, dtype=np.int64) * self.width, np.diff(ends)) + x.indices
        touched = np.zeros(self.clients * self.width, bool)
        touched[entry] = True
        pairs = np.flatnonzero(touched)
        self.entry: np.ndarray = (np.cumsum(touched) - 1)[entry].astype(np.int32)  # the pair of each stored entry of x
        self.pairs = torch.from_numpy(pairs)
        self.client, self.column = self.pairs // self.width, self.pairs % self.width
        self._made: dict[str, tuple[torch.Tensor, Any]] = {}  # the last weights and results of `in_order`, `shares`
        self._zero: torch.Tensor | None = None  # the last result of `untouched`

    @property
    def worthwhile(self) -> bool:
        """Whether weights stored by rows are clearly smaller."""
        return len(self.pairs) + self.width < WORTH * self.clients * self.width

    @cached_property
    def _by_column(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """CSR (d, R) of ones, without values: row ends, entries, the client of each; (d,) bool, touched by all."""
        order = self.column.argsort(stable=True)
        count = self.column.bincount(minlength=self.width)
        ends = torch.cat([count.new_zeros(1), count.cumsum(0)])
        return ends.int(), order.int(), self.client[order], count == self.clients

    @cached_property
    def origin(self) -> torch.Tensor:
        """(R + d,) the input row of each stored row: those of the pairs, then every row once."""
        return torch.cat([self.column, torch.arange(self.width)])

    @cached_property
    def _by_client(self) -> tuple[torch.Tensor, torch.Tensor]:
        """CSR (d, R + d) without values: for each row, the place of each client's copy, clients in order."""
        place = torch.arange(self.width).add_(len(self.pairs)).repeat(self.clients, 1).flatten()
        place[self.pairs] = torch.arange(len(self.pairs))
        ends = torch.arange(0, self.clients * self.width + 1, self.clients)
        return ends.int(), place.view(self.clients, self.width).T.flatten().int()

    def _cached(self, name: str, weights: torch.Tensor, make: Callable[[torch.Tensor], Any]) -> Any:
        """make(weights), cached because the weights are the same in most rounds."""
        if name not in self._made or not torch.equal(self._made[name][0], weights):
            self._made[name] = weights.clone(), make(weights)
        return self._made[name][1]

    def in_order(self, weights: torch.Tensor) -> Any:
        """CSR (d, R + d) with each client's weight at the place of its copy of a row; cached."""
        return self._cached("in order", weights, self._in_order)

    def _in_order(self, weights: torch.Tensor) -> Any:
        ends, place = self._by_client
        shape = (self.width, len(self.pairs) + self.width)
        return active_kernels().csr(ends, place, weights.repeat(self.width), shape)

    def untouched(self, rows: torch.Tensor) -> torch.Tensor:
        """(d, h) zeros, read-only: the gradient of the shared rows. rows: (R, h), the gradient of the others."""
        if self._zero is None or self._zero.shape[1] != rows.shape[1]:
            self._zero = rows.new_zeros(self.width, rows.shape[1])
        return self._zero

    def shares(self, weights: torch.Tensor) -> tuple[Any, torch.Tensor]:
        """CSR (d, R) with the weight of each pair's client; (d,) sum of weights of the clients that do not touch it;
        cached."""
        made: tuple[Any, torch.Tensor] = self._cached("shares", weights, self._shares)
        return made

    def _shares(self, weights: torch.Tensor) -> tuple[Any, torch.Tensor]:
        ends, order, client, everyone = self._by_column
        matrix = active_kernels().csr(ends, order, weights[client], (self.width, len(self.pairs)))
        touching = torch.bincount(self.column, weights.double()[self.client], minlength=self.width)
        others = (weights.double().sum() - touching).masked_fill_(everyone, 0)
        return matrix, others.to(weights.dtype)


class ByRows(Parts):
    """The parts of weights (K, d, h) in one stack: the rows (R, h) of `touched`, then `shared` (d, h), the rows for
    clients that do not touch them. The stack of a gradient has no shared rows, because they are zero."""

    def __init__(self, touched: Touched, stack: torch.Tensor) -> None:
        """stack: (R + d, h), or (R, h) for a gradient."""
        held = len(touched.pairs)
        self.touched, self.stack = touched, stack
        self.rows = stack[:held]
        self.shared: torch.Tensor | None = stack[held:] if len(stack) > held else None
        self.shape = (touched.clients, touched.width, stack.shape[1])

    def tensors(self) -> Sequence[torch.Tensor]:
        return [self.stack]

    def assemble(self) -> torch.Tensor:
        k, d, h = self.shape
        start = self.rows.new_zeros(self.shape) if self.shared is None else self.shared.expand(k, d, h).clone()
        active_kernels().put(start.view(k * d, h), self.touched.pairs, self.rows)
        return start

    def copy(self) -> ByRows:
        return ByRows(self.touched, self.stack.clone())

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """For few clients, add every client's row in the order of the dense product; for many, add shared rows once."""
        weights = weights.to(self.stack.dtype)
        if self.shared is None:
            return csr_product(self.touched.shares(weights)[0], self.rows)
        if len(weights) <= lazy.FEW:
            return csr_product(self.touched.in_order(weights), self.stack)
        matrix, others = self.touched.shares(weights)
        return csr_product(matrix, self.rows).add_(others.unsqueeze(1) * self.shared)

    def plus(self, other: Parts) -> ByRows | None:
        if not isinstance(other, ByRows) or other.touched is not self.touched:
            return None
        gradients = self.shared is None and other.shared is None
        return ByRows(self.touched, self.rows + other.rows) if gradients else None

    def zeros(self) -> ByRows:
        """Zeros of the same shape with shared rows: the initial state of an optimiser."""
        return ByRows(self.touched, self.stack.new_zeros(len(self.touched.origin), self.shape[2]))

    def scaled(self, factor: torch.Tensor) -> ByRows:
        """A gradient times the factor (K,) of each client."""
        return ByRows(self.touched, self.rows * factor[self.touched.client].unsqueeze(1))

    def sum_squares(self) -> torch.Tensor:
        """(K,) the sum of squares of each client's gradient."""
        return self.rows.new_zeros(self.shape[0]).index_add_(0, self.touched.client, self.rows.square().sum(1))


def rows_of(value: Any) -> ByRows | None:
    """The parts of a tensor that is stored by rows; None of any other."""
    parts = parts_of(value)
    return parts if isinstance(parts, ByRows) else None


def stored(columns: Sequence[ByRows]) -> list[tuple[torch.Tensor, ...]]:
    """The stored rows of a parameter, its gradient and its state, for one optimiser step: touched rows, shared rows.

    The gradient of shared rows is zero.
    """
    shared = [column.touched.untouched(column.rows) if column.shared is None else column.shared for column in columns]
    return [tuple(column.rows for column in columns), tuple(shared)]


def spread(start: torch.Tensor, touched: Touched) -> torch.Tensor:
    """(d, h) -> (K, d, h): `start.expand(K, d, h).clone()`, stored by rows."""
    return in_parts(ByRows(touched, start.index_select(0, touched.origin)))


class _TouchedProduct(Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, matrix: SparseMatrix) -> torch.Tensor:
        by_rows = rows_of(weight)
        assert by_rows is not None
        ctx.matrix, ctx.touched = matrix, by_rows.touched
        return matrix.times(by_rows.rows)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return in_parts(ByRows(ctx.touched, ctx.matrix.times_transposed(grad))), None


def touched_product(weight: torch.Tensor, matrix: SparseMatrix) -> torch.Tensor:
    """(N, R) @ the touched rows of (K, d, h) -> (N, h); the gradient is also stored by rows."""
    return applied(_TouchedProduct, weight, matrix)


class Features:
    """The input features of N stacked rows: dense (N, d), or sparse with one column block per client.

    The sparse block-diagonal matrix (N, K d) times the stacked weights (K d, h) is the input product of all clients.
    """

    def __init__(self, value: torch.Tensor | sp.csr_matrix, sizes: Sequence[int]) -> None:
        self.value, self.sizes = value, tuple(sizes)

    @property
    def width(self) -> int:
        return int(self.value.shape[1])

    @property
    def sparse(self) -> bool:
        return not isinstance(self.value, torch.Tensor)

    @cached_property
    def matrix(self) -> SparseMatrix:
        """Sparse features as one (N, d) matrix, without column blocks."""
        return SparseMatrix(self.value, "input product")

    @cached_property
    def _blocks(self) -> SparseMatrix:
        x: sp.csr_matrix = self.value
        if len(self.sizes) == 1:
            return self.matrix
        block = np.repeat(np.arange(len(self.sizes), dtype=np.int64), self.sizes)
        shift = np.repeat(block * x.shape[1], np.diff(x.indptr))
        columns = x.indices.astype(np.int64) + shift
        shape = (x.shape[0], x.shape[1] * len(self.sizes))
        return SparseMatrix(sp.csr_matrix((x.data, columns, x.indptr), shape=shape), "input product")

    @cached_property
    def touched(self) -> Touched:
        """The rows of the input weights that each client's sparse features touch."""
        return Touched(self.value, self.sizes)

    @cached_property
    def _compact(self) -> SparseMatrix:
        """Sparse features with one column per touched pair of client and row, (N, R)."""
        x: sp.csr_matrix = self.value
        shape = (x.shape[0], len(self.touched.pairs))
        return SparseMatrix(sp.csr_matrix((x.data, self.touched.entry, x.indptr), shape=shape), "input product")

    def __matmul__(self, weight: torch.Tensor) -> torch.Tensor:
        """(N, d) x (K, d, h) -> (N, h), client k's rows times client k's weights."""
        if isinstance(self.value, torch.Tensor):
            return segment_product(self.value, weight, self.sizes)
        by_rows = rows_of(weight)
        if by_rows is not None and by_rows.touched is self.touched:
            return touched_product(weight, self._compact)
        if is_shared(weight):
            return self.matrix @ weight[0]
        return self._blocks @ weight.reshape(-1, weight.shape[2])

    def rows(self, picks: torch.Tensor, sizes: Sequence[int]) -> Features:
        """Some of the rows, client after client. picks: (n,) row numbers; sizes: rows of each client among them."""
        return Features(self.value[picks if isinstance(self.value, torch.Tensor) else picks.numpy()], sizes)

    def dense(self) -> torch.Tensor:
        """(N, d) float32. Large for bag-of-words features: use it only if a model needs dense features."""
        return self.value if isinstance(self.value, torch.Tensor) else torch.from_numpy(self.value.toarray())

    def dropout(self, p: float, streams: Streams | None) -> Features:
        """Inverted dropout on the entries; of a sparse matrix on the stored entries only. streams: None outside
        training, when nothing is dropped."""
        if p == 0 or streams is None:
            return self
        scale = 1 / (1 - rate(p))
        if isinstance(self.value, torch.Tensor):
            keep = streams.keep("input dropout", [n * self.width for n in self.sizes], p)
            return Features(self.value * keep.view(self.value.shape) * scale, self.sizes)
        ends = self.value.indptr[np.cumsum((0, *self.sizes))]
        kept = streams.kept("input dropout", np.diff(ends).tolist(), p)
        return self._with_data(self.value.data * kept * np.float32(scale))

    def drop_columns(self, keep: torch.Tensor) -> Features:
        """Zero whole feature columns; keep: bool (K, d), one row per client."""
        if isinstance(self.value, torch.Tensor):
            rows = [x * k for x, k in zip(self.value.split_with_sizes(self.sizes), keep, strict=True)]
            return Features(torch.cat(rows), self.sizes)
        owner = np.repeat(np.repeat(np.arange(len(self.sizes)), self.sizes), np.diff(self.value.indptr))
        return self._with_data(self.value.data * keep.numpy()[owner, self.value.indices])

    def _with_data(self, data: np.ndarray) -> Features:
        x: sp.csr_matrix = self.value
        made = Features(sp.csr_matrix((data, x.indices, x.indptr), shape=x.shape), self.sizes)
        if "touched" in self.__dict__:
            made.touched = self.touched
        return made
