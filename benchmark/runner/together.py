"""Cells that differ in their seed only, run as one program (engine/fleet.py): which may, and how many at a time."""

from __future__ import annotations

from collections.abc import Iterable

from ...methods import METHODS
from ...registry import UserError
from ..suites.cell import Cell
from .plan import Item

MOST = 10  # cells of one fleet
# Methods whose client halves look at more than their own clients' rows, and so train alone; what they look at.
APART = {
    "adafgl": "the run's seed, of which the personal heads are drawn",
    "fed-pub": "the proxy graph that one client has been sent, which is every client's",
    "fedsage+": "who acts: clients take turns, one at a time",
}


def wanted(asked: bool | None, device: str) -> bool:
    """Whether a worker is given fleets. asked: yes, no, or (None) where launches are what a small graph costs."""
    return device != "cpu" if asked is None else asked


def may(cell: Cell) -> bool:
    """Whether a cell trains with its other seeds as it does alone, and gains by it.

    Not where some clients only take part in a round: those of another round are another cohort, made anew. Nor where
    some straggle: the clients of a cohort then do epochs of their own number.
    """
    try:
        own = METHODS.is_own(METHODS.cls(cell.method.name))
    except UserError:
        return False
    training = cell.training
    everyone = training.participation == 1 and not training.failure and not training.straggle
    return own and cell.method.name not in APART and everyone


def fellows(item: Item, others: Iterable[Item]) -> list[Item]:
    """Those of the others that can be in a fleet with a cell, which `may`: the same in all but the seed."""
    alike = [own for own in others if own.suite == item.suite and own.cell.seedless == item.cell.seedless]
    return alike[: MOST - 1]
