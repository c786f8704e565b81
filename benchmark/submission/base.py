"""Compare a results folder with an earlier state: rows are only appended, side files stay, maintainers add rows."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ...registry import UserError
from ..store.provenance import git_output
from ..store.row_file import SUBMISSIONS
from .listing import Findings, Folder, inner
from .read import Line, grouped, read

NEVER = "rows are never edited or removed: take the file of the base and append to it"
FIX = "take the file of the base"
OTHERS = f"rows of others are filed in {SUBMISSIONS}/METHOD (`fglbench submit`); the maintainers run them again"
MADE = {"report", "lock", "log", "study", "temporary", "tuning"}  # generated files, or no part of the results


@contextmanager
def opened(base: str, path: Path) -> Iterator[Path]:
    """The folder `base`, or `path` at the commit `base` of its repository. UserError if it is neither."""
    if Path(base).is_dir():
        yield Path(base)
        return
    with tempfile.TemporaryDirectory() as folder:
        _checkout(base, path, Path(folder))
        yield Path(folder)


def _checkout(commit: str, path: Path, folder: Path) -> None:
    """Write the files below `path` at a commit to `folder`; none if `path` did not exist then."""
    if not path.is_dir():
        raise UserError(f"no folder {str(path)!r} in which to look up --base {commit!r}; give the folder itself")
    revision = git_output("rev-parse", "--verify", "-q", "--end-of-options", f"{commit}^{{commit}}", folder=path)
    if revision is None:
        raise UserError(f"--base {commit!r} is no folder, and no commit of a git repository around {str(path)!r}")
    sha, top = revision.decode().strip(), git_output("rev-parse", "--show-toplevel", folder=path) or b""
    root = Path(os.fsdecode(top.strip())).resolve()
    for place in (path.absolute(), *path.absolute().parents):
        if place.is_symlink() and place.parent.resolve().is_relative_to(root):
            raise UserError(
                f"{str(place)!r} is a link; --base {commit!r} does not have its files; give the folder itself"
            )
    inside = path.resolve().relative_to(root).as_posix()
    if git_output("rev-parse", "--verify", "-q", f"{sha}:{'' if inside == '.' else inside}", folder=path) is None:
        return
    packed = git_output("archive", "--format=zip", "-0", sha, folder=path)  # git archives this folder only
    if packed is None:
        raise UserError(f"git cannot pack {str(path)!r} as it was at {sha[:12]}; give a folder as --base")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(folder)


def compare(folder: Folder, lines: Sequence[Line], root: Path, findings: Findings, *, maintainer: bool) -> set[Line]:
    """The rows that the base does not have. Every other difference is a finding.

    maintainer: whether rows and side files may be added. In submissions and trials of studies this is always allowed.
    """
    ignored = Findings()  # problems of the base were found earlier
    before, known = read(root, str(root), ignored, submission=folder.submission)
    old, new = (grouped(each, lambda line: line.file) for each in (known, lines))
    fresh = set[Line]()
    for name in () if folder.trials else inner(root):
        if (root / name).is_dir() and not (folder.root / name).is_dir():
            findings.add(folder.place(name), "removed", FIX)
    for file in sorted(old.keys() | new.keys()):
        fresh |= _appended(folder, file, old.get(file, []), new.get(file, []), findings)
    may_add = maintainer or folder.submission or folder.trials
    for line in () if may_add else sorted(fresh, key=lambda line: (line.file, line.number)):
        findings.add(line.place, "a new row, which only the maintainers add", OTHERS)
    renewed = {(line.row.suite, line.row.key) for line in fresh}
    _curves(folder, before, renewed, findings)
    _files(folder, before, findings, maintainer=may_add)
    return fresh


def _appended(folder: Folder, file: str, old: list[Line], new: list[Line], findings: Findings) -> set[Line]:
    """The lines of `new` that are not in `old`; findings for old lines that are gone, changed or in another order."""
    left, kept, fresh = Counter(line.text for line in old), list[bytes](), set[Line]()
    for line in new:
        if left[line.text]:
            left[line.text] -= 1
            kept.append(line.text)
        else:
            fresh.add(line)  # a second copy of an old line is new: it may supersede another line
    fresh_keys = {line.row.key for line in fresh}
    lost = [line for line in old if left[line.text]]
    for line in lost:
        name = f"{line.row.method} on {line.row.dataset}, seed {line.row.seed} (line {line.number} of the base)"
        change = "changed" if line.row.key in fresh_keys else "removed"
        findings.add(folder.place(file), f"the row of {name} was {change}", NEVER)
    if not lost and kept != [line.text for line in old]:
        findings.add(folder.place(file), "rows of the base are in another order", NEVER)
    return fresh


def _curves(folder: Folder, before: Folder, renewed: set[tuple[str, str]], findings: Findings) -> None:
    """Check that the curves of every row of the base are unchanged, in any file, unless the cell has a new row."""
    same = {
        file for kind in ("columns", "curves") for file in folder.files.get(kind, ()) if _same(folder, before, file)
    }
    for run, path in before.curves.items():
        file = folder.curves.get(run)
        if file is None:
            findings.add(folder.place(path), f"the curves of {run[1]} were removed", FIX)
        elif run not in renewed and not (file == path and file in same) and _read(folder, run) != _read(before, run):
            findings.add(folder.place(file), f"the curves of {run[1]} were changed, but it has no new row", FIX)


def _read(folder: Folder, run: tuple[str, str]) -> object:
    """The curves of a run; the bytes of their file if it is damaged."""
    try:
        return folder.stored(*run)
    except (OSError, EOFError, ValueError, zlib.error):
        return (folder.root / folder.curves[run]).read_bytes()


def _files(folder: Folder, before: Folder, findings: Findings, *, maintainer: bool) -> None:
    """Check that no file of the base was removed, no environment changed, and other files only by maintainers."""
    old = {file: kind for kind, files in before.files.items() for file in files}
    new = {file: kind for kind, files in folder.files.items() for file in files}
    for file, kind in sorted((old | new).items()):
        if kind in MADE or kind == "rows" or _same(folder, before, file) or (kind == "page" and file not in new):
            continue
        if kind == "page" or (kind == "damaged" and file not in old):
            findings.add(folder.place(file), "no part of the results", "remove it")
        elif file not in new and kind not in ("curves", "columns"):  # `fglbench pack` removes these
            findings.add(folder.place(file), "removed", FIX)
        elif file in old and kind == "environment":
            findings.add(folder.place(file), "changed", FIX)
        elif not maintainer:
            change = "changed" if file in old else "new"
            findings.add(folder.place(file), change, f"{FIX}: only the maintainers change it")


def _same(folder: Folder, before: Folder, file: str) -> bool:
    one, other = folder.root / file, before.root / file
    if not (one.is_file() and other.is_file()):
        return False
    return one.read_bytes().replace(b"\r\n", b"\n") == other.read_bytes().replace(b"\r\n", b"\n")
