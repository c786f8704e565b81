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
from ..store.places import SUBMISSIONS
from ..store.provenance import git_output
from .listing import Findings, Folder, inner
from .read import Line, grouped, read

NEVER = "rows are never edited or removed: take the file of the base and append to it"
FIX = "take the file of the base"
OTHERS = f"rows of others are filed in {SUBMISSIONS}/METHOD (`fglbench submit`); the maintainers run them again"
MADE = {"report", "lock", "log", "study", "temporary", "tuning"}  # made anew, or no part of the results


@contextmanager
def opened(base: str, path: Path) -> Iterator[Path]:
    """The folder that `base` means: one on disk, or `path` as it was at a commit of the repository around it.

    UserError if it is neither.
    """
    if Path(base).is_dir():
        yield Path(base)
        return
    with tempfile.TemporaryDirectory() as folder:
        _checkout(base, path, Path(folder))
        yield Path(folder)


def _checkout(commit: str, path: Path, folder: Path) -> None:
    """Write the files below `path` as they were at a commit to `folder`; none if it was not there then."""
    if not path.is_dir():
        raise UserError(f"no folder {str(path)!r} in which to look up --base {commit!r}; give the folder itself")
    revision = git_output("rev-parse", "--verify", "-q", "--end-of-options", f"{commit}^{{commit}}", folder=path)
    if revision is None:
        raise UserError(f"--base {commit!r} is no folder, and no commit of a git repository around {str(path)!r}")
    sha, top = revision.decode().strip(), git_output("rev-parse", "--show-toplevel", folder=path) or b""
    root = Path(os.fsdecode(top.strip())).resolve()
    for place in (path.absolute(), *path.absolute().parents):
        if place.is_symlink() and place.parent.resolve().is_relative_to(root):
            raise UserError(f"{str(place)!r} is a link, of which --base {commit!r} has nothing; give the folder itself")
    inside = path.resolve().relative_to(root).as_posix()
    if git_output("rev-parse", "--verify", "-q", f"{sha}:{'' if inside == '.' else inside}", folder=path) is None:
        return
    packed = git_output("archive", "--format=zip", "-0", sha, folder=path)  # of this folder only
    if packed is None:
        raise UserError(f"git cannot pack {str(path)!r} as it was at {sha[:12]}; give a folder as --base")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(folder)


def compare(folder: Folder, lines: Sequence[Line], root: Path, findings: Findings, *, maintainer: bool) -> set[Line]:
    """The rows that the base does not have; findings for every other difference.

    maintainer: whether rows and their side files may be added. Trials of studies and submissions may come from anyone.
    """
    nothing = Findings()  # the problems of the base were found when it came in
    before, known = read(root, str(root), nothing, submission=folder.submission)
    old, new = (grouped(each, lambda line: line.file) for each in (known, lines))
    fresh = set[Line]()
    for name in () if folder.trials else inner(root):
        if (root / name).is_dir() and not (folder.root / name).is_dir():
            findings.add(folder.place(name), "removed", FIX)
    for file in sorted(old.keys() | new.keys()):
        fresh |= _appended(folder, file, old.get(file, []), new.get(file, []), findings)
    anyone = folder.submission or folder.trials
    for line in sorted(fresh, key=lambda line: (line.file, line.number)):
        if not (maintainer or anyone):
            findings.add(line.place, "a new row, which only the maintainers add", OTHERS)
    renewed = {(line.row.suite, line.row.key) for line in fresh}
    _curves(folder, before, renewed, findings)
    _files(folder, before, findings, maintainer=maintainer or anyone)
    return fresh


def _appended(folder: Folder, file: str, old: list[Line], new: list[Line], findings: Findings) -> set[Line]:
    """The lines of `new` that are not in `old`; findings for old lines that are gone, changed or in another order."""
    left, kept, fresh = Counter(line.text for line in old), list[bytes](), set[Line]()
    for line in new:
        if left[line.text]:
            left[line.text] -= 1
            kept.append(line.text)
        else:
            fresh.add(line)  # an old line that occurs once more is new: it may supersede another
    again = {line.row.key for line in fresh}
    lost = [line for line in old if left[line.text]]
    for line in lost:
        what = (
            f"the row of {line.row.method} on {line.row.dataset}, seed {line.row.seed} (line {line.number} of the base)"
        )
        findings.add(folder.place(file), f"{what} was {'changed' if line.row.key in again else 'removed'}", NEVER)
    if not lost and kept != [line.text for line in old]:
        findings.add(folder.place(file), "rows of the base stand in another order", NEVER)
    return fresh


def _curves(folder: Folder, before: Folder, renewed: set[tuple[str, str]], findings: Findings) -> None:
    """The curves of every row of the base are as they were, in whichever file; those of a cell run again may differ."""
    same = {
        file for kind in ("columns", "curves") for file in folder.files.get(kind, ()) if _same(folder, before, file)
    }
    for run, path in before.curves.items():
        file = folder.curves.get(run)
        if file is None:
            findings.add(folder.place(path), f"the curves of {run[1]} were removed", FIX)
        elif run not in renewed and not (file == path and file in same) and _of(folder, run) != _of(before, run):
            findings.add(folder.place(file), f"the curves of {run[1]} were changed, but it has no new row", FIX)


def _of(folder: Folder, run: tuple[str, str]) -> object:
    try:
        return folder.stored(*run)
    except (OSError, EOFError, ValueError, zlib.error):
        return (folder.root / folder.curves[run]).read_bytes()


def _files(folder: Folder, before: Folder, findings: Findings, *, maintainer: bool) -> None:
    """Machines and embeddings of the base stay; other files change only by the maintainers' hands."""
    theirs = {file: kind for kind, files in before.files.items() for file in files}
    here = {file: kind for kind, files in folder.files.items() for file in files}
    for file, kind in sorted((theirs | here).items()):
        if kind in MADE or kind == "rows" or _same(folder, before, file):
            continue
        if kind == "page" or (kind == "damaged" and file not in theirs):
            findings.add(folder.place(file), "no part of the results", "remove it")
        elif file not in here and kind not in ("curves", "columns"):  # `fglbench pack` removes these
            findings.add(folder.place(file), "removed", FIX)
        elif file in theirs and kind == "environment":
            findings.add(folder.place(file), "changed", FIX)
        elif not maintainer:
            findings.add(
                folder.place(file), "changed" if file in theirs else "new", f"{FIX}: only the maintainers change it"
            )


def _same(folder: Folder, before: Folder, file: str) -> bool:
    one, other = folder.root / file, before.root / file
    if not (one.is_file() and other.is_file()):
        return False
    return one.read_bytes().replace(b"\r\n", b"\n") == other.read_bytes().replace(b"\r\n", b"\n")
