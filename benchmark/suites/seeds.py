"""Which seeds there are. Cheap to import: options are checked by it before anything is loaded."""

from __future__ import annotations

MOST_SEEDS = 10_000
SEED_BOUND = 2**31


def seed_range(first: int, last: int) -> list[int]:
    """The seeds from first to last. ValueError for more than can be run."""
    if last - first >= MOST_SEEDS:
        raise ValueError(f"more than {MOST_SEEDS} seeds")
    return list(range(first, last + 1))
