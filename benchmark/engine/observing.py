"""What a fit does while it is observed, and what a graph of it is given by the host instead (capture.py)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from .device import HOST
from .lazy import Lazy
from .random import Streams
from .survey import Unfit, storage_of

aten = torch.ops.aten
ALIGNED = 16  # bytes


class Pinning(Protocol):
    def pinned(self, size: int) -> torch.Tensor:
        """So many bytes of the host from which copies are fast."""


class Asked(NamedTuple):
    """What the host gives in the course of a fit. masks: of each its streams, purpose, entries a client, and p; numbers
    of steps."""

    masks: list[tuple[Streams, str, tuple[int, ...], float]]
    numbers: list[float]

    @property
    def form(self) -> Any:
        """All but what changes from round to round."""
        return [mask[1:] for mask in self.masks], len(self.numbers)


class Seen(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """What a fit does, operation by operation: what from outside it reads, what it asks of the host, and what stands
    in the way of a replay, the `reason`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.outside: dict[int, torch.Tensor] = {}
        self.written = set[int]()
        self.asked = Asked([], [])
        self.reason: str | None = None
        self._made: dict[int, StorageWeakRef] = {}  # which keeps the number of the memory its own
        self._aside = False

    def refuse(self, reason: str) -> None:
        self.reason = self.reason or reason

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(issubclass(kind, Lazy) for kind in types):
            return NotImplemented  # it says itself what it does with what it is stored in
        given = _tensors((args, kwargs))
        made = func(*args, **(kwargs or {}))
        found = _tensors(made)
        if any(one.layout != torch.strided for one in (*given, *found)):
            self.refuse("uses a sparse tensor, which has no one memory")
        elif not self._aside and any(one.device.type != "cpu" for one in (*given, *found)):
            reason = _hindrance(func, given, found)
            if reason:
                self.refuse(reason)
            if func._schema.is_mutable:
                self.written.update(map(storage_of, _written(func, args, kwargs or {})))
            for one in given:
                if (storage := storage_of(one)) not in self._made:
                    self.outside.setdefault(storage, one)
            for one in found:
                if (storage := storage_of(one)) not in self.outside and storage not in self._made:
                    self._keep(one)
        return made

    def _keep(self, one: torch.Tensor) -> None:
        """This memory is the fit's own."""
        self._made[storage_of(one)] = StorageWeakRef(one.untyped_storage())  # type: ignore[no-untyped-call]

    def mask(self, streams: Streams, purpose: str, counts: Sequence[int], p: float) -> torch.Tensor:
        self.asked.masks.append((streams, purpose, tuple(counts), p))
        return self._from_host(lambda: streams.keep(purpose, counts, p))

    def number(self, value: float) -> torch.Tensor:
        self.asked.numbers.append(value)
        return self._from_host(lambda: torch.tensor(value))

    def _from_host(self, make: Callable[[], torch.Tensor]) -> torch.Tensor:
        """What a graph would find in its own place: how it gets to the device now is no operation of the fit."""
        self._aside = True
        try:
            made = make()
        finally:
            self._aside = False
        self._keep(made)
        return made


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [one for one in tree_iter(tree) if isinstance(one, torch.Tensor)]


def _written(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """Those of an operation's arguments that it writes into."""
    into = [
        kwargs.get(one.name) if one.kwarg_only or place >= len(args) else args[place]
        for place, one in enumerate(func._schema.arguments)
        if one.alias_info is not None and one.alias_info.is_write
    ]
    return _tensors(into)


def _hindrance(func: Any, given: Sequence[torch.Tensor], found: Sequence[torch.Tensor]) -> str | None:
    """Why an operation of the device could not be replayed, if it could not."""
    if torch.Tag.data_dependent_output in func.tags:
        return f"reads a value back ({func})"
    indexes = func.overloadpacket in (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_)
    by_mask = indexes and any(one.dtype in (torch.bool, torch.uint8) for one in given[1:])
    if by_mask or (torch.Tag.dynamic_output_shape in func.tags and not indexes):
        return f"has a shape that hangs on values ({func})"
    if torch.Tag.nondeterministic_seeded in func.tags:
        return f"draws on the device ({func})"
    if func is aten.lift_fresh.default or len({one.device for one in (*given, *found)}) > 1:
        return f"moves values between host and device ({func})"
    return None


class Given:
    """What a graph gets from the host, in the order in which the fit asked: slots of one block of bytes.

    start: what `start_of` the optimiser was when it was captured; step numbers grow with it.
    """

    def __init__(self, asked: Asked, backend: Pinning, start: float) -> None:
        self.asked, self.start = asked, start
        self.numbers: list[float] = []
        sizes = [4 * len(asked.numbers), *(sum(counts) for _, _, counts, _ in asked.masks)]
        self._ends = np.cumsum([0, *(-(-size // ALIGNED) * ALIGNED for size in sizes)]).tolist()
        self._host = backend.pinned(self._ends[-1])
        self._there = torch.zeros(self._ends[-1], dtype=torch.uint8)
        self._steps = self._there[: 4 * len(asked.numbers)].view(torch.float32)
        self._next = 0

    def refuse(self, reason: str) -> None:
        raise Unfit(reason)

    def mask(self, streams: Streams, purpose: str, counts: Sequence[int], p: float) -> torch.Tensor:
        place = self._next
        self._next += 1
        if place >= len(self.asked.masks) or self.asked.masks[place][1:] != (purpose, tuple(counts), p):
            raise Unfit("asks for other masks than before")
        return self._there[self._ends[place + 1] :][: sum(counts)].view(torch.bool)

    def number(self, value: float) -> torch.Tensor:
        self.numbers.append(value)
        return self._steps[len(self.numbers) - 1]

    def check(self) -> None:
        """Unfit if the fit asked for less than before: draws would go astray."""
        if (self._next, len(self.numbers)) != (len(self.asked.masks), len(self.asked.numbers)):
            raise Unfit("asks for less than before")

    def send(self, start: float) -> None:
        """Draw the masks of a round, and send them with its numbers of steps."""
        host = self._host
        host[: 4 * len(self.numbers)].view(torch.float32).copy_(
            torch.tensor([value + start - self.start for value in self.numbers], device=HOST)
        )
        for first, (streams, purpose, counts, p) in zip(self._ends[1:], self.asked.masks, strict=False):
            drawn = streams.kept(purpose, counts, p).view(np.uint8)
            host[first : first + len(drawn)].copy_(torch.as_tensor(drawn, device=HOST))
        self._there.copy_(host)


class Watched(Streams):
    """Streams that give masks through `seen` or `given`, and tell of anything else that is drawn."""

    def __init__(self, own: Streams, to: Seen | Given) -> None:
        self._own, self._to, self.clients = own, to, own.clients

    @property
    def seed(self) -> int:  # type: ignore[override]
        return self._own.seed

    def select(self, positions: Sequence[int]) -> Watched:
        return Watched(self._own.select(positions), self._to)

    def __call__(self, purpose: str) -> list[np.random.Generator]:
        self._to.refuse(f"asks for a generator ({purpose})")
        return self._own(purpose)

    def keep(self, purpose: str, counts: Sequence[int], p: float) -> torch.Tensor:
        return self._to.mask(self._own, purpose, counts, p)

    def kept(self, purpose: str, counts: Sequence[int], p: float) -> np.ndarray:
        self._to.refuse(f"asks for a mask for NumPy ({purpose})")
        return self._own.kept(purpose, counts, p)
