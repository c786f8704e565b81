"""What the page says about a board, beyond its sheets, its sentences and its figures."""

from __future__ import annotations

from .. import origins
from ..board import Board
from ..standings import Standings


def summary(board: Board) -> list[str]:
    """What a reader must know of the protocol: tasks, seeds, and what is in bold for a reason. Markdown."""
    first, *rest = origins.settings(board)
    return [first, *(line for line in rest if line.startswith("- **"))]


def protocol(board: Board) -> list[str]:
    """The rest of it."""
    shown = summary(board)
    return [line for line in origins.settings(board) if line not in shown]


def ahead(standings: Standings) -> list[str]:
    """The first tier; empty where no tiers are formed."""
    return [name for name, tier in standings.contest.tiers.items() if tier == 1]


def filters(board: Board) -> dict[str, list[str]]:
    """The values that lines can be filtered by, where there is a choice."""
    found = {"standing": set(map(board.standing, board.entrants)), "scored": set(board.scored_as.values())}
    return {name: sorted(values) for name, values in found.items() if len(values) > 1}
