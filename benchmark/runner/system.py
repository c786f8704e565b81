"""What the machine does for a run: memory, child processes, signals, how a worker ended, and which GPU computes."""

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

if TYPE_CHECKING:
    import torch

    from ...registry import UserError


def reset_peak_memory() -> None:
    """Let the peak begin anew; where that is impossible or forbidden it is that of the process's whole life."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_memory() -> float | None:
    """Peak resident memory in MiB, since the last reset where the system can reset it."""
    peak = _said("/proc/self/status", "VmHWM:")
    if peak is not None:
        return round(peak / 1024, 1)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)


def oom_kills() -> int | None:
    """How many processes the kernel has killed for lack of memory since boot; None where it does not say."""
    return _said("/proc/vmstat", "oom_kill")


def _said(file: str, name: str) -> int | None:
    """The number next to a name in a file of Linux's /proc; None elsewhere."""
    with suppress(OSError, ValueError):
        for line in Path(file).read_text().splitlines():
            if line.split()[:1] == [name]:
                return int(line.split()[1])
    return None


MARK = "FGLBENCH_WORKER"  # in the environment of a worker and of all that it starts
_SET_CHILD_SUBREAPER = 36  # option of prctl(2)
_GRACE = 5.0  # seconds until a killed process is given up


def cpu_seconds() -> float:
    """Of this process, all threads, and of its children that have been waited for."""
    times = os.times()  # in ticks of 10 ms, of which the smallest cells take none: hence the finer clock for our own
    return time.process_time() + times.children_user + times.children_system


def adopt() -> None:
    """Become the parent of descendants whose own has ended, where the system can do that (Linux)."""
    if platform.system() == "Linux":
        ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@contextmanager
def ended_with() -> Iterator[None]:
    """What the block starts ends with it: descendants of this process that were not there before."""
    before = {child.pid for child in _descendants()}
    try:
        yield
    finally:
        end([child for child in _descendants() if child.pid not in before])


def end_descendants(pid: int | None = None) -> None:
    """End all that a process (None: this one) has started."""
    end(_descendants(pid))


def end_marked(mark: str) -> None:
    """End all processes with a mark in their environment, with any parent."""
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


# Ctrl-C, a terminal that is closed and Ctrl-\ reach all processes of a terminal.
OF_TERMINALS = [getattr(signal, name) for name in ("SIGINT", "SIGHUP", "SIGQUIT") if hasattr(signal, name)]
ENDING = [*OF_TERMINALS, signal.SIGTERM]


@contextmanager
def as_interrupts() -> Iterator[None]:
    """What asks a run to end stops it as Ctrl-C does: workers end, what is finished is kept. nohup stays nohup."""
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
    """A signal that Python handles and that comes during the block is handled after it: a row is stored whole, and all
    workers are ended, for any number of requests."""
    if threading.current_thread() is not threading.main_thread():  # which alone handles signals
        yield
        return
    came: list[int] = []
    before = {number: handler for number in ENDING if callable(handler := signal.getsignal(number))}
    for number in before:
        signal.signal(number, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def deaf_children() -> Iterator[None]:
    """A process that the block starts gets no signal of a terminal before it calls `ignore`."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, OF_TERMINALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore() -> None:
    """Leave signals of the terminal to the driver, as a process that was started with `deaf_children`."""
    for number in OF_TERMINALS:
        signal.signal(number, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, OF_TERMINALS)


class Ending(NamedTuple):
    """How a worker ended: the status and error of its cell's row.

    outside: it was killed, and by nothing that its cell did, as far as can be known. The cell has another try.
    """

    status: str
    reason: str
    outside: bool = False


FORM = re.compile(r"auto|cpu|cuda(:(0|[1-9][0-9]{0,2}))?")


def resolved(name: str, backend: str = "processes") -> str:
    """What a user asks for as "cpu", "cuda" (all GPUs of this machine) or "cuda:N"; "auto" is CUDA where there is one.

    On Ray the nodes have the GPUs, and which one a worker gets is Ray's to say: "auto" stays. UserError for another
    word, and for a device that is not there.
    """
    if not FORM.fullmatch(name):
        raise _mistake(f"--device takes auto, cpu, cuda or cuda:N (as in cuda:0), not {name!r:.60}")
    if backend == "ray":
        if ":" in name:
            raise _mistake(f"on Ray each worker gets the GPU that Ray gives it: --device cuda, not {name}")
        return name
    if name == "cpu" or (name == "auto" and not count()):
        return "cpu"
    _there(name)
    return "cuda" if name == "auto" else name


def _there(name: str) -> None:
    import torch

    gpus = count()
    if not torch.backends.cuda.is_built():  # type: ignore[no-untyped-call]
        told = f"this torch ({torch.__version__}) is built without CUDA: install one with it (https://pytorch.org)"
        raise _mistake(f"--device {name}: {told}, or take --device cpu")
    if not gpus:
        raise _mistake(f"--device {name}: torch sees no GPU here (`nvidia-smi` tells of the driver); take --device cpu")
    if ":" in name and int(name.partition(":")[2]) >= gpus:
        there = ", ".join(f"cuda:{number}" for number in range(gpus))
        raise _mistake(f"--device {name}: no such GPU, there is {there}")


def count() -> int:
    """How many GPUs torch can use on this machine."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def devices(name: str) -> list[str]:
    """The devices that workers of this machine compute on. name: as `resolved` says."""
    return [f"cuda:{number}" for number in range(count())] if name == "cuda" else [name]


def emptiest(choices: Sequence[str], taken: Iterable[str]) -> str:
    """The device that fewest workers have, the first of several."""
    having = Counter(taken)
    return min(choices, key=lambda name: having[name])


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
        raise _mistake(f"{name} cannot be used: {reason}") from None
    return device


def reset_peak(device: torch.device) -> None:
    """Reset the peak of a device's memory after freeing what is not needed."""
    import torch

    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def peak(device: torch.device) -> float | None:
    """Most MiB of a device's memory that tensors took since the last reset; None of the CPU."""
    import torch

    return round(torch.cuda.max_memory_allocated(device) / 2**20, 1) if device.type == "cuda" else None


def _mistake(told: str) -> UserError:
    from ...registry import UserError

    return UserError(told)
