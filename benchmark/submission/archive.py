"""Zip files from outside: unpacked within limits, and never to a place outside the folder."""

from __future__ import annotations

import re
import stat
import zipfile
import zlib
from pathlib import Path

from ...registry import UserError
from ..store.plainarrays import METHODS
from .limits import ARCHIVE_BYTES, FILES, MIB, TOTAL_BYTES

PART = re.compile(r"[A-Za-z0-9_+][A-Za-z0-9_.+-]*")  # of a path: no '..', no hidden file, no drive, no backslash
CHUNK = 1 << 16


def unpack(path: Path, folder: Path) -> None:
    """Unpack the archive at `path` into an empty folder.

    Raises UserError (one line) for anything but plain files under plain relative names, for encryption, for names that
    occur twice, and for more than the limits, whatever sizes the archive itself states.
    """
    try:
        if path.stat().st_size > ARCHIVE_BYTES:
            raise UserError(f"{path}: larger than {ARCHIVE_BYTES // MIB} MiB")
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
            if len(members) > FILES:
                raise UserError(f"{path}: {len(members)} files; at most {FILES} are read")
            left = TOTAL_BYTES
            for member in members:
                if not member.is_dir():
                    left -= _extract(path, archive, member, folder, left)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a sound zip file: {error}") from None


def _extract(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo, folder: Path, left: int) -> int:
    """Write one file, at most `left` bytes of it; returns its size."""
    name = member.filename
    if not all(PART.fullmatch(part) for part in name.split("/")):
        raise UserError(f"{path}: {name!r:.120} is no plain relative path; pack with `fglbench submit`")
    kind = stat.S_IFMT(member.external_attr >> 16)
    if kind not in (0, stat.S_IFREG):
        raise UserError(f"{path}: {name!r:.120} is a link or a device, not a file; pack with `fglbench submit`")
    if member.flag_bits & 1:
        raise UserError(f"{path}: {name!r:.120} is encrypted; pack with `fglbench submit`")
    if member.compress_type not in METHODS:
        raise UserError(f"{path}: {name!r:.120} is packed in an unusual way; pack with `fglbench submit`")
    target = folder / name
    if target.exists():
        raise UserError(f"{path}: {name!r:.120} occurs twice; pack with `fglbench submit`")
    target.parent.mkdir(parents=True, exist_ok=True)
    size = 0
    with archive.open(member) as source, target.open("xb") as sink:
        while chunk := source.read(CHUNK):
            size += len(chunk)
            if size > left:
                raise UserError(f"{path}: more than {TOTAL_BYTES // MIB} MiB unpacked; this is no set of result rows")
            sink.write(chunk)
    return size


def pack(folder: Path, path: Path) -> None:
    """All files of a folder as a zip file; the same files give the same bytes."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in sorted(folder.rglob("*")):
            if file.is_file():
                member = zipfile.ZipInfo(file.relative_to(folder).as_posix(), (1980, 1, 1, 0, 0, 0))
                member.external_attr = (stat.S_IFREG | 0o644) << 16
                archive.writestr(member, file.read_bytes(), zipfile.ZIP_DEFLATED)
