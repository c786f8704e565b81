"""Keep freed memory in the process: fresh gradients of megabytes each epoch otherwise cost a page fault every 4 KiB."""

from __future__ import annotations

import ctypes
import platform
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # parameters of mallopt(3)


@cache
def keep_freed_memory() -> bool:
    """Tell glibc to serve blocks of up to 32 MiB from its heap and to keep 1 GiB of free heap; True where it took it.

    Its defaults hand such blocks back to the system at each free and map them anew, which made the input product of a
    Cora round three times as slow. Elsewhere (musl, macOS, Windows) nothing happens.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(_MMAP_THRESHOLD, 32 * 2**20)) and bool(mallopt(_TRIM_THRESHOLD, 2**30))
