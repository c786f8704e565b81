"""What becomes of freed memory: kept for the next block of a round, or given back to the system (glibc alone)."""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from typing import Any

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
