"""Cells that another suite has run already: the same key is the same experiment, so its row can be filed twice."""

from __future__ import annotations

from collections.abc import Iterable

from ...methods import METHODS
from ..store import Store
from ..store.revisions import method_version, outdated
from ..store.schema import TAKEN_OVER, Row
from .plan import Item


def elsewhere(items: Iterable[Item], store: Store) -> list[tuple[Item, Row]]:
    """(item, row) for items that another suite has run with today's revision of the method; the newest row of each."""
    wanted = {item.cell.key: item for item in items}
    found = dict[str, Row]()
    for row in sorted(store.rows(latest_only=True), key=lambda row: row.started):
        item = wanted.get(row.key)
        if item is None or row.suite == item.suite or row.status != "ok":
            continue
        if not outdated(row, method_version(METHODS.cls(row.method))):
            found[row.key] = row
    return [(item, found[key]) for key, item in wanted.items() if key in found]


def take_over(found: Iterable[tuple[Item, Row]], store: Store) -> None:
    """File the rows of other suites, with their curves, under the items' own suite too. found: as `elsewhere` says it.

    The copy says where it comes from; start, commit, machine and figures are those of the run.
    """
    for item, row in found:
        history = store.history(row.suite, row.key)
        if history is not None:
            store.write_history(item.suite, row.key, history)
        notes = "; ".join(filter(None, [row.notes, f"{TAKEN_OVER}{row.suite}"]))
        store.append(row.model_copy(update={"suite": item.suite, "notes": notes}))
