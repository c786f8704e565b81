"""How far suites are: which of their cells have a row in a results folder, and what these rows say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from .store import Store
from .store.provenance import outdated
from .store.standing import Standing
from .suites.catalogue import catalogue, cell_keys, untuned_pairs
from .suites.request import told_untuned

DONE, SKIPPED, FAILED = "done", "skipped", "failed"
STATES = {"ok": DONE, "skipped": SKIPPED}  # of any other status: FAILED


@dataclass(frozen=True)
class Progress:
    """A suite's cells and the latest rows of its folder.

    rows: of its cells; others: of methods, datasets or settings that it does not have. untuned: lines about cells that
    are left out until they are tuned.
    """

    suite: str
    cells: int = 0
    rows: list[Standing] = field(default_factory=list)
    others: list[Standing] = field(default_factory=list)
    stale: int = 0
    untuned: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Return the number of cells in each state; `stale` are among those done."""
        number = Counter(STATES.get(row.status, FAILED) for row in self.rows)
        states = {state: number[state] for state in (DONE, FAILED, SKIPPED)}
        todo = {"todo": self.cells - len(self.rows), "stale": self.stale, "others": len(self.others)}
        return {"cells": self.cells, **states, **todo}

    def bad(self) -> list[Standing]:
        """Return the rows that failed, then those skipped, then such rows of others."""
        failed = [row for row in self.rows if row.status not in STATES]
        skipped = [row for row in self.rows if row.status == SKIPPED]
        return [*failed, *skipped, *(row for row in self.others if row.status != "ok")]

    def rising(self) -> Counter[str]:
        """Return the methods whose scores still rose when the rounds were over, and in how many rows."""
        return Counter(row.method for row in self.rows if row.status == "ok" and row.rising)


def overview(results: Path, suites: Collection[str] = ()) -> list[Progress]:
    """Return the progress of suites, by name or YAML file.

    Without names: of the suites that have rows, or of all if there are none, and of folders of other rows (`custom`).
    """
    store = Store(results)
    known, there = catalogue()["suite"], set(store.suites())
    shown = list(suites) or [name for name in known if name in there] or ([] if there else list(known))
    progress = [_progress(store, name) for name in shown]
    if not suites:
        others = sorted(there - known.keys())
        progress += [Progress(name, others=store.standing(name)) for name in others]
    return progress


def _progress(store: Store, suite: str) -> Progress:
    if suite in catalogue()["suite"]:
        name, keys, untuned = suite, cell_keys(suite), told_untuned(suite, untuned_pairs(suite))
    else:
        from .suites.suitefile import load_suite

        loaded = load_suite(suite)
        name, keys = loaded.name, [cell.key for cell in loaded.cells()]
        untuned = told_untuned(name, loaded.untuned())
    order = {key: place for place, key in enumerate(keys)}
    rows = store.standing(name)
    mine = sorted((row for row in rows if row.key in order), key=lambda row: order[row.key])
    others = [row for row in rows if row.key not in order]
    stale = sum(row.status == "ok" and outdated(row, _version(row.method)) for row in mine)
    return Progress(name, len(keys), mine, others, stale, untuned)


def _version(method: str) -> str:
    """The version that a row of a method has now."""
    if method in catalogue()["method"]:
        return str(catalogue()["method"][method]["revision"])
    from ..methods import METHODS
    from .store.provenance import method_version

    return method_version(METHODS.cls(method))
