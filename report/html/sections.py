"""What the page says about a board, beyond its sheets, its sentences and its figures."""

from __future__ import annotations

from collections.abc import Sequence

from .. import origins, traits
from ..board import Board
from ..sheet import SheetColumn
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


def tested(standings: Standings) -> str:
    """What the tiers rest on, in a few words."""
    if standings.board.is_sweep:
        return "nothing: settings of one method"
    words = {"dataset": "datasets (Wilcoxon)", "seed": "seeds of each task (t tests)", "none": "nothing: too few seeds"}
    return words[standings.contest.unit] if standings.board.ranked else "nothing is ranked"


def traits_of(board: Board) -> dict[str, dict[str, list[str]]]:
    """By what each entrant can be chosen, for the script."""
    return {name: traits.traits(board, name) for name in board.entrants}


def groups(columns: Sequence[SheetColumn]) -> dict[str, list[str]]:
    """By what columns can be chosen, where there is a choice: kinds of data, and how alike labels are."""
    found = list(dict.fromkeys(group for column in columns for group in column.groups))
    labels = [name for name in found if name.startswith("labels ")]
    kinds = [name for name in found if name not in labels]
    return {title: own for title, own in (("Edges are of", sorted(kinds)), ("Clients", labels)) if len(own) > 1}
