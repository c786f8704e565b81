"""A device that every machine has, for tests: its tensors are of the host, and behave as those of a GPU do.

They have a device of their own, "pretend:0". An operation on them and on tensors of the host raises, as CUDA's does,
and so does `numpy()`. What is computed is computed on the host, so that numbers can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
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
    own, named = tree_map_only(Far, lambda one: one.near, (args, kwargs))
    if asked is not None:
        named["device"] = torch.device("cpu")
    found = func(*own, **named)
    same = {id(one.near): one for one in far}  # an in-place function returns its target

    def told(one: torch.Tensor) -> torch.Tensor:
        return same[id(one)] if id(one) in same and there else Far(one) if there else one

    return tree_map_only(torch.Tensor, told, found)


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
