"""A row by itself: its key, its names and parameters, its text, and figures that can be."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

from ...datasets import DATASETS
from ...methods import METHODS
from ...registry import UserError
from ..store.provenance import canonical
from ..store.schema import Row
from ..store.versions import Versions
from ..suites.cell import PARTS, Cell
from ..suites.suite import make_cell
from .limits import TEXT, TEXTS

RERUN = "rows are never edited: run the cell again"
FORMS = {  # of columns that are no free text
    "key": r"[0-9a-f]{16}",
    "suite": r"[A-Za-z0-9_+][\w.+-]*",
    "method_version": r"[0-9a-f]{12}",
    "environment": r"[0-9a-f]{12}",
    "dataset_fingerprint": r"([0-9a-f]{64})?",
    "partition_hash": r"([0-9a-f]{64})?",
    "git_sha": r"[0-9a-f]{40}",
    "device": r"cpu|cuda(:\d+)?",
    "started": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ",
}
NEEDED = (  # by a row with status ok
    "score", "score_metric", "best_round", "rounds", "upload_bytes", "download_bytes", "upload_bytes_best",
    "download_bytes_best", "train_seconds", "total_seconds", "dataset_fingerprint", "partition_hash",
)  # fmt: skip
Problem = tuple[str, str]  # what is wrong, and the fix


def problems(row: Row) -> Iterator[Problem]:
    """All that is wrong with a row by itself."""
    yield from _texts(row)
    yield from _forms(row)
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


def _texts(row: Row) -> Iterator[Problem]:
    for column, value in row:
        if isinstance(value, str):
            most = TEXTS.get(column, TEXT)
            if len(value) > most:
                yield f"column {column!r} has {len(value)} characters; at most {most} are read", "shorten it"
            if not value.isprintable():
                yield f"column {column!r} holds control or invisible characters", "remove them"


def _forms(row: Row) -> Iterator[Problem]:
    for column, form in FORMS.items():
        value = getattr(row, column)
        if not re.fullmatch(form, value) and column != "git_sha":
            yield f"column {column!r}: {value!r:.80} is not of the form {form}", RERUN
    for column in [*(f"{part}_params" for part in PARTS), "training"]:
        try:
            sound = canonical(json.loads(getattr(row, column))) == getattr(row, column)
        except (ValueError, RecursionError):
            sound = False
        if not sound:
            yield f"column {column!r} is not canonical JSON", RERUN
    try:
        started = datetime.strptime(row.started, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)
        if started > datetime.now(timezone.utc) + timedelta(days=1):
            yield f"started in the future ({row.started})", "set the clock and run the cell again"
    except ValueError:
        yield f"column 'started': {row.started!r:.40} is no date", RERUN


def _figures(row: Row) -> Iterator[Problem]:
    for column, value in row:
        if isinstance(value, int | float) and not isinstance(value, bool) and not 0 <= value < math.inf:
            yield f"column {column!r}: {value!r} is out of range", RERUN
    if row.clients < 1:
        yield f"column 'clients': {row.clients} is out of range", RERUN
    if row.status != "ok":
        if row.score is not None:
            yield f"a score although the cell is {row.status}", RERUN
        if not row.error:
            yield f"no error although the cell is {row.status}", RERUN
        return
    missing = [column for column in NEEDED if getattr(row, column) in (None, "")]
    if missing:
        yield f"status ok without {', '.join(missing)}", RERUN
        return
    if row.error:
        yield "status ok with an error", RERUN
    if not 1 <= (row.best_round or 0) <= (row.rounds or 0):
        yield f"best round {row.best_round} of {row.rounds}", RERUN
    for way in ("upload", "download"):
        best, total = getattr(row, f"{way}_bytes_best"), getattr(row, f"{way}_bytes")
        if best > total:
            yield f"more bytes to the best round ({best}) than in all ({total}), {way}", RERUN


def _checkout(row: Row) -> Iterator[Problem]:
    """What code made the row must be known and public."""
    commit = "commit the code, then run the cells again with --rerun all"
    if row.git_dirty:
        yield "made from a checkout with uncommitted changes (git_dirty)", commit
    elif row.git_dirty is None:
        yield "not made from a git checkout (git_dirty is empty)", f"`pip install -e .` in a clone; {commit}"
    if not re.fullmatch(FORMS["git_sha"], row.git_sha):
        yield f"column 'git_sha': {row.git_sha!r:.60} is no commit", commit


def _names(row: Row, cell: Cell) -> Iterator[Problem]:
    """Every name is known, every parameter is there with a value that it may have."""
    try:
        where = cell.dataset, cell.partition, cell.clients, cell.split
        made = make_cell(*where, cell.backbones, cell.method, cell.seed, cell.training)
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
