"""Places for workers, as the supervisor keeps them: who sits there, and what it has in hand."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from filelock import FileLock

from .apart import Needs
from .backend import Worker
from .plan import Item


@dataclass
class Assignment:
    """The cell that a worker runs, and the claim on it. round: the last one that the worker reported."""

    item: Item
    claim: FileLock
    started: str  # UTC
    since: float  # monotonic seconds
    round: int = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since


@dataclass
class Seat:
    """A place for a worker, and what is known of the one who has it. plugins: it has imported them; used: it has had a
    cell; spent: it gets no more; stamp: the columns of its rows, once it is ready; stillborn: workers that died here
    before they were."""

    worker: Worker
    plugins: bool = False
    used: bool = False
    spent: bool = False
    ready: bool = False
    task: Assignment | None = None
    last_federation: str = ""
    stamp: dict[str, Any] = field(default_factory=dict)
    stillborn: int = 0

    def suits(self, needs: Needs) -> bool:
        """Whether its worker may have a cell with these needs."""
        return self.plugins == needs.plugins and not (needs.alone and self.used)
