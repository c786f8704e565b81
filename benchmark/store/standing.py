"""The columns of a row that say how far a suite is: what `fglbench status` reads of each."""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel

from .schema import Row, cut_off


class Standing(BaseModel):
    """A row without what tells nothing of progress. No other column is checked."""

    key: str
    suite: str
    dataset: str
    method: str
    method_version: str
    training: str
    seed: int
    status: str
    error: str = ""
    val: float | None = None
    best_round: int | None = None
    rounds: int | None = None
    git_sha: str = ""

    @property
    def rising(self) -> bool:
        """See `cut_off`."""
        return cut_off(self.rounds, self.best_round, self.val, self.training)


AnyRow = TypeVar("AnyRow", Row, Standing)
