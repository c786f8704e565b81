"""Check a result row by itself: the form of its columns, its status, its code, its key, its names and parameters."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from operator import attrgetter

from ...datasets.own_data import OWN
from ...methods import METHODS
from ...registry import UserError
from ..store.provenance import canonical
from ..store.schema import FORMULA, RULES, Row
from ..suites.cell import Cell
from .read import LARGE, RERUN, Settings

COMMIT = "commit the code, then run again with --rerun all"
NEEDED = [name for name, rule in RULES.items() if rule.needed]
Problem = tuple[str, str]  # what is wrong, and the fix


def problems(row: Row, settings: Settings | None = None) -> Iterator[Problem]:
    """Everything that is wrong with a row by itself. settings: shared with the rows of its other seeds."""
    for (name, rule), value in zip(RULES.items(), _values(row), strict=True):
        if isinstance(value, str):
            yield from _text(name, value)
        elif value is not None and not rule.least <= value < LARGE:
            yield f"column {name!r}: {value!r} is out of range", RERUN
    yield from _status(row)
    yield from _checkout(row)
    settings = settings or Settings(row)
    try:
        cell = settings.at(row.seed)
    except ValueError as error:
        yield f"its columns name no experiment: {str(error).splitlines()[0]}", RERUN
        return
    if cell.key != row.key:
        yield f"key {row.key} is not that of its experiment, which is {cell.key}", RERUN
    elif row.dataset.startswith(OWN):
        yield f"{row.dataset} is the user's data, no registered dataset", "leave its rows out: no one else has it"
    elif row.method in METHODS.names():
        try:
            yield from _names(row, cell, settings)
        except UserError as error:
            yield str(error), "run it again with a name that this version knows"


_values = attrgetter(*RULES)


@lru_cache(maxsize=100_000)  # most texts stand in many rows
def _text(name: str, value: str) -> tuple[Problem, ...]:
    rule, problems = RULES[name], list[Problem]()
    if len(value) > rule.longest:
        problems.append((f"column {name!r} has {len(value)} characters; at most {rule.longest} are read", "shorten it"))
    if value.startswith(FORMULA):
        problems.append((f"column {name!r}: {value!r:.40} begins as a formula of a spreadsheet does", RERUN))
    if not value.isprintable():
        problems.append((f"column {name!r} holds control or invisible characters", "remove them"))
    if rule.pattern and not re.fullmatch(rule.pattern, value):
        fix = COMMIT if name == "git_sha" else RERUN
        problems.append((f"column {name!r}: {value!r:.80} is not of the form {rule.pattern}", fix))
    if rule.json and value and not _canonical(value):
        problems.append((f"column {name!r} is not canonical JSON", RERUN))
    return tuple(problems)


def _canonical(text: str) -> bool:
    try:
        return canonical(json.loads(text)) == text
    except (ValueError, RecursionError):
        return False


def _status(row: Row) -> Iterator[Problem]:
    """A row with status ok has all figures, another one has an error and no score."""
    missing = [name for name in NEEDED if getattr(row, name) in (None, "")]
    if row.status != "ok":
        if row.score is not None:
            yield f"a score although the run is {row.status}", RERUN
        if not row.error:
            yield f"no error although the run is {row.status}", RERUN
    elif missing:
        yield f"status ok without {', '.join(missing)}", RERUN
    else:
        if row.error:
            yield "status ok with an error", RERUN
        if not row.in_time:
            yield f"best round {row.best_round} of {row.rounds}", RERUN
        if not (row.train_seconds or 0) <= (row.total_seconds or 0):
            yield f"trained for {row.train_seconds:g} seconds in all of {row.total_seconds:g}", RERUN


def _checkout(row: Row) -> Iterator[Problem]:
    """The code that made the row is known: a commit without changes, or an installed package."""
    if row.git_dirty:
        yield "made from a checkout with uncommitted changes (git_dirty)", COMMIT
    elif (row.git_dirty is None) == bool(row.git_sha) or not (row.git_sha.strip("0") or row.code):
        yield "neither a commit nor the code of an installed package is named (git_sha, git_dirty, code)", COMMIT


def _names(row: Row, cell: Cell, settings: Settings) -> Iterator[Problem]:
    """Names are known and parameters complete. UserError for unknown names."""
    made = settings.settled
    if made.seedless != cell.seedless:
        parts = [name for name in made.identity if name != "seed" and made.identity[name] != cell.identity[name]]
        yield f"its {', '.join(parts)} is not as this version fills in the parameters", "run it again"
        return
    if row.task != cell.task:
        yield f"task {row.task!r}, but {row.dataset} under split {row.split} is for {cell.task!r}", RERUN
