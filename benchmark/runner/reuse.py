"""Cells that another suite has run already: the same key is the same experiment, so its row can be filed twice."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...methods import METHODS
from ..store import Store
from .plan import Item


def elsewhere(items: Iterable[Item], store: Store) -> dict[str, Item]:
    """By key: the newest finished one of another suite for each of the items, if it was made by today's source code."""
    wanted = {item.cell.key: item for item in items}
    found, versions = dict[str, Item](), store.versions()
    for row in sorted(store.rows(latest_only=True), key=lambda row: row.started):
        own = wanted.get(row.key)
        if own is None or row.suite == own.suite or row.status != "ok":
            continue
        if not versions.stale(row, METHODS.cls(row.method)):
            found[row.key] = Item(row.suite, own.cell, "done", row)
    return found


def take_over(items: Iterable[Item], known: Mapping[str, Item], store: Store) -> None:
    """File the rows of other suites, with their curves, under the items' own suite too. known: what `elsewhere` found.

    The copy says where it comes from; start, commit, machine and figures are those of the run.
    """
    for item in items:
        source = known.get(item.cell.key)
        if source is None or source.row is None:
            continue
        history = store.history(source.suite, item.cell.key)
        if history is not None:
            store.write_history(item.suite, item.cell.key, history)
        origin = f"run for suite {source.suite}"
        notes = f"{source.row.notes}; {origin}" if source.row.notes else origin
        store.append(source.row.model_copy(update={"suite": item.suite, "notes": notes}))
