"""Rows that others report. They are in `submissions/METHOD` of a results folder, and are listed but never ranked.

Only the rows of the results folder itself are ranked; its maintainers run them (`fglbench adopt METHOD`).
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from pathlib import Path

from ...registry import UserError
from .folder import Store
from .places import SUBMISSIONS
from .schema import Row

SETTINGS = (
    "suite", "method", "method_params", "dataset", "dataset_params", "partition", "partition_params", "clients",
    "split", "split_params", "backbone", "backbone_params", "training",
)  # fmt: skip


@dataclass(frozen=True)
class SelfReported:
    """The self-reported rows of one experiment. row: one of them. seeds: reported seeds with a score. ours: mean score
    of our runs of the same seeds (their number: our_seeds), or None. theirs: mean reported score of these seeds; of all
    seeds if we have no runs. Scores are fractions."""

    row: Row
    seeds: int
    theirs: float | None
    our_seeds: int
    ours: float | None

    @property
    def difference(self) -> float | None:
        """Reported minus ours; None unless both exist."""
        return None if self.theirs is None or self.ours is None else self.theirs - self.ours


def submission_stores(results: Path) -> list[Store]:
    """The folders of self-reported rows."""
    return [Store(folder, columns=False) for folder in sorted((results / SUBMISSIONS).glob("*/")) if folder.is_dir()]


def self_reported(results: Path) -> list[SelfReported]:
    """All self-reported experiments, by suite, dataset and method. `Store(results).rows()` does not have their rows."""
    ours = {(row.suite, row.key): row for row in Store(results).rows(latest_only=True)}
    groups: dict[tuple[object, ...], list[Row]] = {}
    for store in submission_stores(results):
        try:
            rows = store.rows(latest_only=True)
        except UserError:
            continue  # damaged: `fglbench validate` shows the line
        for row in rows:
            groups.setdefault(tuple(getattr(row, name) for name in SETTINGS), []).append(row)
    entries = []
    for rows in groups.values():
        scored = [row for row in rows if row.score is not None]
        pairs = [
            (row, our_row)
            for row in scored
            if (our_row := ours.get((row.suite, row.key))) and our_row.score is not None
        ]
        theirs = _mean([row for row, _ in pairs] or scored)
        entries.append(SelfReported(rows[0], len(scored), theirs, len(pairs), _mean([our_row for _, our_row in pairs])))
    return sorted(entries, key=lambda entry: (entry.row.suite, entry.row.dataset, entry.row.clients, entry.row.method))


def _mean(rows: list[Row]) -> float | None:
    scores = [row.score for row in rows if row.score is not None]
    return statistics.fmean(scores) if scores else None
