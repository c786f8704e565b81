"""The plan of a run: which cells of the selected suites are to do, given the existing rows.

The current row of a cell is the last one with its key in its suite's files. Rows are never deleted: a rerun adds a row.
A finished cell is not run again. A cell that failed, timed out, ran out of memory or was skipped is run again only with
`rerun`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, Literal, get_args

from typing_extensions import TypeVar

from ...registry import UserError, did_you_mean
from ..store import Store
from ..store.provenance import method_version, outdated
from ..store.schema import TAKEN_OVER, Row, mapping
from ..suites.catalogue import entry

if TYPE_CHECKING:
    from ..suites.cell import Cell
    from ..suites.request import ListedCell

State = Literal["todo", "done", "failed", "skipped"]
Rerun = Literal["failed", "timeout", "oom", "skipped", "stale", "all"]
UNFINISHED = ("failed", "timeout", "oom")
C = TypeVar("C", bound="Cell | ListedCell", default="Cell")


@dataclass(frozen=True)
class Item(Generic[C]):
    """A cell of a suite, its state and its current row. stale: the row has an earlier revision of the method, or of
    a part from a plug-in."""

    suite: str
    cell: C
    state: State
    row: Row | None = None
    stale: bool = False


@dataclass(frozen=True)
class Plan(Generic[C]):
    items: tuple[Item[C], ...]

    @property
    def todo(self) -> list[Item[C]]:
        return [item for item in self.items if item.state == "todo"]

    def counts(self) -> Counter[str]:
        return Counter(item.state for item in self.items)

    def rows(self, state: State) -> list[Row]:
        """The rows of the cells in a state."""
        return [item.row for item in self.items if item.state == state and item.row is not None]

    def stale(self) -> int:
        return sum(item.stale for item in self.items if item.state == "done")

    def rising(self) -> Counter[str]:
        """Method -> number of its rows that had not converged when the rounds ended."""
        return Counter(row.method for row in self.rows("done") if row.rising)


def make_plan(
    cells: Iterable[tuple[str, C]],
    store: Store,
    rerun: Collection[str] = (),
    embeddings: bool = False,
    models: bool = False,
    version: Callable[[str], str] | None = None,
) -> Plan[C]:
    """A plan for (suite, cell) pairs. rerun: kinds of rows to make again (`Rerun`; "failed" is any failure).

    embeddings, models: also run finished cells again that do not have these side files. version: method -> its current
    version; by default that of its class.
    """
    version = version or version_of
    for word in rerun:
        if word not in get_args(Rerun):
            raise did_you_mean(word, get_args(Rerun), "kind of row to rerun")
    wanted = list(cells)
    known = {suite: {row.key: row for row in store.rows(suite, latest_only=True)} for suite in {s for s, _ in wanted}}
    items = [_item(suite, cell, known[suite].get(cell.key), rerun, version) for suite, cell in wanted]
    for file in [store.embeddings_file] * embeddings + [store.model_file] * models:
        missing = (item.state == "done" and not file(item.suite, item.cell.key).exists() for item in items)
        items = [replace(item, state="todo") if lacks else item for item, lacks in zip(items, missing, strict=True)]
    return Plan(tuple(items))


def _item(suite: str, cell: C, row: Row | None, rerun: Collection[str], version: Callable[[str], str]) -> Item[C]:
    if row is None:
        return Item(suite, cell, "todo")
    state: State = "done" if row.status == "ok" else "skipped" if row.status == "skipped" else "failed"
    stale = _changed(row, cell, version(cell.names["method"]))
    again = "all" in rerun or row.status in rerun or ("failed" in rerun and row.status in UNFINISHED)
    return Item(suite, cell, "todo" if again or ("stale" in rerun and stale) else state, row, stale)


def _changed(row: Row, cell: Cell | ListedCell, version: str) -> bool:
    """Whether a row was made with an earlier revision of the method, or another source of a part from a plug-in."""
    return outdated(row, version) or mapping(row.origin).get("parts", {}) != cell.outside


def version_of(method: str) -> str:
    """The current version of a method, from its class."""
    from ...methods import METHODS

    return method_version(METHODS.cls(method))


def listed_version(method: str) -> str:
    """The current version of a method of the package, from the catalogue."""
    return str(entry("method", method)["revision"])


@dataclass(frozen=True)
class Missing:
    """An unavailable dataset: the error, and the cells that cannot run."""

    error: str
    items: tuple[Item, ...]

    def __str__(self) -> str:
        return f"{self.error} ({len(self.items)} run{'s' * (len(self.items) > 1)} left out)"


def with_data(plan: Plan) -> tuple[Plan, list[Missing]]:
    """Load every dataset of the plan once, so that workers find it in the cache.

    Returns the plan without the cells whose data is unavailable, and the missing datasets. These cells get no row,
    unless by `supervisor.record_missing`.
    """
    from ...datasets import DATASETS

    missing: dict[str, Missing] = {}
    for dataset in {item.cell.dataset.name: item.cell.dataset for item in plan.todo}.values():
        try:
            for part in dataset.build(DATASETS).parts:
                if not part.synthetic:
                    part.content()
        except UserError as error:
            items = tuple(item for item in plan.todo if item.cell.dataset.name == dataset.name)
            missing[dataset.name] = Missing(str(error), items)
    kept = tuple(i for i in plan.items if i.state != "todo" or i.cell.dataset.name not in missing)
    return Plan(kept), list(missing.values())


def elsewhere(items: Iterable[Item], store: Store) -> list[tuple[Item, Row]]:
    """(item, row) for items that another suite has run with the current version of the method; the newest row."""
    wanted = {item.cell.key: item for item in items}
    rows = dict[str, Row]()
    for row in sorted(store.rows(latest_only=True), key=lambda row: row.started):
        item = wanted.get(row.key)
        if item is None or row.suite == item.suite or row.status != "ok":
            continue
        if not _changed(row, item.cell, version_of(row.method)):
            rows[row.key] = row
    return [(item, rows[key]) for key, item in wanted.items() if key in rows]


def take_over(pairs: Iterable[tuple[Item, Row]], store: Store) -> None:
    """Copy rows of other suites, with their curves, to the items' suites. pairs: of `elsewhere`.

    `notes` of the copy has the source; start, commit, machine and figures are those of the run.
    """
    for item, row in pairs:
        history = store.history(row.suite, row.key)
        if history is not None:
            store.write_history(item.suite, row.key, history)
        notes = "; ".join(filter(None, [row.notes, f"{TAKEN_OVER}{row.suite}"]))
        store.append_row(row.model_copy(update={"suite": item.suite, "notes": notes}))
