"""A device for tests on any machine: its tensors are on the host and behave like those of a GPU.

Their device is "pretend:0". An operation on them together with tensors of the host raises, as with CUDA, and so does
`numpy()`. The host computes all values, so that numbers can be compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import torch
from torch import library
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from fglbench.benchmark.engine.lazy import Lazy  # its operations arrive as operations on its parts

aten = torch.ops.aten
KERNELS = library.Library("aten", "IMPL")
NAME = "pretend"
# Operations that accept tensors of two devices: copies, and an index of the host on a tensor of the device.
CROSSING = (aten._to_copy.default, aten.copy_.default, aten.index.Tensor, aten.index_put_.default,
            aten.index_put.default, aten._index_put_impl_.default)  # fmt: skip


@cache
def device() -> torch.device:
    """The device, registered with torch at the first call."""
    from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

    _setup_privateuseone_for_python_backend(NAME)
    # Checkpoints ask the accelerator of the process for its types of mixed precision: none.
    getattr(torch, NAME).get_amp_supported_dtype = list
    for operator in ("empty.memory_format", "empty_strided", "copy_", "_to_copy"):
        KERNELS.impl(operator, partial(_called, getattr(aten, operator.split(".")[0])), "PrivateUse1")
    return torch.device(NAME, 0)


def _called(operator: Any, *args: Any, **kwargs: Any) -> Any:
    """A kernel that torch calls directly, as `torch.tensor` does."""
    overload = operator.memory_format if operator is aten.empty else operator.default
    return _computed(overload, args, kwargs)


class Far(torch.Tensor):
    """A tensor of the device. near: its values on the host."""

    near: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> Far:
        # torch makes wrappers of strided tensors only
        strided = near.layout == torch.strided
        layout = {"strides": near.stride(), "storage_offset": near.storage_offset()} if strided else {}
        tensor = torch.Tensor._make_wrapper_subclass(cls, near.shape, dtype=near.dtype, device=device(), **layout)
        tensor.near = near
        return tensor

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
    """An operation on the values of the tensors."""
    tensors = [tensor for tensor in tree_iter((args, kwargs)) if isinstance(tensor, torch.Tensor)]
    far = [tensor for tensor in tensors if isinstance(tensor, Far)]
    wanted = kwargs.get("device")
    if far and func not in CROSSING:
        near = [tensor for tensor in tensors if not isinstance(tensor, Far) and tensor.dim()]
        if near:
            raise RuntimeError(f"{func}: expected all tensors to be on the same device, found {NAME}:0 and cpu")
    if func in (aten.index.Tensor, aten.index_put_.default) and not isinstance(args[0], Far) and far:
        raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
    on_device = bool(far) if wanted is None else torch.device(wanted).type == NAME
    if func is aten.copy_.default:
        on_device = isinstance(args[0], Far)
    host_args, host_kwargs = tree_map_only(Far, lambda tensor: tensor.near, (args, kwargs))
    if wanted is not None:
        host_kwargs["device"] = torch.device("cpu")
    result = func(*host_args, **host_kwargs)
    same = {id(tensor.near): tensor for tensor in far}  # an in-place function returns its target

    def wrapped(tensor: torch.Tensor) -> torch.Tensor:
        return same[id(tensor)] if id(tensor) in same and on_device else Far(tensor) if on_device else tensor

    return tree_map_only(torch.Tensor, wrapped, result)


class _Making(TorchDispatchMode):
    """Creates tensors on the device; torch's way, an empty tensor that is resized, does not work for a wrapper."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented if Lazy in types else _computed(func, args, kwargs or {})


@contextmanager
def at_hand() -> Iterator[torch.device]:
    """Context in which tensors can be created on the device and moved to it."""
    pretended = device()
    with _Making():
        yield pretended
