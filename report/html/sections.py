"""What the page says about a board, beyond its sheets, its sentences and its figures."""

from __future__ import annotations

from .. import origins, tables
from ..board import Board
from ..sheet import Sheet
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
    """Who stands first: where groups are formed, all of the first group."""
    if not standings.board.ranked:
        return []
    table = standings.table
    return list(table.index[table["group" if table["group"].any() else "position"] == 1])


def filters(board: Board) -> dict[str, list[str]]:
    """The values that lines can be filtered by, where there is a choice."""
    found = {"standing": set(map(board.standing, board.entrants)), "scored": set(board.scored_as.values())}
    return {name: sorted(values) for name, values in found.items() if len(values) > 1}


def ranking(standings: Standings) -> Sheet:
    """The ranking, without a column of groups where none are formed."""
    sheet = tables.ranking(standings)
    grouped = standings.table["group"].any()
    return sheet if grouped else sheet.only([title for title in sheet.titles if title != tables.GROUP])
