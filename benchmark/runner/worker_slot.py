"""Worker slots of the supervisor: the worker, its task, and which runs it may get.

A run that names code from outside the package needs a worker with the plug-ins. A method from outside needs a worker
that no other run uses, because it may change anything in its process."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from filelock import FileLock

from ...methods import METHODS
from ...registry import UserError
from ..suites.cell import Cell
from ..suites.plugins import built_in
from .backend import Worker
from .plan import Item


class Needs(NamedTuple):
    """Which worker a cell is given. plugins: one that has imported the plug-ins, as no other has. alone: one that has
    run nothing before and runs nothing after, for a method may leave anything behind in its process."""

    plugins: bool
    alone: bool


def needs(cell: Cell) -> Needs:
    """What a cell needs; an unknown name counts as one from outside, and its row has the error."""
    try:
        return Needs(
            not all(built_in(kind, choice.name) for kind, choice in cell.choices()),
            not METHODS.is_own(METHODS.cls(cell.method.name)),
        )
    except UserError:
        return Needs(True, True)


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
