"""The device that a run computes on: where its tensors come into being, what stays on the host, seconds of sections.

A method is written as for a CPU. While a run is `on` another device,

- a tensor that is made (`torch.zeros`, `torch.tensor`, `torch.from_numpy`, ...) is made there, unless `device=` says
  otherwise;
- what is drawn from a generator of the host is drawn on the host, bitwise identical to a run on a CPU, and moved;
- `tensor.numpy()` reads back, for what NumPy, SciPy and scikit-learn do on the host.

The `backward` of a Function of one's own is called by torch, which does not tell of tensors made there: it says
`device=`, or makes them like others (`new_zeros`, `zeros_like`). Graphs (DGL), sparse matrices as SciPy has them and
the clients' data as loaded stay on the host. Other operands on two devices are an error of torch.
"""

from __future__ import annotations

import ctypes
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ContextDecorator, contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .gpu_kernels import GPU
from .kernels import CPU, Kernels, using

HOST = torch.device("cpu")
_here = HOST


def here() -> torch.device:
    """The device of the run; the host's outside of a run, and in what is `on_host`."""
    return _here


def placed(value: torch.Tensor) -> torch.Tensor:
    """The tensor on the device of the run."""
    return value.to(_here)


def _sent(value: torch.Tensor) -> torch.Tensor:
    """A tensor of the host on the device of the run, without waiting for what the device still has to do."""
    return value.pin_memory().to(_here, non_blocking=True) if _here.type == "cuda" else value.to(_here)


class on_host(ContextDecorator):
    """What is done within, or by a decorated function, is done on the host: graphs are built, initial weights drawn."""

    def __enter__(self) -> None:
        global _here
        self._before, _here = _here, HOST

    def __exit__(self, *exc: object) -> None:
        global _here
        _here = self._before

    def _recreate_cm(self) -> on_host:
        return on_host()


@contextmanager
def on(device: torch.device) -> Iterator[None]:
    """A run on a device; on the CPU nothing is different from what it is outside."""
    global _here
    if device.type == "cpu":
        yield
        return
    before = _here
    # Gradients are computed in the thread that asks for them: Functions in Python would take turns with a second one.
    one_thread = torch.autograd.set_multithreading_enabled(False)
    with using(kernels_of(device)), _cuda(device), _from_numpy_placed(), one_thread, _Placing():
        _here = device
        try:
            yield
        finally:
            _here = before


def kernels_of(device: torch.device) -> Kernels:
    """Return the kernels that compute on a device."""
    return CPU if device.type == "cpu" else GPU


def settle() -> None:
    """Wait until the device has done what it was given, so that a clock tells the truth."""
    if _here.type == "cuda":
        torch.cuda.synchronize(_here)


def _cuda(device: torch.device) -> AbstractContextManager[Any]:
    return _repeatable(device) if device.type == "cuda" else nullcontext()


@contextmanager
def _from_numpy_placed() -> Iterator[None]:
    """torch.from_numpy is the one maker of tensors that torch does not let a function mode see."""
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
    """Use deterministic CUDA kernels where they exist."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch_utils: Any = torch.utils.deterministic  # its attribute is made by hand, out of mypy's sight
    filled = torch_utils.fill_uninitialized_memory
    try:
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch_utils.fill_uninitialized_memory = False
        with torch.cuda.device(device):
            yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch_utils.fill_uninitialized_memory = filled


# -- what is done instead of a call, while a run is on a device ------------------------------------------------------

Call = Callable[..., Any]


def _made(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A new tensor on the device; drawn from the host's generator it is drawn there, and moved."""
    generator = kwargs.get("generator")
    if kwargs.get("device") is not None:
        return func(*args, **kwargs)
    if generator is not None and generator.device.type == "cpu":
        return _sent(func(*args, **kwargs, device=HOST))
    return func(*args, **{**kwargs, "device": _here})


def _filled(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A tensor filled in place with draws."""
    tensor, generator = args[0], kwargs.get("generator")
    if generator is None or tensor.device.type == generator.device.type:
        return func(*args, **kwargs)
    drawn = func(torch.empty(tensor.shape, dtype=tensor.dtype, device=HOST), *args[1:], **kwargs)
    return tensor.copy_(drawn)


def _read(func: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(args[0].cpu(), *args[1:], **kwargs)


@cache
def _instead() -> dict[Any, Callable[[Call, tuple[Any, ...], dict[str, Any]], Any]]:
    """By function. Made when a run needs it: commands that compute nothing do without torch."""
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
        instead = None if _here.type == "cpu" else _instead().get(func)
        if instead is None:
            return func(*args, **(kwargs or {}))
        return instead(func, args, kwargs or {})


_TRIM_THRESHOLD, _MMAP_MAX = -1, -4  # parameters of mallopt(3)


@cache
def _glibc() -> Any:
    """The C library, or None where it is another (musl, macOS, Windows)."""
    return ctypes.CDLL(None) if platform.libc_ver()[0] == "glibc" else None


@cache
def keep_freed() -> bool:
    """Tell glibc to serve every block from its heap and to keep 1 GiB of free heap; True where it took it.

    Its defaults hand large blocks back to the system at each free and map them anew: a page fault every 4 KiB of fresh
    gradients, which made the input product of a Cora round three times as slow. A higher threshold is no way out: 32
    MiB, its maximum, are 131,072 rows of 64 floats.
    """
    libc = _glibc()
    return libc is not None and bool(libc.mallopt(_MMAP_MAX, 0)) and bool(libc.mallopt(_TRIM_THRESHOLD, 2**30))


def give_back() -> None:
    """Give all free pages of the heap back to the system: between large computations whose blocks differ in size."""
    if _glibc() is not None:
        _glibc().malloc_trim(0)


_active: dict[str, float] | None = None
_stack: list[list[float]] = []  # of each open section its start, and the seconds of those nested in it


class section(ContextDecorator):
    """`with section("dense"):` adds the block's own wall seconds, nested sections excluded, to the measurement.

    `@section("dense")` does so for every call of a function.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        if _active is not None:
            settle()
            _stack.append([time.perf_counter(), 0.0])

    def __exit__(self, *exc: object) -> None:
        if _active is not None and _stack:
            settle()
            start, inner = _stack.pop()
            elapsed = time.perf_counter() - start
            _active[self.name] += elapsed - inner
            if _stack:
                _stack[-1][1] += elapsed


@contextmanager
def measure() -> Iterator[dict[str, float]]:
    """Collect the seconds of every section that runs inside the block; yields the growing table."""
    global _active
    table: dict[str, float] = defaultdict(float)
    _active, before = table, _active
    try:
        yield table
    finally:
        _active = before
        _stack.clear()
