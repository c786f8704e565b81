"""Embeddings from outside: the directory of the archive and the heads of its arrays are read, and nothing is loaded."""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path

from ..store import plainarrays
from ..store.attachments import EMBEDDINGS_BYTES

MEMBER = re.compile(r"(node|label|global|note|client_[0-9]{3})\.npy")  # see runner.snapshot
MEMBERS = 200
LENGTHS, EXTRA = 26, 20  # where a member's head says how long its name and extra field are; the latter has two sizes


def wrong(path: Path) -> str | None:
    """In what a file is not an archive of plain arrays of a run's embeddings, whatever sizes it states."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            names = [member.filename for member in members]
            if len(names) > MEMBERS or len(set(names)) != len(names) or not all(map(MEMBER.fullmatch, names)):
                return f"holds something else than embeddings: {', '.join(names[:4])!r:.80}"
            if sum(member.file_size for member in members) > EMBEDDINGS_BYTES:
                return f"more than {EMBEDDINGS_BYTES >> 20} MiB unpacked"
            if archive.comment or not _gapless(path, archive):
                return "holds bytes that are no array"
            for member in members:
                if reason := _array(archive, member):
                    return f"{member.filename}: {reason}"
    except (OSError, EOFError, ValueError, KeyError, RuntimeError, NotImplementedError, zlib.error) as error:
        return f"cannot be read: {str(error).splitlines()[0] if str(error) else type(error).__name__:.120}"
    except zipfile.BadZipFile as error:
        return f"cannot be read: {error!s:.120}"
    return None


def misplaced(path: Path) -> str | None:
    """In what a file is no archive of members one after the other, with nothing besides."""
    try:
        with zipfile.ZipFile(path) as archive:
            return None if not archive.comment and _gapless(path, archive) else "holds bytes that are no array"
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        return f"{error!s:.120}"


def _gapless(path: Path, archive: zipfile.ZipFile) -> bool:
    """Whether members stand one after the other from the first byte to the directory, without comments."""
    end = 0
    with path.open("rb") as stream:
        for member in sorted(archive.infolist(), key=lambda each: each.header_offset):
            stream.seek(member.header_offset + LENGTHS)
            name, extra = (int.from_bytes(stream.read(2), "little") for _ in range(2))
            if member.header_offset != end or member.comment or extra > EXTRA:
                return False
            end += LENGTHS + 4 + name + extra + member.compress_size
    return end == archive.start_dir


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str | None:
    """In what a member is not an array of numbers, or one text, of the size that it states."""
    if member.compress_type not in plainarrays.METHODS:
        return "packed as no array is"
    with archive.open(member) as stream:
        head = plainarrays.head(stream)
        begin = stream.tell()
    if head.dtype.kind not in ("U" if member.filename == "note.npy" else "if"):
        return f"an array of {str(head.dtype)!r:.40}, not of numbers"
    if head.size != member.file_size - begin:
        return f"an array of shape {head.shape!s:.60} in {member.file_size} bytes"
    return None
