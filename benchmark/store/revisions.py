"""Revisions of methods: which rows are outdated.

Each method has a `revision`, raised by hand when its numbers change (tests/test_golden.py fails if it is not), and the
`method_version` of a row is the revision it was made with. For a method from outside the package it also has the hash
of the source ("1+0a1b2c3d4e5f"), because no test here checks its numbers. Rows from before 0.2.0 have a hash of the
method's source instead; revisions.csv gives the revision for each of these hashes.
"""

from __future__ import annotations

import csv
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .provenance import origin
from .schema import Row

if TYPE_CHECKING:
    from ..engine.method import Method

TABLE = Path(__file__).with_name("revisions.csv")
HASH = 12  # characters of the hash in rows written before 0.2.0


def method_version(cls: type[Method]) -> str:
    """Return the version that a row made with this class has now."""
    about = origin(cls)
    source = json.loads(about).get("source") if about else None
    return f"{cls.revision}+{source}" if source else str(cls.revision)


def current_version(method: str, version: str, commit: str) -> str:
    """Return the version of a row as rows are written today: a known hash as its revision, all others as they are.

    commit: the row's `git_sha`; one early hash belongs to two revisions.
    """
    known = _table()
    return known.get((method, version, commit)) or known.get((method, version, "")) or version


def outdated(row: Row, now: str) -> bool:
    """Whether a row was made with an earlier revision of its method, or with an unknown one.

    now: the version that a row of the method has now (`method_version`).
    """
    then = current_version(row.method, row.method_version, row.git_sha)
    if "+" in now or "+" in then:
        return now != then
    return len(then) == HASH or not then.isdecimal() or int(then) < int(now)


@cache
def _table() -> dict[tuple[str, str, str], str]:
    with TABLE.open(newline="", encoding="utf-8") as file:
        return {(line["method"], line["version"], line["commit"]): line["revision"] for line in csv.DictReader(file)}
