"""Arrays in NumPy's own format from outside: numbers and texts alone, read by what their heads say.

Nothing is executed. `numpy.load` takes more: other kinds, and whatever a damaged head makes of it.
"""

from __future__ import annotations

import io
import math
import tokenize
import zipfile
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

HEAD = 4096  # bytes within which an array says what it is
READERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
NO_HEAD = (TypeError, KeyError, EOFError, OverflowError, RecursionError, SyntaxError, tokenize.TokenError)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # what NumPy writes
SUFFIX = ".npy"


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


def read(data: bytes) -> NDArray[Any]:
    """An array that cannot be written to. ValueError (one line) for anything else than numbers or text, all there."""
    stream = io.BytesIO(data)
    found = head(stream)
    if found.dtype.kind not in "Uif" or (found.turned and len(found.shape) > 1):
        raise ValueError(f"an array of the kind {found.dtype.str!r:.20}")
    if min(found.shape, default=0) < 0 or found.size != len(data) - stream.tell():
        raise ValueError(f"an array of shape {found.shape!s:.60} in {len(data)} bytes")
    array: NDArray[Any] = np.ndarray(found.shape, found.dtype, data, stream.tell())
    return array


def archived(content: bytes, most: int) -> dict[str, NDArray[Any]]:
    """The arrays of an archive by their names. ValueError (one line) for anything else, or more than `most` bytes."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = archive.infolist()
        if sum(member.file_size for member in members) > most:
            raise ValueError(f"more than {most >> 20} MiB unpacked")
        for member in members:
            if member.compress_type not in METHODS or not member.filename.endswith(SUFFIX):
                raise ValueError(f"{member.filename!r:.60} is no array")
        return {member.filename.removesuffix(SUFFIX): read(archive.read(member)) for member in members}
