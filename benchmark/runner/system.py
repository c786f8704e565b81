"""Functions of the operating system for a run: memory, child processes, signals, how a worker ended, GPUs."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from ...processes import MARK, OF_TERMINALS

if TYPE_CHECKING:
    import torch

    from ...registry import UserError


def reset_peak_memory() -> None:
    """Reset the peak of resident memory, if the system can do that and allows it."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> float | None:
    """Peak resident memory in MiB, since the last successful reset or since the process started."""
    peak = _proc_number("/proc/self/status", "VmHWM:")
    if peak is not None:
        return round(peak / 1024, 1)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def oom_kills() -> int | None:
    """The number of processes that the kernel has killed for lack of memory since boot; None if unknown."""
    return _proc_number("/proc/vmstat", "oom_kill")


def _proc_number(file: str, name: str) -> int | None:
    """The number after a name in a file of Linux's /proc; None if there is none."""
    with suppress(OSError, ValueError):
        for line in Path(file).read_text().splitlines():
            if line.split()[:1] == [name]:
                return int(line.split()[1])
    return None


_SET_CHILD_SUBREAPER = 36  # option of prctl(2)
_GRACE = 5.0  # seconds to wait for a killed process


def cpu_seconds() -> float:
    """CPU seconds of this process, all threads, and of its children that have been waited for."""
    times = os.times()  # in steps of 10 ms, more than the smallest cells take: process_time is finer
    return time.process_time() + times.children_user + times.children_system


def adopt() -> None:
    """On Linux, become the parent of all descendants whose parent has ended."""
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def ended_with() -> Iterator[None]:
    """At the end of the block, kill all descendants of this process that it has started."""
    before = {child.pid for child in _descendants()}
    try:
        yield
    finally:
        end([child for child in _descendants() if child.pid not in before])


def end_descendants(pid: int | None = None) -> None:
    """Kill all descendants of a process (None: this one)."""
    end(_descendants(pid))


def end_marked(mark: str) -> None:
    """Kill all processes with a mark in their environment, with any parent."""
    end([process for process in psutil.process_iter() if _mark_of(process) == mark])


def end(processes: list[psutil.Process]) -> None:
    """Kill processes and wait until they are gone."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, _GRACE)


def _descendants(pid: int | None = None) -> list[psutil.Process]:
    with suppress(psutil.Error):
        return list(psutil.Process(pid).children(recursive=True))
    return []


def _mark_of(process: psutil.Process) -> str | None:
    with suppress(psutil.Error, OSError):
        return process.environ().get(MARK)
    return None


ENDING = [*OF_TERMINALS, signal.SIGTERM]


@contextmanager
def as_interrupts() -> Iterator[None]:
    """Handle all signals in `ENDING` as Ctrl-C: workers end, finished rows are kept. Ignored signals stay ignored."""
    before = {number: signal.getsignal(number) for number in ENDING if number != signal.SIGINT}
    for number, handler in before.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def afterwards() -> Iterator[None]:
    """Handle signals that arrive during the block after it, so that a row is stored completely and all workers are
    ended. Several signals are handled as one."""
    if threading.current_thread() is not threading.main_thread():  # only the main thread handles signals
        yield
        return
    received: list[int] = []
    before = {number: handler for number in ENDING if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda number, _: received.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if received:
            signal.raise_signal(received[0])


class Ending(NamedTuple):
    """How a worker ended: the status and error of its cell's row.

    outside: it was killed from outside, as far as is known, so its cell is tried once more.
    """

    status: str
    reason: str
    outside: bool = False


FORM = re.compile(r"auto|cpu|cuda(:(0|[1-9][0-9]{0,2}))?")


def resolved(name: str, backend: str = "processes") -> str:
    """Resolve the option --device to "cpu", "cuda" (all GPUs of this machine) or "cuda:N". "auto" is CUDA if there is
    a GPU.

    On Ray, the GPUs are on the nodes and Ray assigns them, so "auto" and "cuda" are returned unchanged. UserError for
    another word, and for a device that does not exist.
    """
    if not FORM.fullmatch(name):
        raise _user_error(f"--device takes auto, cpu, cuda or cuda:N (as in cuda:0), not {name!r:.60}")
    if backend == "ray":
        if ":" in name:
            raise _user_error(f"on Ray each worker gets the GPU that Ray gives it: --device cuda, not {name}")
        return name
    if name == "cpu" or (name == "auto" and not count()):
        return "cpu"
    _check_gpu(name)
    return "cuda" if name == "auto" else name


def _check_gpu(name: str) -> None:
    """UserError unless torch can use this GPU; for "cuda" and "auto", any GPU."""
    import torch

    gpus = count()
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        fix = f"this torch ({torch.__version__}) is built without CUDA: install one with it (https://pytorch.org)"
        raise _user_error(f"--device {name}: {fix}, or take --device cpu")
    if not gpus:
        raise _user_error(f"--device {name}: torch sees no GPU here (check `nvidia-smi`); take --device cpu")
    if ":" in name and int(name.partition(":")[2]) >= gpus:
        existing = ", ".join(f"cuda:{number}" for number in range(gpus))
        raise _user_error(f"--device {name}: no such GPU, there is {existing}")


def count() -> int:
    """The number of GPUs that torch can use on this machine."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def devices(name: str) -> list[str]:
    """The devices for workers of this machine. name: a result of `resolved`."""
    return [f"cuda:{number}" for number in range(count())] if name == "cuda" else [name]


def emptiest(choices: Sequence[str], taken: Iterable[str]) -> str:
    """The device with the fewest workers, the first if several are equal. taken: the device of each worker."""
    workers = Counter(taken)
    return min(choices, key=lambda name: workers[name])


def opened(name: str) -> torch.device:
    """Return the device of a worker, ready for use. UserError if it cannot be used."""
    import torch

    if name == "cpu":
        return torch.device("cpu")
    try:
        device = torch.device("cuda", int(name.partition(":")[2] or 0))
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0][:200]
        raise _user_error(f"{name} cannot be used: {reason}") from None
    return device


def reset_peak(device: torch.device) -> None:
    """Free unused memory of a GPU and reset its peak."""
    import torch

    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak(device: torch.device) -> float | None:
    """Peak memory of tensors on a GPU in MiB since the last reset; None for the CPU."""
    import torch

    return round(torch.cuda.max_memory_allocated(device) / 2**20, 1) if device.type == "cuda" else None


def _user_error(message: str) -> UserError:
    from ...registry import UserError  # not needed by most callers of this module

    return UserError(message)
