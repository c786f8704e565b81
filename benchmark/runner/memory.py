"""What the system says of memory: a process's peak, and kills for lack of it."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path


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
    """The number that stands beside a name in a file of Linux's /proc; None elsewhere."""
    with suppress(OSError, ValueError):
        for line in Path(file).read_text().splitlines():
            if line.split()[:1] == [name]:
                return int(line.split()[1])
    return None
