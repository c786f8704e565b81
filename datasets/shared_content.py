"""Checked content for the workers of this machine: a file in memory that they map, so that none reads and checks again.

The file has no name. It is reached through /proc while the process that made it lives, and is gone after that.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from .content import Content

_files: list[Any] = []  # open while this process lives


def offer(content: Content) -> str:
    """Put content into a file in memory, and in its place what is mapped from there; return the file's path.

    Empty where the system has no such files, as macOS.
    """
    if not hasattr(os, "memfd_create"):
        return ""
    file = os.fdopen(os.memfd_create("content"), "w+b")
    np.lib.format.write_array(file, np.array(list(content)), allow_pickle=False)
    for array in content.values():
        np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)
    file.flush()
    _files.append(file)
    path = f"/proc/{os.getpid()}/fd/{file.fileno()}"
    content.update(mapped(path))
    return path


def mapped(path: str) -> Content:
    """Return the content of a file of `offer`; what is written to an array is seen by no other process. OSError where
    there is no such file, ValueError for another file."""
    content: Content = {}
    with open(path, "rb") as file:
        for name in np.lib.format.read_array(file, allow_pickle=False).tolist():
            np.lib.format.read_magic(file)
            shape, _, kind = np.lib.format.read_array_header_1_0(file)
            size = int(np.prod(shape)) * kind.itemsize
            array = np.memmap(path, kind, "c", file.tell(), shape) if size else np.empty(shape, kind)
            content[name] = np.asarray(array)
            file.seek(size, os.SEEK_CUR)
    return content
