"""The interfaces of the runner: workers (processes of this machine or actors of a cluster), their slots, the events for
an observer, and the summary.

A run with code from outside the package needs a worker with the plug-ins. A method from outside needs a worker for
itself, because it may change anything in its process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from filelock import FileLock

from ...methods import METHODS
from ...registry import UserError
from ..store import Store
from ..store.schema import Row
from ..suites.cell import Cell
from ..suites.plugins import built_in
from .plan import Item
from .process import Options
from .system import Ending


class Worker(Protocol):
    """Runs one cell at a time. `process.main` describes its messages."""

    def give(self, suite: str, cell: Cell) -> None:
        """Start a cell. Call it after READY, and after DONE of the cell before."""

    def poll(self) -> Iterable[tuple[Any, ...]]:
        """The messages since the last call. UserError for a worker that must not be used."""

    def ended(self) -> Ending | None:
        """How the worker ended, or None. Its earlier messages can still be polled."""

    def memory(self) -> int:
        """The last known resident memory in bytes."""

    def kill(self) -> None:
        """End the worker, if it has not ended, and all that it has started. The last call."""


W = TypeVar("W", bound=Worker)


class Backend(Protocol[W]):
    """A place where workers run."""

    def size(self, cells: int) -> int:
        """Return the number of workers for a number of cells, at least 1. UserError if no worker can be started."""

    def start(self, plugins: bool) -> W:
        """Start a worker, with or without the plug-ins. It may take a while until it is READY."""

    def wait(self, workers: Sequence[W], seconds: float) -> None:
        """Wait until a worker has a message or has ended, or the time is over."""

    def close(self) -> None:
        """Release all resources. All workers have been killed."""


class Needs(NamedTuple):
    """The worker that a cell needs. plugins: one that has imported the plug-ins. alone: one that runs no other cell,
    because a method may change anything in its process."""

    plugins: bool
    alone: bool


def needs(cell: Cell) -> Needs:
    """The needs of a cell. An unknown name counts as one from outside: the worker reports the error in a row."""
    try:
        return Needs(
            not all(built_in(kind, choice.name) for kind, choice in cell.choices()),
            not METHODS.is_own(METHODS.cls(cell.method.name)),
        )
    except UserError:
        return Needs(True, True)


@dataclass
class Assignment:
    """The cell that a worker runs, and the claim on it. round: the last reported round."""

    item: Item
    claim: FileLock
    started: str  # UTC
    since: float  # monotonic seconds
    round: int = 0

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.since


@dataclass
class Slot:
    """A place for a worker, and the state of its worker. plugins: it has imported them. used: it has had a cell. spent:
    it gets no more cells. ready: it has sent READY. stamp: columns of its rows. stillborn: the number of workers that
    were killed here before they were ready."""

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
        """Whether the worker may run a cell with these needs."""
        return self.plugins == needs.plugins and not (needs.alone and self.used)


class Observer:
    """Receives the events of a run, in the calling process; for example the progress display of the command line.

    begun: all items that will run (`item.suite`, `item.cell`). started, finished: for each item; `row` is its row,
    `elsewhere` is true if another run made it. round: after each scored round of an item, with its figures ("val",
    "score", "train_loss", "upload_bytes", "download_bytes", ...). ended always follows begun.
    """

    def begun(self, items: Sequence[Item]) -> None: ...
    def started(self, item: Item) -> None: ...
    def round(self, item: Item, number: int, figures: dict[str, Any]) -> None: ...
    def finished(self, item: Item, row: Row, *, elsewhere: bool) -> None: ...
    def ended(self) -> None: ...


@dataclass
class Summary:
    """The result of a run: the rows by suite and cell key."""

    rows: dict[tuple[str, str], Row] = field(default_factory=dict)

    def counts(self) -> Counter[str]:
        return Counter(row.status for row in self.rows.values())

    @property
    def ok(self) -> bool:
        return all(row.status in ("ok", "skipped") for row in self.rows.values())


def prepare(items: Sequence[Item], store: Store, options: Options) -> None:
    """Check the options and prepare the results folder before anything runs. UserError for wrong options or folder."""
    options.check()
    store.prepare(item.suite for item in items)
