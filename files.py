"""Write files completely or not at all, also if the process crashes.

Unfinished files are called `.*.tmp` and are next to the file that they replace. Where there are such locks
(POSIX), a writer holds one on its unfinished file, which ends with the writer: `sweep` removes files without a lock.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import platformdirs

from .registry import UserError

try:
    import fcntl
except ImportError:  # Windows, where an open file cannot be removed
    fcntl = None  # type: ignore[assignment]

LEFT = re.compile(r"\..+\.tmp|\.[0-9a-f]{16}\.json\.gz\.\w+|.+\.npz\.\d+\.part")  # the latter two by older versions


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content is the file at `path` in the end; nothing changes if the body raises.

    A reader, a crash or a power cut sees the old content or the new one, nothing else. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = _unfinished(path)
    held = os.dup(handle) if fcntl else None  # the lock lasts until the file has its name
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    finally:
        if held is not None:
            os.close(held)
    _sync_folder(path.parent)


def _unfinished(path: Path) -> tuple[int, str]:
    """(handle, name) of a new file beside `path`, locked: one that a sweep got hold of first is given up."""
    while True:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        if fcntl:
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.lexists(temporary):
            return handle, temporary
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove what dead writers left unfinished in a folder and below it; what a living one holds stays."""
    for path in (Path(place, name) for place, _, names in os.walk(folder) for name in names if LEFT.fullmatch(name)):
        with suppress(OSError):  # gone meanwhile, not ours, or (Windows) open
            if fcntl is None:
                path.unlink()
                continue
            handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
            finally:
                os.close(handle)


def write_atomically(path: Path, data: bytes) -> None:
    """Make `data` the content of a file, as `replacing`."""
    with replacing(path) as stream:
        stream.write(data)


def append(path: Path, data: bytes) -> None:
    """Append all of `data` or nothing, and force it to disk. Raises OSError."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        size = os.fstat(handle).st_size
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        except OSError:
            os.ftruncate(handle, size)
            raise
    finally:
        os.close(handle)
    if not size:
        _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def cache_dir() -> Path:
    """The cache folder: FGLBENCH_CACHE, or the platform's user cache. It need not exist."""
    return named_folder("FGLBENCH_CACHE") or Path(platformdirs.user_cache_dir("fglbench"))


def named_folder(variable: str) -> Path | None:
    """The folder that an environment variable names, None where it names none; UserError for an unknown home."""
    value = os.environ.get(variable)
    try:
        return Path(value).expanduser() if value else None
    except RuntimeError:
        raise UserError(f"{variable}: {value!r:.200} names no user of this machine; give a whole path") from None
