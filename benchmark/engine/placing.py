"""Run on a device: where the tensors of a run are created.

A method is written as for a CPU. While a run is `on` another device,

- a new tensor (`torch.zeros`, `torch.tensor`, `torch.from_numpy`, ...) is created there, unless `device=` is given;
- draws from a generator of the host are made on the host, bitwise identical to a run on a CPU, and moved;
- `tensor.numpy()` copies to the host, for NumPy, SciPy and scikit-learn.

Inside the `backward` of a custom `Function` torch does not call the function mode that does this: give `device=` there,
or use `new_zeros` and `zeros_like`. Graphs (DGL), SciPy matrices and the clients' data as loaded stay on the host.
Otherwise operands on two devices are an error of torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .device import HOST, compute_on, here
from .gpu_kernels import GPU
from .kernels import using


@contextmanager
def on(device: torch.device) -> Iterator[None]:
    """Compute on a device within the block; the CPU changes nothing."""
    if device.type == "cpu":
        yield
        return
    before = here()
    # Gradients are computed in the calling thread: Functions in Python would compete with a second thread.
    one_thread = torch.autograd.set_multithreading_enabled(False)
    repeatable = _repeatable(device) if device.type == "cuda" else nullcontext()
    with using(GPU), repeatable, _from_numpy_placed(), one_thread, _Placing():
        compute_on(device)
        try:
            yield
        finally:
            compute_on(before)


def _sent(value: torch.Tensor) -> torch.Tensor:
    """Move a tensor from the host to the device of the run, without waiting for the device."""
    return value.pin_memory().to(here(), non_blocking=True) if here().type == "cuda" else value.to(here())


@contextmanager
def _from_numpy_placed() -> Iterator[None]:
    """Replace torch.from_numpy, the only function that creates tensors without calling a function mode."""
    plain = torch.from_numpy

    def from_numpy(ndarray: Any) -> torch.Tensor:
        return _sent(plain(ndarray))

    torch.from_numpy = from_numpy
    try:
        yield
    finally:
        torch.from_numpy = plain


@contextmanager
def _repeatable(device: torch.device) -> Iterator[None]:
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch_utils: Any = torch.utils.deterministic  # mypy does not know its attribute
    filled = torch_utils.fill_uninitialized_memory
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch_utils.fill_uninitialized_memory = False
        with torch.cuda.device(device):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch_utils.fill_uninitialized_memory = filled


Call = Callable[..., Any]


def _made(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    generator = kwargs.get("generator")
    if kwargs.get("device") is not None:
        return func(*args, **kwargs)
    if generator is not None and generator.device.type == "cpu":
        return _sent(func(*args, **kwargs, device=HOST))
    return func(*args, **{**kwargs, "device": here()})


def _filled(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A tensor filled in place with draws; with a generator of the host, drawn on the host and copied."""
    tensor, generator = args[0], kwargs.get("generator")
    if generator is None or tensor.device.type == generator.device.type:
        return func(*args, **kwargs)
    drawn = func(torch.empty(tensor.shape, dtype=tensor.dtype, device=HOST), *args[1:], **kwargs)
    return tensor.copy_(drawn)


def _read(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(args[0].cpu(), *args[1:], **kwargs)


@cache
def _instead() -> dict[Any, Callable[[Call, tuple[Any, ...], dict[str, Any]], Any]]:
    """The replacement of each function. Built at first use: commands that compute nothing need no torch."""
    made = (
        torch.empty, torch.empty_permuted, torch.empty_strided, torch.zeros, torch.ones, torch.full, torch.eye,
        torch.arange, torch.range, torch.linspace, torch.logspace, torch.tensor, torch.as_tensor, torch.asarray,
        torch.scalar_tensor, torch.rand, torch.randn, torch.randint, torch.randperm, torch.tril_indices,
        torch.triu_indices, torch.sparse_coo_tensor, torch.sparse_compressed_tensor, torch.sparse_csr_tensor,
        torch.sparse_csc_tensor, torch.sparse_bsr_tensor, torch.sparse_bsc_tensor, torch.nested.nested_tensor,
        torch.hann_window, torch.hamming_window, torch.bartlett_window, torch.blackman_window, torch.kaiser_window,
        torch.fft.fftfreq, torch.fft.rfftfreq,
    )  # fmt: skip
    filled = (
        torch.Tensor.uniform_, torch.Tensor.normal_, torch.Tensor.bernoulli_, torch.Tensor.exponential_,
        torch.Tensor.random_, torch.Tensor.geometric_, torch.Tensor.cauchy_, torch.Tensor.log_normal_,
    )  # fmt: skip
    read: tuple[Any, ...] = (torch.Tensor.numpy, torch.Tensor.__array__)
    return dict.fromkeys(made, _made) | dict.fromkeys(filled, _filled) | dict.fromkeys(read, _read)


class _Placing(TorchFunctionMode):
    def __torch_function__(self, func: Call, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        instead = None if here().type == "cpu" else _instead().get(func)
        if instead is None:
            return func(*args, **(kwargs or {}))
        return instead(func, args, kwargs or {})
