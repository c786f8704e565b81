"""Write files completely or not at all, also if the process crashes.

An unfinished file is called `.*.tmp` and is next to the file that it replaces. On POSIX its writer holds a lock on it,
which the system releases when the writer ends: `sweep` removes files without a lock.
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

LEFT = re.compile(r"\..+\.tmp")  # names of unfinished files


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """Yield a stream that becomes the file at `path`; nothing changes if the body raises.

    Readers see the old or the new content, never a mixture, also after a crash or a power cut. Raises OSError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = _create_unfinished(path)
    locked = os.dup(handle) if fcntl else None  # keeps the lock until the file has its final name
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
        if locked is not None:
            os.close(locked)
    _sync_folder(path.parent)


def _create_unfinished(path: Path) -> tuple[int, str]:
    """Return (handle, name) of a new locked file next to `path`; try again if a sweep removed it before the lock."""
    while True:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        if fcntl:
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.path.lexists(temporary):
            return handle, temporary
        os.close(handle)


def sweep(folder: Path) -> None:
    """Remove unfinished files without a living writer from a folder and its subfolders."""
    for path in (Path(place, name) for place, _, names in os.walk(folder) for name in names if LEFT.fullmatch(name)):
        with suppress(OSError):  # already removed, locked, no permission, or (Windows) open
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
    """Replace the content of a file by `data`, as `replacing` does."""
    with replacing(path) as stream:
        stream.write(data)


@contextmanager
def writing(path: Path, fix: str = "") -> Iterator[None]:
    """Turn errors of the operating system into a UserError of one line. fix: its end, as "; use --out FILE"."""
    try:
        yield
    except OSError as error:
        raise UserError(f"cannot write {str(path)!r}: {error.strerror or error}{fix}") from None


def append_bytes(path: Path, data: bytes) -> None:
    """Append all of `data` or nothing, and write it to disk. Raises OSError."""
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
    """Return the cache folder, which need not exist: FGLBENCH_CACHE, or the platform's user cache."""
    return named_folder("FGLBENCH_CACHE") or Path(platformdirs.user_cache_dir("fglbench"))


def named_folder(variable: str) -> Path | None:
    """Return the folder in an environment variable; None if the variable is empty. UserError for an unknown home."""
    value = os.environ.get(variable)
    try:
        return Path(value).expanduser() if value else None
    except RuntimeError:
        raise UserError(f"{variable}: {value!r:.200} names no user of this machine; give a whole path") from None
