"""What a run is asked and tells: sound options, workers (processes of this machine or actors of a cluster) and their
slots, events to an observer, a summary.

A run that names code from outside the package needs a worker with the plug-ins. A method from outside needs a worker
that no other run uses, because it may change anything in its process.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar

from filelock import FileLock

from ...methods import METHODS
from ...registry import UserError, did_you_mean
from ..store import Store
from ..store.schema import FORMULA, RULES, Row
from ..suites.cell import Cell
from ..suites.plugins import built_in
from .plan import Item
from .process import Options
from .system import Ending

MOST_THREADS = 1024  # of a worker; the system refuses to start many more
LEAST = {"jobs": 1, "threads": 1, "timeout": 0, "memory_limit": 0.1}  # of options that are numbers


class Worker(Protocol):
    """Runs one cell at a time. `process.main` describes its messages."""

    def give(self, suite: str, cell: Cell) -> None:
        """Let it run a cell. Call it after READY, and after DONE of the cell before."""

    def poll(self) -> Iterable[tuple[Any, ...]]:
        """What it has said since it was last asked. UserError for a worker that must not work here."""

    def ended(self) -> Ending | None:
        """How it ended, if it has; what it said before can still be heard."""

    def memory(self) -> int:
        """Resident bytes, as last known."""

    def kill(self) -> None:
        """End it, if it has not ended, with all that it has started. It is not asked anything after this."""


W = TypeVar("W", bound=Worker)


class Backend(Protocol[W]):
    """A place where workers run."""

    def size(self, cells: int) -> int:
        """Return the number of workers to start for a number of cells: at least one. UserError where none can be."""

    def start(self, plugins: bool) -> W:
        """A new worker, which imports the plug-ins or knows nothing of them. It may take a while until it is READY."""

    def wait(self, workers: Sequence[W], seconds: float) -> None:
        """Until a worker has something to say or has ended, or the time is over."""

    def close(self) -> None:
        """Give back what was opened. All workers have been killed."""


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
class Slot:
    """A place for a worker, and what is known of the worker in it. plugins: it has imported them; used: it has had a
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


class Observer:
    """Gets the events of a run, in the process that called it; the command line's progress display is one.

    begun: all items that will run (`item.suite`, `item.cell`). started, finished: of one item; `row` is its row, and
    elsewhere says that another run made it. round: after each scored round of an item, with its figures ("val",
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
    """Before anything runs: are the options sound, can rows be stored? UserError if not."""
    check_options(options)
    store.prepare(item.suite for item in items)


def check_options(options: Options) -> None:
    """UserError for a number, a backend, an address or a submitter that cannot be."""
    for name, least in LEAST.items():
        value, whole = getattr(options, name), name in ("jobs", "threads")
        sound = isinstance(value, int if whole else int | float) and not isinstance(value, bool) and value >= least
        if not sound and not (value is None and name != "threads"):
            raise UserError(f"{name} is a {'whole ' * whole}number of at least {least}, got {value!r:.60}")
    if options.threads > MOST_THREADS:
        raise UserError(f"threads is at most {MOST_THREADS}, got {options.threads}; one is best for small graphs")
    if options.backend not in ("processes", "ray"):
        raise did_you_mean(f"{options.backend!s:.60}", ("processes", "ray"), "backend")
    if options.address and options.backend != "ray":
        raise UserError(f"the address {options.address!r:.100} is that of a Ray cluster: add --backend ray")
    name = options.submitter
    short = isinstance(name, str) and name.isprintable() and len(name) <= RULES["submitter"].longest
    if not short or name.startswith(FORMULA):
        raise UserError(f"the submitter {name!r:.100} is no name: one short line of printable characters")
