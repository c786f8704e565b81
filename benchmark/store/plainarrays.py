"""Heads of arrays in NumPy's format, read without executing or loading anything."""

from __future__ import annotations

import math
import tokenize
import zipfile
from typing import IO, Any, NamedTuple

import numpy as np

HEAD = 4096  # bytes within which an array says what it is
READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
NO_HEAD = (TypeError, KeyError, EOFError, OverflowError, RecursionError, SyntaxError, tokenize.TokenError)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what NumPy writes


class ArrayHead(NamedTuple):
    """What an array says of itself. turned: its first axis is the one that runs fastest."""

    shape: tuple[int, ...]
    turned: bool
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """Bytes that the values take."""
        return math.prod(self.shape) * self.dtype.itemsize


def head(stream: IO[bytes]) -> ArrayHead:
    """The head of an array, behind which its values begin. ValueError (one line) for anything else."""
    try:
        version = np.lib.format.read_magic(stream)
        if version not in READERS:
            raise ValueError(f"array format {version}")
        return ArrayHead(*READERS[version](stream, max_header_size=HEAD))
    except NO_HEAD as error:
        raise ValueError(f"not the head of an array: {type(error).__name__}") from None
