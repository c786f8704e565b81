"""List the files of a results folder or a submission by kind, within limits, without opening them. Also findings."""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from ..store import Store
from ..store.provenance import canonical
from ..store.row_file import APART, COLUMN_FILE, CURVES, LOCKS, LOGS, NAME, PART, ROWS, SUBMISSIONS
from ..store.side_files import SITES

MIB = 2**20
FILES = 50_000  # limit
TOTAL_BYTES = 256 * MIB  # limit of a submission
METADATA = "submission.yaml"
SETTINGS = "tuned.yaml"  # the tuned settings of the method of a submission
SLUG = r"[a-z0-9][a-z0-9._-]*"
Kinds = dict[str, tuple[str, int]]  # kind -> (pattern of the path, limit in bytes); the first match counts
SUBMISSION: Kinds = {
    "curves": (rf"{NAME}/history/[0-9a-f]{{16}}\.json\.gz", 2 * MIB),
    "environment": (r"environments/[0-9a-f]{12}\.json", 1 << 16),
    "metadata": (re.escape(METADATA), 1 << 14),
    "settings": (re.escape(SETTINGS), 1 << 16),
    "rows": (ROWS, 16 * MIB),
}
RESULTS: Kinds = SUBMISSION | {
    "metadata": (r"(?!)", 0),  # those of submissions are in their folders
    "settings": (r"(?!)", 0),
    "columns": (rf"{NAME}/{CURVES}/{COLUMN_FILE}", 64 * MIB),
    "embeddings": (rf"{NAME}/embeddings/[0-9a-f]{{16}}\.npz", 32 * MIB),
    "verified": (r"verified\.csv", 16 * MIB),
    "findings": (r"FINDINGS\.md", 64 * MIB),
    "report": (  # made by `fglbench report`
        rf"({NAME}/)?(LEADERBOARD|REPRODUCTION)\.md|{NAME}/tables/{SLUG}\.(md|csv)"
        rf"|{NAME}/figures/({SLUG}\.png|manifest\.json)",
        64 * MIB,
    ),
    # not for version control
    "sites": (re.escape(SITES), MIB),
    "page": (rf"leaderboard\.html|site/{SLUG}\.(html|svg)", 64 * MIB),
    "lock": (rf"{re.escape(LOCKS)}/[\w.+{PART}-]+", 0),
    "log": (rf"{re.escape(LOGS)}/[\w.+-]+\.txt", MIB),
    "study": (rf"\.studies/{NAME}/[\w.+-]+", 16 * MIB),
    "temporary": (r"(.+/)?\.[^/]+\.tmp", 64 * MIB),
    "damaged": (rf"{NAME}/{NAME}\.csv\.damaged", 16 * MIB),
}
TRIALS: Kinds = RESULTS | {"tuning": (rf"{NAME}/(README\.md|tuning\.png)", 64 * MIB)}  # pages of the studies


@dataclass(frozen=True)
class Finding:
    """One problem. place: a file, or file:line. warning: the folder is still valid."""

    place: str
    what: str
    fix: str
    warning: bool = False

    def __str__(self) -> str:
        return f"{'warning: ' if self.warning else ''}{self.place}: {self.what}; {self.fix}"


@dataclass
class Findings:
    """Problems in the order of discovery, each once."""

    entries: dict[Finding, None] = field(default_factory=dict)

    def add(self, place: str, what: str, fix: str, *, warning: bool = False) -> None:
        self.entries[Finding(place, what, fix, warning)] = None

    @property
    def errors(self) -> list[Finding]:
        return [finding for finding in self.entries if not finding.warning]

    @property
    def warnings(self) -> list[Finding]:
        return [finding for finding in self.entries if finding.warning]


@dataclass(frozen=True)
class Folder:
    """A folder and its files. name: in messages. files: kind -> paths below the root."""

    root: Path
    name: str
    submission: bool
    files: dict[str, tuple[str, ...]]

    @property
    def trials(self) -> bool:
        """Whether its rows are trials of `fglbench tune`."""
        return holds_trials(self.root)

    @cached_property
    def store(self) -> Store:
        return Store(self.root)

    @cached_property
    def curves(self) -> dict[tuple[str, str], str]:
        """(suite, key) -> the file with its curves; a file of one row takes precedence over a file of columns."""
        files = dict[tuple[str, str], str]()
        for file in self.files.get("columns", ()):
            path = PurePosixPath(file)
            table = self.store.columns(path.parts[0]).files.get(path.stem)
            files |= {(path.parts[0], key): file for key in (table.keys if table else ())}
        paths = map(PurePosixPath, self.files.get("curves", ()))
        return files | {(path.parts[0], path.name.split(".")[0]): str(path) for path in paths}

    def stored(self, suite: str, key: str) -> Any:
        """The curves of a row, from its file in `curves`. OSError, EOFError, zlib.error or ValueError if damaged."""
        path = PurePosixPath(self.curves[suite, key])
        if path.suffix == ".gz":
            return self.store.history(suite, key)
        return self.store.columns(suite).files[path.stem].stored(key)

    def place(self, path: str, number: int | None = None) -> str:
        return f"{self.name}/{path}" + (f":{number}" if number is not None else "")


@dataclass(frozen=True)
class Verdict:
    """The outcome of a validation. rows: their number. new: suite -> number of rows that the base lacks (without a
    base: of all rows)."""

    folder: Folder
    rows: int
    new: Counter[str]
    findings: Findings

    @property
    def ok(self) -> bool:
        return not self.findings.errors

    def as_data(self) -> dict[str, Any]:
        """The same as JSON data."""
        errors, warnings = (list(map(str, kind)) for kind in (self.findings.errors, self.findings.warnings))
        counts = {"rows": self.rows, "new": self.new.total()}
        return {"folder": self.folder.name, "valid": self.ok, **counts, "errors": errors, "warnings": warnings}


def check_environments(folder: Folder, used: Mapping[str, str], findings: Findings) -> None:
    """Check that the file of every environment exists, and that its name is the hash of its content.

    used: hash -> place of a row.
    """
    files = {PurePosixPath(file).stem: file for file in folder.files.get("environment", ())}
    for digest, place in used.items():
        if digest not in files:
            findings.add(place, f"environments/{digest}.json is missing", "add the file of the run")
    for digest, file in files.items():
        about = folder.store.environment(digest)
        if about is None or hashlib.sha256(canonical(about).encode()).hexdigest()[:12] != digest:
            findings.add(folder.place(file), "its name is not the hash of its content", "add the file of the run")


def check_rows(folder: Folder, findings: Findings) -> None:
    """Check that there is a file of rows."""
    if not folder.files.get("rows"):
        fix = "give a results folder, or pack a submission with `fglbench submit`"
        findings.add(folder.name, "no result rows", fix)


def holds_trials(root: Path) -> bool:
    return root.resolve().name == APART


def inner(root: Path) -> list[str]:
    """The folders in a results folder that are checked separately: the trials, and each submission."""
    folders = [APART, *(f"{SUBMISSIONS}/{path.name}" for path in root.glob(f"{SUBMISSIONS}/*/"))]
    return [] if holds_trials(root) else folders


def listed(root: Path, name: str, findings: Findings, *, submission: bool | None = None) -> Folder:
    """List the files of a folder. Links, unknown files and large files are findings.

    submission: whether it is one; None: if there is a metadata file at the root. Folders of `inner` are left out.
    """
    submission = (root / METADATA).is_file() if submission is None else submission
    kinds = SUBMISSION if submission else TRIALS if holds_trials(root) else RESULTS
    skip = set() if submission else {str(root / each) for each in inner(root)}
    files: dict[str, list[str]] = {}
    unknown, total = list[str](), 0
    for number, (path, entry) in enumerate(_walk(root, skip), start=1):
        size = entry.stat(follow_symlinks=False).st_size
        kind, most = next(((kind, most) for kind, (form, most) in kinds.items() if re.fullmatch(form, path)), ("", 0))
        if number > FILES:
            findings.add(name, f"more than {FILES} files", "submit rows and their side files only")
            break
        if entry.is_dir(follow_symlinks=False):
            findings.add(f"{name}/{path}", "a folder, where a file of rows belongs", "move it away")
        elif not entry.is_file(follow_symlinks=False):
            findings.add(f"{name}/{path}", "a link or device, not a file", "replace it by the file itself")
        elif not kind:
            unknown.append(path)
        elif size > most:
            findings.add(f"{name}/{path}", f"{size} bytes; at most {most} are read", "submit fewer or smaller files")
        else:
            files.setdefault(kind, []).append(path)
            total += size
    for path in unknown if submission or holds_trials(root) or "rows" in files else ():  # else another folder
        findings.add(f"{name}/{path}", "unknown file", "remove it; `fglbench submit` packs what belongs here")
    if submission and total > TOTAL_BYTES:
        findings.add(name, f"{total} bytes; at most {TOTAL_BYTES // MIB} MiB are read", "submit fewer files")
    return Folder(root, name, submission, {kind: tuple(sorted(paths)) for kind, paths in files.items()})


def _walk(root: Path, skip: set[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """(path below the root, entry) of every file, and of folders with the name of a row file."""
    waiting, start = [str(root)], len(os.path.join(root, ""))
    while waiting:  # no recursion, because the depth is not limited
        with os.scandir(waiting.pop()) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = entry.path[start:].replace(os.sep, "/")
                folder = entry.is_dir(follow_symlinks=False)
                if folder and entry.path not in skip:
                    waiting.append(entry.path)
                if not folder or re.fullmatch(ROWS, path):
                    yield path, entry
