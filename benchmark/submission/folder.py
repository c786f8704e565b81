"""Which files a folder of results holds, and which it may not."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from . import metadata
from .findings import Findings
from .limits import (
    CURVES_BYTES,
    EMBEDDINGS_BYTES,
    ENVIRONMENT_BYTES,
    FILES,
    METADATA_BYTES,
    MIB,
    PAGE_BYTES,
    ROWS_BYTES,
    TOTAL_BYTES,
)

NAME = r"[A-Za-z0-9_+][\w.+-]*"
IGNORED = {".locks", ".logs"}  # of a results folder in use; not under version control
KINDS: dict[str, tuple[str, int]] = {  # kind -> pattern of the path, most bytes; the first that fits
    "curves": (rf"{NAME}/history/[0-9a-f]{{16}}\.json\.gz", CURVES_BYTES),
    "environment": (r"environments/[0-9a-f]{12}\.json", ENVIRONMENT_BYTES),
    "metadata": (re.escape(metadata.FILE), METADATA_BYTES),
    "rows": (rf"(?!environments/|{metadata.FOLDER}/){NAME}/{NAME}\.csv", ROWS_BYTES),
}
# What a results folder has besides: made by the report, or kept by the maintainers.
MORE: dict[str, tuple[str, int]] = {
    "metadata": (rf"{metadata.FOLDER}/{NAME}\.yaml", METADATA_BYTES),
    "embeddings": (rf"{NAME}/embeddings/[0-9a-f]{{16}}\.npz", EMBEDDINGS_BYTES),
    "verified": (r"verified\.csv", ROWS_BYTES),
    "versions": (r"versions\.csv", ROWS_BYTES),
    "report": (rf"({NAME}/){{0,2}}{NAME}\.(md|html|png|svg)|{NAME}/tables/{NAME}\.csv", PAGE_BYTES),
    "manifest": (rf"({NAME}/)?figures/manifest\.json", ENVIRONMENT_BYTES),
    "damaged": (rf"{NAME}/{NAME}\.csv\.damaged", ROWS_BYTES),
}


@dataclass(frozen=True)
class Folder:
    """A folder of results, looked through. name: what messages call it. files: kind -> paths below the root."""

    root: Path
    name: str
    submission: bool
    files: dict[str, tuple[str, ...]]

    def place(self, path: str, number: int | None = None) -> str:
        return f"{self.name}/{path}" + (f":{number}" if number is not None else "")


def look(root: Path, name: str, findings: Findings, *, archive: bool = False) -> Folder:
    """Every file of a folder by its kind; symbolic links, unknown and oversized files are findings, and left out.

    A folder with a metadata file at its root is a submission, as is whatever came as an archive.
    """
    submission = archive or (root / metadata.FILE).is_file()
    known = {kind: (re.compile(pattern), most) for kind, (pattern, most) in _kinds(submission)}
    files: dict[str, list[str]] = {}
    number = total = 0
    for entry in _walk(root, ignored=set() if submission else IGNORED):
        path = Path(entry.path).relative_to(root).as_posix()
        place = f"{name}/{path}"
        number += 1
        if number > FILES:
            findings.add(name, f"more than {FILES} files", "submit rows and their side files only")
            break
        if entry.is_symlink() or not entry.is_file(follow_symlinks=False):
            findings.add(place, "a link or device, not a file", "replace it by the file itself")
            continue
        kind = next((kind for kind, (pattern, _) in known.items() if pattern.fullmatch(path)), None)
        size = entry.stat(follow_symlinks=False).st_size
        if kind is None:
            findings.add(place, "unknown file", "remove it; `fglbench submit` packs what belongs here")
        elif size > known[kind][1]:
            findings.add(place, f"{size} bytes; at most {known[kind][1]} are read", "submit fewer or smaller files")
        else:
            files.setdefault(kind, []).append(path)
            total += size
    if submission and total > TOTAL_BYTES:
        findings.add(name, f"{total} bytes; at most {TOTAL_BYTES // MIB} MiB are read", "submit fewer files")
    return Folder(root, name, submission, {kind: tuple(sorted(paths)) for kind, paths in files.items()})


def _kinds(submission: bool) -> list[tuple[str, tuple[str, int]]]:
    if submission:
        return list(KINDS.items())
    own = {kind: value for kind, value in KINDS.items() if kind != "metadata"}
    return list((own | MORE).items())


def _walk(root: Path, ignored: set[str]) -> Iterator[os.DirEntry[str]]:
    """Everything below a folder that is not a folder itself; links are not followed. `ignored`: folders at the root."""
    waiting = [str(root)]
    while waiting:  # no recursion: a folder from outside may be of any depth
        with os.scandir(waiting.pop()) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
        folders = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
        waiting += [e.path for e in reversed(folders) if e.name not in ignored or Path(e.path).parent != root]
        yield from (entry for entry in found if entry not in folders)
