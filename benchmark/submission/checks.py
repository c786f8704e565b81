"""All checks of a results folder, a submission or an archive of one: the same for users and for a pull request."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ...registry import UserError
from ..store import Store, versions
from ..store.provenance import schema_at
from ..store.schema import SCHEMA_VERSION, TRIAL
from . import before as bases, cells, claims, copies, federations as data, owners, rendered, sidefiles
from .archive import unpack
from .inbox import Findings, Folder, Line, grouped, holds_trials, look, read, standing
from .sides import Side, read as read_sides


@dataclass(frozen=True)
class Validation:
    """What was looked at and what was found. fresh: the rows that a base has not; all, where there is none."""

    folder: Folder
    lines: list[Line]
    fresh: set[Line]
    findings: Findings

    @property
    def ok(self) -> bool:
        return not self.findings.errors


@contextmanager
def opened(path: Path) -> Iterator[tuple[Path, bool]]:
    """(folder, whether it came as an archive) of a path; UserError where there is neither folder nor sound zip file."""
    if path.is_dir():
        yield path, False
    elif path.is_file():
        with tempfile.TemporaryDirectory() as folder:
            unpack(path, Path(folder))
            yield Path(folder), True
    else:
        raise UserError(f"nothing at {str(path)!r}; give a results folder, a submission folder or a zip file")


def validate(
    root: Path, name: str, base: str | None = None, *, archive: bool = False, maintainer: bool = False
) -> Validation:
    """Check the folder at `root`, called `name` in messages.

    base: a folder of results or a commit. A results folder is held against it row by row: nothing of it may have
    changed. A submission brings new rows only, and their data are held against it. Problems of rows that the base has
    are warnings. maintainer: whoever asks is one of the maintainers, who may supersede rows and write verdicts. Raises
    UserError for a base that cannot be had; whatever is wrong with the folder is a finding.
    """
    findings = Findings()
    folder = look(root, name, findings, archive=archive, submission=_known(root, base))
    lines, results = read(folder, findings), Path("results") if folder.submission else root
    if not folder.files.get("rows"):
        findings.add(name, "no result rows", "give a results folder, or pack a submission with `fglbench submit`")
    fresh, known, beside = set(lines), list[Line](), dict[Line, Side]()
    if base is not None:
        with bases.opened(base, results) as before:
            known = bases.rows_of(before)
            if folder.submission:
                beside = read_sides(Store(before), standing(known).values()).found
            else:
                fresh = bases.compare(folder, lines, before, findings, maintainer=maintainer)
                bases.metadata_of_strangers(folder, fresh, findings, maintainer=maintainer)
        bases.moved([line for line in lines if line in fresh], known, findings)
        owners.check(fresh, known, findings, maintainer=maintainer)
    owners.names(fresh, known, findings)
    _rows(lines, fresh, findings)
    claimed = fresh if folder.submission or base is not None else set()
    _commits(lines, claimed, findings)
    _older(claimed, findings)
    _stale(lines, claimed, versions.read(results), findings)
    claims.check(_scores(folder, lines, findings), claimed, findings)
    data.check(lines, fresh, claimed, known, findings)
    copies.check(beside | sidefiles.check(folder, lines, fresh, findings).found, fresh, claimed, findings)
    rendered.check(folder, lines, findings)
    copies.figures(lines, claimed, findings)
    for line, what in copies.mixed(lines, claimed):
        findings.add(line.place, what, "`fglbench verify` runs it again before any other", warning=True)
    return Validation(folder, lines, fresh, findings)


def _known(root: Path, base: str | None) -> bool | None:
    """False for trials and what the base has as results, whatever lies in them now; None where that is to be seen."""
    return False if holds_trials(root) or (base is not None and bases.knows(base, root)) else None


def _rows(lines: list[Line], fresh: set[Line], findings: Findings) -> None:
    """Every row by itself: what is wrong with it, and what is odd about a new one."""
    for line in lines:
        for what, fix in cells.problems(line.row, line.kin):
            findings.add(line.place, what, fix, warning=line not in fresh)
    for line in lines:
        for what, fix in cells.oddities(line.row) if line in fresh else ():
            findings.add(line.place, what, fix, warning=True)


def _scores(folder: Folder, lines: list[Line], findings: Findings) -> list[Line]:
    """Lines that are no trials of `fglbench tune`; trials are in a folder of their own."""
    if folder.trials:
        return []
    scores = [line for line in lines if line.row.tuning != TRIAL]
    if scores or folder.submission:
        for line in lines:
            if line.row.tuning == TRIAL:
                findings.add(line.place, "a trial of `fglbench tune`, not a score of its suite", "leave it out")
    return scores


def _commits(lines: list[Line], fresh: set[Line], findings: Findings) -> None:
    """The code of a row can be looked up: an error where a new one's cannot, a warning for those that stand."""
    unknown = cells.unknown_commits(line.row for line in lines)
    if unknown is None:
        what = "whether the commits of rows exist was not checked: this fglbench is no git checkout"
        findings.add(lines[0].place if lines else "", what, "validate in a clone", warning=True)
    lost = (line for line in lines if line.row.git_sha in (unknown or ()))
    for (new, sha), own in grouped(lost, lambda line: (line in fresh, line.row.git_sha)).items():
        what = f"{len(own)} rows were made at commit {sha[:12]}, which this repository does not have"
        fix = "fetch the branch that they were made on, or run the cells again at a commit that is there"
        findings.add(own[0].place, what, fix, warning=not new)


def _older(claimed: set[Line], findings: Findings) -> None:
    """A row has all columns that the code of its commit writes: an older schema would leave out what a run took."""
    for (sha, schema), own in grouped(claimed, lambda line: (line.row.git_sha, line.row.schema_version)).items():
        written = schema_at(sha) if sha else SCHEMA_VERSION
        if written is not None and schema < written:
            first = min(own, key=lambda line: (line.file, line.number))
            what = f"{len(own)} rows in result schema {schema}, but the code at their commit writes {written}"
            findings.add(first.place, what, "run the cells again")


def _stale(lines: list[Line], claimed: set[Line], known: versions.Versions, findings: Findings) -> None:
    for line in claimed:
        if what := cells.foreign(line.row):
            findings.add(line.place, what, "validate with the --plugin that made it, or run the cells again")
    stale = (line for line in lines if cells.stale(line.row, known))
    for method, own in grouped(stale, lambda line: line.row.method).items():
        what = f"{len(own)} rows of {method} were made by other source code of the method than there is here"
        fix = "run them again with --rerun stale, or validate with the code that made them"
        findings.add(own[0].place, what, fix, warning=True)
