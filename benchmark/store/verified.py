"""`results/verified.csv`: the rows that the maintainers ran again, and whether the results were the same.

Only maintainers write it (`fglbench verify --record`); a submission that changes it is refused.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ...files import write_atomically, writing
from ...registry import UserError
from .row_file import record

FILE = "verified.csv"


class Verified(BaseModel):
    """One row that was run again. The order of fields is the order of columns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    suite: str
    key: str
    method: str
    method_version: str = Field(description="of the row, and of the code that ran it again")
    score: float = Field(ge=0, description="the score of the row")
    ours: float | None = Field(None, ge=0, description="the score of the repetition; empty if it has none")
    bar: float = Field(ge=0, description="the largest difference that passes")
    verdict: Literal["passed", "failed"]
    date: str = Field(description="UTC, ISO 8601, seconds")
    git_sha: str = Field(description="commit that ran it again")
    environment: str = Field(description="hash of results/environments/<hash>.json: machine and package versions")
    by: str = Field(description="who ran it again")

    def concerns(self, score: float) -> bool:
        """Whether the verdict is about the row with this score, and not about a superseded row of the same key."""
        return abs(self.score - score) < 1e-12


COLUMNS = list(Verified.model_fields)


def read(results: Path) -> list[Verified]:
    """The verdicts of a results folder, oldest first. UserError (file:line) for an invalid line."""
    path = results / FILE
    if not path.is_file():
        return []
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            lines = list(csv.reader(stream))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UserError(f"{path}: cannot be read: {reason}; take the file from version control") from None
    if not lines or lines[0] != COLUMNS:
        raise UserError(f"{path}:1: the columns are not {', '.join(COLUMNS)}; take the file from version control")
    verdicts = []
    for number, fields in enumerate(lines[1:], start=2):
        try:
            values = {name: value for name, value in zip(COLUMNS, fields, strict=True) if value != ""}
            verdicts.append(Verified.model_validate(values))
        except ValueError as error:
            reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
            raise UserError(f"{path}:{number}: {reason}; take the file from version control") from None
    return verdicts


def add(results: Path, new: Iterable[Verified]) -> None:
    """Append verdicts. UserError as for `read`, and if the folder cannot be written."""
    lines = [record(COLUMNS), *(record(each.model_dump().values()) for each in [*read(results), *new])]
    with writing(results / FILE):
        write_atomically(results / FILE, b"".join(lines))
