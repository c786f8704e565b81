"""By what the methods of a board can be chosen: their standing, what their score is, family, uploads, models."""

from __future__ import annotations

from .board import Board
from .families import MIXED, UNKNOWN, family, models, uploads

# Name of a trait -> what a menu calls it, and its first entry.
MENUS = {
    "standing": ("Standing", "all"),
    "family": ("Family", "all"),
    "uploads": ("Clients upload", "anything"),
    "models": ("Clients' models", "any"),
    "scored": ("Score is", "any"),
}


def traits(board: Board, name: str) -> dict[str, list[str]]:
    """The traits of an entrant; it has several of a name where its clients upload several things."""
    method = board.method_of[name]
    return {
        "standing": [board.standing(name)],
        "family": [family(method)],
        "uploads": uploads(method) or [UNKNOWN],
        "models": [models(method)],
        "scored": [board.scored_as[name]],
    }


def choices(board: Board) -> dict[str, list[str]]:
    """The values of each trait by which the entrants of a board can be told apart."""
    every = [traits(board, name) for name in board.entrants]
    found = {name: sorted({value for own in every for value in own[name]}) for name in MENUS}
    first = list(MIXED.values())
    found["models"].sort(key=lambda value: (first.index(value) if value in first else len(first), value))
    return {name: values for name, values in found.items() if len(values) > 1}
