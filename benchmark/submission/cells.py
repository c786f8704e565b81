"""A row by itself: its key, its names and parameters, its text, and figures that can be."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone

from ...datasets import DATASETS
from ...methods import METHODS
from ...metrics import Column
from ...registry import UserError
from ..store.provenance import canonical, code_version, known_commits
from ..store.schema import RULES, Row
from ..store.versions import Versions
from ..suites.cell import Cell
from ..suites.suite import settled
from .inbox import RERUN
from .limits import LARGE

COMMIT = "commit the code, then run the cells again with --rerun all"
FIXES = {"git_sha": COMMIT}  # of columns that another run alone does not mend
Problem = tuple[str, str]  # what is wrong, and the fix


def problems(row: Row) -> Iterator[Problem]:
    """All that is wrong with a row by itself."""
    yield from _columns(row)
    yield from _date(row)
    yield from _figures(row)
    yield from _checkout(row)
    try:
        cell = Cell.of(row)
    except ValueError as error:
        yield f"its columns name no cell: {str(error).splitlines()[0]}", RERUN
        return
    if cell.key != row.key:
        yield f"key {row.key} is not that of its cell, which is {cell.key}", RERUN
    else:
        yield from _names(row, cell)


def stale(row: Row, versions: Versions) -> bool:
    """Whether the row was made by other source code of its method than there is here."""
    try:
        return versions.stale(row, METHODS.cls(row.method))
    except UserError:
        return False


def _columns(row: Row) -> Iterator[Problem]:
    """Every value has the form, the length and the range that its column asks for."""
    for name, rule in RULES.items():
        value = getattr(row, name)
        if isinstance(value, str):
            yield from _text(name, value, rule)
        elif isinstance(value, int | float) and not rule.least <= value < LARGE:
            yield f"column {name!r}: {value!r} is out of range", RERUN


def _text(name: str, value: str, rule: Column) -> Iterator[Problem]:
    if len(value) > rule.longest:
        yield f"column {name!r} has {len(value)} characters; at most {rule.longest} are read", "shorten it"
    if not value.isprintable():
        yield f"column {name!r} holds control or invisible characters", "remove them"
    if rule.pattern and not re.fullmatch(rule.pattern, value):
        yield f"column {name!r}: {value!r:.80} is not of the form {rule.pattern}", FIXES.get(name, RERUN)
    if rule.json and value and not _canonical(value):
        yield f"column {name!r} is not canonical JSON", RERUN


def _canonical(text: str) -> bool:
    try:
        return canonical(json.loads(text)) == text
    except (ValueError, RecursionError):
        return False


def _date(row: Row) -> Iterator[Problem]:
    try:
        started = datetime.strptime(row.started, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
        if started > datetime.now(timezone.utc) + timedelta(days=1):
            yield f"started in the future ({row.started})", "set the clock and run the cell again"
    except ValueError:
        yield f"column 'started': {row.started!r:.40} is no date", RERUN


def _figures(row: Row) -> Iterator[Problem]:
    """Figures there are where the cell went well, and only there; rounds and bytes are in order."""
    needed = [name for name, rule in RULES.items() if rule.needed and row.has(name)]
    missing = [name for name in needed if getattr(row, name) in (None, "")]
    if row.status != "ok":
        wrong = {f"a score although the cell is {row.status}": row.score is not None}
        wrong[f"no error although the cell is {row.status}"] = not row.error
    elif missing:
        wrong = {f"status ok without {', '.join(missing)}": True}
    else:
        wrong = {"status ok with an error": bool(row.error)}
        wrong[f"best round {row.best_round} of {row.rounds}"] = not row.in_time
        for way in ("upload", "download"):
            best, total = getattr(row, f"{way}_bytes_best"), getattr(row, f"{way}_bytes")
            wrong[f"more bytes to the best round ({best}) than in all ({total}), {way}"] = best > total
    yield from ((what, RERUN) for what, found in wrong.items() if found)


def _checkout(row: Row) -> Iterator[Problem]:
    """What code made the row must be known and public: a commit, or an installed package with the code that is here."""
    if row.git_dirty:
        yield "made from a checkout with uncommitted changes (git_dirty)", COMMIT
    elif row.git_dirty is not None:
        if not row.git_sha:
            yield "column 'git_sha': '' is not of the form [0-9a-f]{40}", COMMIT
    elif row.git_sha or not row.code:
        yield "not made from a git checkout (git_dirty is empty)", f"`pip install -e .` in a clone; {COMMIT}"
    elif row.code != code_version():
        what = f"made by an installed package whose code is {row.code}; here it is {code_version()}"
        yield what, "validate with the version of fglbench that made it, or run the cells again with this one"
    about = json.loads(row.origin) if row.origin and _canonical(row.origin) else {}
    if not isinstance(about, dict):
        yield f"column 'origin': {row.origin!r:.80} is no JSON object", RERUN
    elif about.get("dirty"):
        yield "the method comes from a repository with uncommitted changes (origin)", COMMIT


def unknown_commits(rows: Iterable[Row]) -> set[str] | None:
    """The commits of rows that this repository does not have; None where that cannot be looked up (no checkout)."""
    wanted = {row.git_sha for row in rows if re.fullmatch("[0-9a-f]{40}", row.git_sha)}
    known = known_commits(wanted) if wanted else set()
    return None if known is None else wanted - known


def _names(row: Row, cell: Cell) -> Iterator[Problem]:
    """Every name is known, every parameter is there with a value that it may have."""
    try:
        made = settled(cell)
    except UserError as error:
        yield str(error), "give --plugin FILE for a method or dataset outside the package, or run the cell again"
        return
    if made.key != cell.key:
        ours, theirs = made.identity, cell.identity
        parts = [name for name in ours if ours[name] != theirs[name]]
        yield f"its {', '.join(parts)} is not as this version fills in the parameters", "run the cell again"
    cls = DATASETS.cls(row.dataset)
    if row.task != cls.task:
        yield f"task {row.task!r}, but {row.dataset} is a {cls.task} dataset", RERUN
    if row.status == "ok" and row.synthetic != cls.synthetic:
        yield f"synthetic is {row.synthetic}, but for {row.dataset} it is {cls.synthetic}", RERUN
