"""A device that every machine has, for tests: its tensors are of the host, and behave as those of a GPU do.

They have a device of their own, "pretend:0". An operation on them and on tensors of the host raises, as CUDA's does,
and so does `numpy()`. What is computed is computed on the host, so that numbers can be compared.

Its graphs (`Recorder`) are what CUDA's are: the operations that it was given between the beginning of a capture and its
end, each with the memory that it reads and writes and with the numbers that the host gave, to be done again without any
Python of who asked for them. While one is captured what CUDA refuses is an error, and nothing that is computed lasts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import library
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from fglbench.benchmark.engine.lazy import Lazy  # whose operations come here as those on its parts

aten = torch.ops.aten
KERNELS = library.Library("aten", "IMPL")
NAME = "pretend"
# Copies between devices, and an index of the host on a tensor of the device: what may meet on two devices.
CROSSING = (aten._to_copy.default, aten.copy_.default, aten.index.Tensor, aten.index_put_.default,
            aten.index_put.default, aten._index_put_impl_.default)  # fmt: skip


@cache
def device() -> torch.device:
    """The device, made known to torch at the first call."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME)
    # It is the process's accelerator from here on, which checkpoints ask for its types of mixed precision: none.
    getattr(torch, NAME).get_amp_supported_dtype = list
    for operator in ("empty.memory_format", "empty_strided", "copy_", "_to_copy"):
        KERNELS.impl(operator, partial(_called, getattr(aten, operator.split(".")[0])), "PrivateUse1")
    return torch.device(NAME, 0)


def _called(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """A kernel that torch calls by itself, as `torch.tensor` does."""
    overload = operator.memory_format if operator is aten.empty else operator.default
    return _computed(overload, args, kwargs)


class Far(torch.Tensor):
    """A tensor of the device. near: what it holds."""

    near: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> Far:
        # A sparse tensor goes for a strided one of its shape, of which alone torch makes a wrapper so.
        strided = near.layout == torch.strided
        how = {"strides": near.stride(), "storage_offset": near.storage_offset()} if strided else {}
        made = torch.Tensor._make_wrapper_subclass(cls, near.shape, dtype=near.dtype, device=device(), **how)
        made.near = near
        return made

    def __repr__(self, **_: Any) -> str:
        return f"Far({self.near})"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.near.untyped_storage()

    @property
    def data(self) -> Far:
        return Far(self.near)

    @data.setter
    def data(self, other: Far) -> None:
        self.near = other.near

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented if Lazy in types else _computed(func, args, kwargs or {})


def _computed(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operation, on what the tensors hold."""
    given = [one for one in tree_iter((args, kwargs)) if isinstance(one, torch.Tensor)]
    far = [one for one in given if isinstance(one, Far)]
    asked = kwargs.get("device")
    if far and func not in CROSSING:
        near = [one for one in given if not isinstance(one, Far) and one.dim()]
        if near:
            raise RuntimeError(f"{func}: expected all tensors to be on the same device, found {NAME}:0 and cpu")
    if func in (aten.index.Tensor, aten.index_put_.default) and not isinstance(args[0], Far) and far:
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    there = bool(far) if asked is None else torch.device(asked).type == NAME
    if func is aten.copy_.default:
        there = isinstance(args[0], Far)
    if (there or far) and stream.tape is not None:
        _permit(func, given, there)
        args, kwargs = tree_map_only(torch.Tensor, lambda one: one if type(one) is Far else one.clone(), (args, kwargs))
    own, named = tree_map_only(Far, lambda one: one.near, (args, kwargs))
    if asked is not None:
        named["device"] = torch.device("cpu")
    found = func(*own, **named)
    if there or far:
        stream.done(func, own, named, found)
    same = {id(one.near): one for one in far}  # who works in place is handed back what it wrote into

    def told(one: torch.Tensor) -> torch.Tensor:
        return same[id(one)] if id(one) in same and there else Far(one) if there else one

    return tree_map_only(torch.Tensor, told, found)


def _permit(func: Any, given: list[torch.Tensor], there: bool) -> None:
    """In a capture: RuntimeError for what waits for the device, and for what reads or writes memory of the host. A
    number of the host, a tensor without axes, may stand in an operation; the graph keeps what it is now."""
    host = [one for one in given if not isinstance(one, Far)]
    waits = torch.Tag.data_dependent_output in func.tags or torch.Tag.dynamic_output_shape in func.tags
    if func.overloadpacket in (aten.index, aten.index_put, aten.index_put_, aten._index_put_impl_):
        waits = any(one.dtype in (torch.bool, torch.uint8) for one in given[1:])
    if waits or not there or (host and (func in CROSSING or any(one.dim() for one in host))):
        raise RuntimeError(f"{func}: operation not permitted when stream is capturing")


def _memory(one: torch.Tensor) -> int:
    """What views of the same share; a sparse tensor, which has several memories, is its own."""
    return one.untyped_storage()._cdata if one.layout == torch.strided else id(one)


class Stream:
    """What the device is given to do. launches: operations so far, views and empty results left out; a graph that is
    replayed is one. tape: what the capture that is under way has got, or None."""

    def __init__(self) -> None:
        self.launches = 0
        self.tape: list[tuple[Any, Any, Any, list[torch.Tensor | None]]] | None = None

    def done(self, func: Any, own: Any, named: Any, found: Any) -> None:
        read = {_memory(one) for one in tree_iter((own, named)) if isinstance(one, torch.Tensor)}
        made = [one for one in tree_iter(found) if isinstance(one, torch.Tensor)]
        fresh = [one for one in made if _memory(one) not in read]
        writes = func._schema.is_mutable
        if self.tape is not None and (fresh or writes):
            new = {id(one) for one in fresh}
            self.tape.append((func, own, named, [one if id(one) in new else None for one in made]))
        self.launches += bool(writes or any(one.numel() for one in fresh))


stream = Stream()


class Recorder:
    """Graphs of this device: `capture.Capturer`."""

    def warmed(self, work: Callable[[], torch.Tensor]) -> torch.Tensor:
        return work()

    def pinned(self, size: int) -> torch.Tensor:
        return torch.empty(size, dtype=torch.uint8, device="cpu")

    def capture(self, work: Callable[[], torch.Tensor]) -> tuple[Callable[[], None], torch.Tensor]:
        launches = stream.launches
        stream.tape = tape = list[Any]()
        try:
            made = work()
        finally:
            stream.tape, stream.launches = None, launches
        for *_, places in tape:
            for place in places:
                if place is not None and place.is_floating_point():
                    place.fill_(torch.nan)  # nothing has been computed yet

        return partial(_again, tape), made


@torch.no_grad()
def _again(tape: list[Any]) -> None:
    """Each operation once more, its results where they were put when it was captured."""
    for func, own, named, places in tape:
        found = [one for one in tree_iter(func(*own, **named)) if isinstance(one, torch.Tensor)]
        for place, one in zip(places, found, strict=True):
            if place is not None:
                place.copy_(one)
    stream.launches += 1


class _Making(TorchDispatchMode):
    """Tensors that are made on the device: torch's own way, an empty one that is resized, is not that of a wrapper."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented if Lazy in types else _computed(func, args, kwargs or {})


@contextmanager
def at_hand() -> Iterator[torch.device]:
    """Within, tensors can be made on the device and moved to it."""
    found = device()
    with _Making():
        yield found
