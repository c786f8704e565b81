"""Tensors that are stored in parts and assembled only when they are read.

A `Lazy` is a torch.Tensor: an operation that has no implementation for parts assembles the whole tensor, once, and uses
it. The most frequent operations on large parameters (optimiser step, input product, weighted sum over clients) work on
the parts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from ...foundations import without_distributed_tensors

aten = torch.ops.aten
# Up to this number of clients a weighted sum adds client after client, as the dense product of plain tensors does: the
# results of all storages are bitwise identical. For few clients this costs little time.
FEW = 20
# Methods of a tensor that read its memory without an operation.
READERS = ("numpy", "tolist", "data_ptr", "untyped_storage", "__array__", "__deepcopy__", "__reduce_ex__", "__repr__")


class Parts(ABC):
    """The parts of a lazy tensor of float32."""

    shape: Sequence[int]

    @abstractmethod
    def tensors(self) -> Sequence[torch.Tensor]:
        """The parts that a write could change."""

    @abstractmethod
    def assemble(self) -> torch.Tensor:
        """The whole tensor, in new memory."""

    def copy(self) -> Parts | None:
        """A copy in new memory; None: the whole tensor is copied instead."""
        return None

    def plus(self, other: Parts) -> Parts | None:
        """The sum, if both have the same parts; None: the whole tensors are added instead."""
        return None

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """sum_k weights[k] * whole[k]. weights: (K,)."""
        value = self.assemble()
        total: torch.Tensor = torch.tensordot(weights.to(value.dtype), value, 1)
        return total


class Content:
    """The parts, or the whole tensor after its first use: never both, so that a write changes the only copy."""

    def __init__(self, parts: Parts) -> None:
        self.parts: Parts | None = parts
        self.device = parts.tensors()[0].device
        self._whole: torch.Tensor | None = None
        self._before = 0

    def whole(self) -> torch.Tensor:
        if self._whole is None:
            assert self.parts is not None
            before = self.version
            self._whole, self.parts = self.parts.assemble(), None
            self._before = before - self._whole._version
        return self._whole

    @property
    def version(self) -> int:
        """Grows with each write; assembling does not change it."""
        if self.parts is not None:
            return sum(map(version, self.parts.tensors()))
        assert self._whole is not None
        return self._before + self._whole._version


class Lazy(torch.Tensor):
    """A tensor in parts. content: shared with all detached aliases, like the memory of a tensor."""

    content: Content
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, content: Content, shape: Sequence[int]) -> Lazy:
        made: Lazy = torch.Tensor._make_wrapper_subclass(cls, tuple(shape), dtype=torch.float32, device=content.device)
        made.content = content
        return made

    def __init__(self, content: Content, shape: Sequence[int]) -> None:
        """`__new__` does everything."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func is aten.detach.default:
            return Lazy(args[0].content, args[0].shape)
        parts = _by_parts(func, args, kwargs)
        if parts is not None:
            return in_parts(parts)
        plain_args, plain_kwargs = tree_map_only(Lazy, whole, (args, kwargs or {}))
        out: Any = func(*plain_args, **plain_kwargs)
        # An in-place function returns the tensor that it wrote into: return the lazy one instead.
        return next((arg for arg, own in zip(args, plain_args, strict=True) if out is own and arg is not own), out)


def _by_parts(func: Any, args: Any, kwargs: Any) -> Parts | None:
    """The result of an operation that parts implement; None for others."""
    parts = [parts_of(arg) for arg in args]
    if func is aten.clone.default and parts[0] is not None:
        return parts[0].copy()
    if func is aten.add.Tensor and not kwargs and parts[0] is not None and parts[1] is not None:
        return parts[0].plus(parts[1])
    return None


def _reader(name: str) -> Callable[..., Any]:
    def read(self: Lazy, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.content.whole(), name)(*args, **kwargs)

    return read


for _name in READERS:
    setattr(Lazy, _name, _reader(_name))


def in_parts(parts: Parts) -> torch.Tensor:
    """A lazy tensor of these parts."""
    _initialise_torch()
    return Lazy(Content(parts), parts.shape)


@cache
def _initialise_torch() -> None:
    """Run the process's first operation on a tensor subclass, without torch's distributed tensors (foundations.py)."""
    with without_distributed_tensors():
        Lazy(Content(Joined([torch.zeros(1)])), (1,)).detach()


def parts_of(value: Any) -> Parts | None:
    """The parts of a lazy tensor that is not assembled yet; None for any other tensor."""
    return value.content.parts if isinstance(value, Lazy) else None


def whole(value: torch.Tensor) -> torch.Tensor:
    """The plain tensor; a lazy one is assembled and stays assembled."""
    return value.content.whole() if isinstance(value, Lazy) else value


def plain(value: torch.Tensor) -> torch.Tensor:
    """The plain tensor, for reading only; a lazy one stays in parts."""
    parts = parts_of(value)
    return whole(value) if parts is None else parts.assemble()


def version(value: torch.Tensor) -> int:
    """Grows with each write into the value."""
    return value._version + (value.content.version if isinstance(value, Lazy) else 0)


def weighted_sum(value: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """(K, ...) -> (...): sum_k weights[k] * value[k]. weights: (K,), or (n, K) for n sums (n, ...)."""
    parts = parts_of(value)
    if parts is not None and weights.dim() == 1 and not value.requires_grad:
        return parts.weighted_sum(weights)
    total: torch.Tensor = torch.tensordot(weights.to(value.dtype), value if value.requires_grad else plain(value), 1)
    return total


class Joined(Parts):
    """The values of several client batches, joined along the client axis."""

    def __init__(self, pieces: Sequence[torch.Tensor]) -> None:
        self.pieces = pieces
        self.shape = (sum(len(piece) for piece in pieces), *pieces[0].shape[1:])

    def tensors(self) -> Sequence[torch.Tensor]:
        return self.pieces

    def assemble(self) -> torch.Tensor:
        return torch.cat([plain(piece) for piece in self.pieces])

    def weighted_sum(self, weights: torch.Tensor) -> torch.Tensor:
        """For many clients, add batch by batch, without memory of the size of all uploads."""
        if len(weights) <= FEW:
            return super().weighted_sum(weights)
        shares = weights.split_with_sizes([len(piece) for piece in self.pieces])
        total = weighted_sum(self.pieces[0], shares[0])
        for piece, share in zip(self.pieces[1:], shares[1:], strict=True):
            total = weighted_sum_onto(total, piece, share)
        return total


def weighted_sum_onto(total: torch.Tensor, value: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Add sum_k weights[k] * value[k] to `total` in place, with one pass over a plain value."""
    if parts_of(value) is not None:
        return total.add_(weighted_sum(value, weights))
    rows = whole(value).flatten(1)
    return total.view(-1).addmv_(rows.T, weights.to(value.dtype)).view(total.shape)
