"""Weights of sparse features, stored by the rows that each client's data touch.

A client whose features have a zero in column c throughout gives row c of its input weights no gradient. Clients that
started from the same download therefore hold the same row there for as long as each step treats every row alike: one
copy serves all of them, and only the rows that a client's own data touch are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch
from torch.autograd import Function

from .lazy import Parts, in_parts, parts_of
from .ops import SparseMatrix, csr_product
from .timing import section

WORTH = 0.9  # compact weights take more than this share of the whole ones: not worth it


class Touched:
    """Which of the d input rows each of K clients touches: R pairs of client and column, client by client."""

    def __init__(self, x: sp.csr_matrix, sizes: Sequence[int]) -> None:
        """x: (N, d) features of all clients' nodes; sizes: nodes of each client."""
        self.clients, self.width = len(sizes), int(x.shape[1])
        ends = x.indptr[np.cumsum((0, *sizes))]
        entry = np.repeat(np.arange(self.clients, dtype=np.int64) * self.width, np.diff(ends)) + x.indices
        held = np.zeros(self.clients * self.width, bool)
        held[entry] = True
        pairs = np.flatnonzero(held)
        self.entry: np.ndarray = (np.cumsum(held) - 1)[entry].astype(np.int32)  # where each stored entry's row lies
        self.pairs = torch.from_numpy(pairs)
        self.client, self.column = self.pairs // self.width, self.pairs % self.width

    @property
    def worthwhile(self) -> bool:
        """Whether compact weights are clearly the smaller ones."""
        return len(self.pairs) + self.width < WORTH * self.clients * self.width

    @cached_property
    def _by_column(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """CSR (d, R) of ones without its values: row ends, entries, the client of each; and the columns of everyone."""
        order = self.column.argsort(stable=True)
        count = self.column.bincount(minlength=self.width)
        ends = torch.cat([count.new_zeros(1), count.cumsum(0)])
        return ends.int(), order.int(), self.client[order], count == self.clients

    def shares(self, weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """CSR (d, R) with each pair's client's weight, and (d,) the weight of the clients that do not touch a row."""
        ends, order, client, everyone = self._by_column
        matrix = torch.sparse_csr_tensor(ends, order, weights[client], size=(self.width, len(self.pairs)))
        own = torch.bincount(self.column, weights.double()[self.client], minlength=self.width)
        others = (weights.double().sum() - own).masked_fill_(everyone, 0)
        return matrix, others.to(weights.dtype)


class ByRows(Parts):
    """The parts of weights (K, d, h): `shared` (d, h), the rows that nobody touches, and `rows` (R, h), those of
    `touched`. shared None: zero, as in a gradient."""

    def __init__(self, touched: Touched, shared: torch.Tensor | None, rows: torch.Tensor) -> None:
        self.touched, self.shared, self.rows = touched, shared, rows
        self.shape = (touched.clients, touched.width, rows.shape[1])

    def tensors(self) -> Sequence[torch.Tensor]:
        return [self.rows] if self.shared is None else [self.rows, self.shared]

    def assemble(self) -> torch.Tensor:
        k, d, h = self.shape
        start = self.rows.new_zeros(self.shape) if self.shared is None else self.shared.expand(k, d, h).clone()
        start.view(k * d, h).index_copy_(0, self.touched.pairs, self.rows)
        return start

    def copy(self) -> ByRows:
        return ByRows(self.touched, None if self.shared is None else self.shared.clone(), self.rows.clone())

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        matrix, others = self.touched.shares(weights.to(self.rows.dtype))
        if self.shared is None:
            return csr_product(matrix, self.rows)
        return (others.unsqueeze(1) * self.shared).addmm_(matrix, self.rows)

    def plus(self, other: Parts) -> ByRows | None:
        if not isinstance(other, ByRows) or other.touched is not self.touched:
            return None
        gradients = self.shared is None and other.shared is None
        return ByRows(self.touched, None, self.rows + other.rows) if gradients else None

    def zeros(self) -> ByRows:
        """All rows zero, stored: a state for the optimiser."""
        _, d, h = self.shape
        return ByRows(self.touched, self.rows.new_zeros(d, h), torch.zeros_like(self.rows))

    def scaled(self, factor: torch.Tensor) -> ByRows:
        """Each client's gradient times its factor. factor: (K,)."""
        return ByRows(self.touched, None, self.rows * factor[self.touched.client].unsqueeze(1))

    def sum_squares(self) -> torch.Tensor:
        """(K,) of each client's gradient."""
        return self.rows.new_zeros(self.shape[0]).index_add_(0, self.touched.client, self.rows.square().sum(1))


def rows_of(value: Any) -> ByRows | None:
    """The parts of a tensor that is stored by rows; None of any other."""
    parts = parts_of(value)
    return parts if isinstance(parts, ByRows) else None


def stored(columns: Sequence[ByRows]) -> list[tuple[torch.Tensor, ...]]:
    """What to move of a parameter, its gradient and its state, all by the same rows: the clients' own, and the shared.

    The shared rows' gradient is zero.
    """
    shared = [torch.zeros_like(columns[0].rows[:1]).expand(own.shape[1:]) if own.shared is None else own.shared
              for own in columns]  # fmt: skip
    return [tuple(own.rows for own in columns), tuple(value.contiguous() for value in shared)]


def spread(start: torch.Tensor, touched: Touched) -> torch.Tensor:
    """(d, h) for every client, (K, d, h): what `start.expand(K, d, h).clone()` gives, stored by rows."""
    return in_parts(ByRows(touched, start.clone(), start.index_select(0, touched.column)))


class _TouchedProduct(Function):
    @staticmethod
    def forward(ctx: Any, weight: torch.Tensor, matrix: SparseMatrix) -> torch.Tensor:
        own = rows_of(weight)
        assert own is not None
        ctx.matrix, ctx.touched = matrix, own.touched
        with section(matrix.label):
            return csr_product(matrix.forward_csr, own.rows)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        with section(ctx.matrix.label):
            return in_parts(ByRows(ctx.touched, None, csr_product(ctx.matrix.backward_csr, grad.contiguous()))), None


def touched_product(weight: torch.Tensor, matrix: SparseMatrix) -> torch.Tensor:
    """(N, R) @ the touched rows of (K, d, h) -> (N, h); the gradient is stored by rows too."""
    out: torch.Tensor = _TouchedProduct.apply(weight, matrix)  # type: ignore[no-untyped-call]
    return out
