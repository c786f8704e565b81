"""Cells that name code from outside the package: what one of them does to its process reaches no other cell."""

from __future__ import annotations

from typing import NamedTuple

from ...methods import METHODS
from ...registry import UserError
from ..suites.cell import Cell
from ..suites.plugins import built_in


class Needs(NamedTuple):
    """Which worker a cell is given. plugins: one that has imported the plug-ins, as no other has. alone: one that has
    run nothing before and runs nothing after, for a method may leave anything behind in its process."""

    plugins: bool
    alone: bool


def needs(cell: Cell) -> Needs:
    """What a cell needs; a name that nobody knows is its row's matter, and counts as one from outside."""
    try:
        return Needs(
            not all(built_in(kind, choice.name) for kind, choice in cell.choices()),
            not METHODS.is_own(METHODS.cls(cell.method.name)),
        )
    except UserError:
        return Needs(True, True)
