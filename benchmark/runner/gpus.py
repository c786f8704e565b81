"""Which device computes: what `--device` means on this machine, and which worker gets which GPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # a node of a cluster starts workers too, and imports neither
    import torch

    from ...registry import UserError

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
