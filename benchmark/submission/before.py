"""What was there before a change: no row of it is changed or removed, no side file, no verdict of the maintainers."""

from __future__ import annotations

import io
import os
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

import numpy as np

from ...registry import UserError
from ..store import Store
from ..store.places import APART, safe_name
from ..store.provenance import canonical, git_output
from ..store.schema import Row
from . import metadata
from .inbox import Findings, Folder, Line, grouped, look, read, standing
from .owners import MAINTAINERS

NEVER = "rows are never edited or removed: take the file of the base and append to it"
THEIRS = {  # files of the maintainers, and how they come about
    "verified.csv": "with `fglbench verify --record`",
    "versions.csv": "with its proof",
    "FINDINGS.md": "by hand",
}
REMOVED, BASE = "removed", "side files stay: take the file of the base"
CHANGED, ROWLESS = "changed, but its cell has no new row", "new, and no new row has it"
NOISE = 0.005  # of a score, where a single seed tells nothing


@contextmanager
def opened(base: str, path: Path) -> Iterator[Path]:
    """The folder that `base` means: one on disk, or what `path` was at a commit of the repository around it.

    Raises UserError when it is neither.
    """
    if Path(base).is_dir():
        yield Path(base)
        return
    with tempfile.TemporaryDirectory() as folder:
        if not (Path(base).name == APART and Path(base).parent.is_dir()):  # a results folder without trials
            _checkout(base, path, Path(folder))
        yield Path(folder)


def _checkout(commit: str, path: Path, folder: Path) -> None:
    """The files below `path` as they were at a commit, below `folder`; none when it was not there then."""
    if not path.is_dir():
        raise UserError(f"no folder {str(path)!r} in which to look up --base {commit!r}; give the folder itself")
    if (sha := _sha(commit, path)) is None:
        raise UserError(f"--base {commit!r} is no folder, and no commit of a git repository around {str(path)!r}")
    top = git_output("rev-parse", "--show-toplevel", folder=path) or b""
    root = Path(os.fsdecode(top.strip()))
    for place in (path.absolute(), *path.absolute().parents):
        if place.is_symlink() and place.parent.resolve().is_relative_to(root.resolve()):
            raise UserError(f"{str(place)!r} is a link, of which --base {commit!r} has nothing; give the folder itself")
    inside = path.resolve().relative_to(root.resolve()).as_posix()
    if git_output("rev-parse", "--verify", "-q", f"{sha}:{'' if inside == '.' else inside}", folder=path) is None:
        return  # it was not there then
    packed = git_output("archive", "--format=zip", "-0", sha, folder=path)  # of this folder only
    if packed is None:
        raise UserError(f"git cannot pack {str(path)!r} as it was at {sha[:12]}; give a folder as --base")
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        archive.extractall(folder)


def knows(base: str, path: Path) -> bool:
    """Whether `base` is a commit that has results at `path`, which nobody makes a submission of."""
    commit = None if Path(base).is_dir() else _sha(base, path)
    names = git_output("ls-tree", "--name-only", commit, "./", folder=path) if commit else None
    return bool(names) and metadata.FILE.encode() not in (names or b"").split(b"\n")


def _sha(commit: str, folder: Path) -> str | None:
    """The commit of that name in the repository around a folder; None where there is none."""
    found = git_output("rev-parse", "--verify", "-q", "--end-of-options", f"{commit}^{{commit}}", folder=folder)
    return found.decode().strip() if found else None


def rows_of(root: Path) -> list[Line]:
    """The sound rows of a base folder; what is wrong in it was settled when it came in."""
    nothing = Findings()
    return read(look(root, str(root), nothing), nothing)


def compare(
    folder: Folder, lines: Sequence[Line], base: Path, findings: Findings, *, maintainer: bool = False
) -> set[Line]:
    """The lines that a changed results folder has and its base has not; findings for whatever else differs."""
    old, new = (grouped(each, lambda line: line.file) for each in (rows_of(base), lines))
    fresh: set[Line] = set()
    for file in sorted(old.keys() | new.keys()):
        fresh |= _appended(folder, file, old.get(file, []), new.get(file, []), findings)
    if (base / APART).is_dir() and not (folder.root / APART).is_dir():
        findings.add(folder.place(APART), "all trials of the tuned boards were removed", NEVER)
    _side_files(folder, base, {(line.row.suite, line.row.key) for line in fresh}, findings, maintainer=maintainer)
    _added(folder, base, fresh, findings, maintainer=maintainer)
    return fresh


def _appended(folder: Folder, file: str, old: list[Line], new: list[Line], findings: Findings) -> set[Line]:
    """The lines of `new` that are not in `old`; findings for old lines that are gone, changed or in another order."""
    left, kept, fresh = Counter(line.text for line in old), list[bytes](), set[Line]()
    for line in new:
        if left[line.text]:
            left[line.text] -= 1
            kept.append(line.text)
        else:
            fresh.add(line)  # an old line that stands there once more is new, for it may supersede another
    replaced = {line.row.key: line for line in fresh}
    lost = [line for line in old if left[line.text]]
    for line in lost:
        other = replaced.get(line.row.key)
        if other is None:
            what = f"the row of {_named(line.row)} (key {line.row.key}, line {line.number} of the base) was removed"
            findings.add(folder.place(file), what, NEVER)
        else:
            what = f"the row of {_named(line.row)} was changed: {_changes(line.row, other.row)}"
            findings.add(other.place, what, NEVER)
    if not lost and kept != [line.text for line in old]:
        findings.add(folder.place(file), "rows of the base stand in another order", NEVER)
    return fresh


def _side_files(
    folder: Folder, base: Path, renewed: set[tuple[str, str]], findings: Findings, *, maintainer: bool
) -> None:
    """Side files of the base stay, curves of a cell with a new row excepted; what is the maintainers' is theirs."""
    before = look(base, str(base), Findings())
    here = {path for paths in folder.files.values() for path in paths}
    _curves(folder, before, renewed, findings, maintainer=maintainer)
    for kind in ("environment", "metadata", "embeddings"):
        for path in before.files.get(kind, ()):
            theirs = maintainer and kind == "metadata"
            own = (PurePosixPath(path).parts[0], PurePosixPath(path).name.split(".")[0])
            if path not in here:
                findings.add(folder.place(path), REMOVED, BASE)
            elif own not in renewed and _content(folder.root / path) != _content(base / path):
                what = CHANGED if kind == "embeddings" else "changed"
                findings.add(folder.place(path), what, BASE, warning=theirs)
    for file, how in THEIRS.items():
        if _content(folder.root / file) != _content(base / file):
            fix = f"take the file of the base: the maintainers alone write it, {how}"
            findings.add(folder.place(file), "changed", fix, warning=maintainer)
    for kind, what in (("page", "a page of the report"), ("damaged", "lines that a crash left unreadable")):
        for path in set(folder.files.get(kind, ())) - set(before.files.get(kind, ())):
            findings.add(folder.place(path), f"{what}, which is no part of the results", "remove it")
    for path in folder.files.get("temporary", ()):
        findings.add(
            folder.place(path), "a file that was never finished", "keep it out of version control", warning=True
        )


def _curves(
    folder: Folder, before: Folder, renewed: set[tuple[str, str]], findings: Findings, *, maintainer: bool
) -> None:
    """The curves of the base are here as they were, in whichever file; only the maintainers put them into columns."""
    same = {
        path for path in folder.files.get("columns", ()) if _content(folder.root / path) == _content(before.root / path)
    }
    for own, path in before.curves.items():
        file = folder.curves.get(own)
        if file is None:
            findings.add(folder.place(path), REMOVED if path.endswith(".gz") else f"{own[1]} was removed", BASE)
        elif (
            own not in renewed
            and not (file == path and file in same)
            and _curves_of(folder, file, own, path) != _curves_of(before, path, own, file)
        ):
            findings.add(folder.place(file), CHANGED, BASE)
    for path in sorted({*folder.files.get("columns", ()), *before.files.get("columns", ())} - same):
        fix = "leave the curves of new rows as they are: the maintainers put them into columns, with `fglbench pack`"
        findings.add(folder.place(path), "changed", fix, warning=maintainer)


def _curves_of(folder: Folder, file: str, own: tuple[str, str], other: str) -> bytes:
    """The curves of (suite, key) as text, by which those in another file can be told from them. A row's own file that
    stays where it is is taken as it is, and so is one that cannot be read."""
    if file != other or file.endswith(".npz"):
        with suppress(OSError, EOFError, ValueError, zlib.error):
            return canonical(folder.store.history(*own) or {}).encode()
    return (folder.root / file).read_bytes()


def _added(folder: Folder, base: Path, fresh: set[Line], findings: Findings, *, maintainer: bool) -> None:
    """What lies beside rows comes with rows: nobody adds to those that stand."""
    old = look(base, str(base), Findings())
    keys = {(line.row.suite, line.row.key) for line in fresh}
    machines = {line.row.environment for line in fresh}
    with suppress(UserError):  # a table of verdicts that is none is told of as such
        machines |= {verdict.environment for verdict in Store(folder.root).verdicts()}
    methods = {safe_name(line.row.method) for line in fresh}
    for own in sorted(folder.curves.keys() - old.curves.keys() - keys):
        if folder.curves[own].endswith(".npz"):
            what = f"{own[1]} is {ROWLESS}"
            findings.add(folder.place(folder.curves[own]), what, "remove the file", warning=maintainer)
    for kind in ("curves", "environment", "metadata", "embeddings"):
        for file in sorted(set(folder.files.get(kind, ())) - set(old.files.get(kind, ()))):
            path = PurePosixPath(file)
            name = path.name.split(".")[0]
            known = {"environment": name in machines, "metadata": path.stem in methods}
            if not known.get(kind, (path.parts[0], name) in keys):
                findings.add(folder.place(file), ROWLESS, "remove the file", warning=maintainer)


def _content(path: Path) -> bytes:
    return path.read_bytes().replace(b"\r\n", b"\n") if path.is_file() else b""


def moved(fresh: Sequence[Line], before: Sequence[Line], findings: Findings) -> None:
    """Warnings for new rows of known cells whose score differs from the standing one's by more than seeds do."""
    counting = standing(before)
    seeds = grouped(counting.values(), _place)
    for line in fresh:
        known = counting.get((line.row.suite, line.row.key))
        if known is None:
            continue
        scores = [each.row.score for each in seeds.get(_place(line), ()) if each.row.score is not None]
        noise = max(float(np.std(scores, ddof=1)), 1e-6) if len(scores) > 1 else NOISE
        ours, theirs = known.row.score, line.row.score
        if (ours is None) != (theirs is None) or (ours is not None and abs(ours - (theirs or 0)) > noise):
            told = ["none" if score is None else f"{score:.4f}" for score in (ours, theirs)]
            what = f"the score of {_named(line.row)} moved from {' to '.join(told)}"
            fix = f"find out why before it supersedes the standing row (deviation over seeds: {noise:.4f})"
            findings.add(line.place, what, fix, warning=True)


def metadata_of_strangers(folder: Folder, fresh: set[Line], findings: Findings, *, maintainer: bool = False) -> None:
    """Methods with new rows have a metadata file, those of the maintainers excepted."""
    strange = (line for line in fresh if not (maintainer and line.row.submitter == MAINTAINERS))
    for method in sorted({line.row.method for line in strange}):
        first = min((line for line in fresh if line.row.method == method), key=lambda line: (line.file, line.number))
        file = f"{metadata.FOLDER}/{PurePosixPath(first.file).stem}.yaml"
        if file not in folder.files.get("metadata", ()):
            what = f"new rows of {method!r} without {file}"
            findings.add(first.place, what, "take them in with `fglbench submit` and `fglbench validate --into`")


def _place(line: Line) -> tuple[str, str]:
    return line.row.suite, line.cell.seedless if line.cell else line.row.key


def _named(row: Row) -> str:
    return f"{row.method} on {row.dataset}, seed {row.seed}"


def _changes(old: Row, new: Row) -> str:
    changed = [(name, value, getattr(new, name)) for name, value in old if value != getattr(new, name)]
    shown = ", ".join(f"{name} {before!r:.40} to {after!r:.40}" for name, before, after in changed[:3])
    return shown + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
