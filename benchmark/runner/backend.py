"""What the supervisor asks of those who run cells, be they processes of this machine or actors of a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeVar

from ...registry import UserError
from ..store import Store
from ..suites.cell import Cell
from .process import Processes
from .system import Ending
from .worker import Options


class Worker(Protocol):
    """Runs one cell at a time. `worker.main` describes its messages."""

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


def open_backend(options: Options, store: Store) -> Backend[Any]:
    """The backend of options that `supervisor.check_options` accepts. UserError (one line) if it is unavailable."""
    if options.backend == "ray":
        try:
            from .ray_backend import Cluster
        except ModuleNotFoundError as error:
            if error.name != "ray":
                raise
            raise UserError("--backend ray needs Ray: pip install 'fglbench[ray]'") from None
        return Cluster(options)
    return Processes(options, store)
