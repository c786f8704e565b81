"""A method on the page: what its source says about it, and where on the boards it stands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...registry import Parameter
from .. import tables
from ..gaps import missing, reasons
from ..labels import parse
from ..sheet import SheetCell, SheetColumn
from ..standings import Standings
from ..text import plain


@dataclass(frozen=True)
class Card:
    """What the registry knows of a method. bases: registered methods that it is made from, the nearest first."""

    doc: str
    source: str
    bases: tuple[str, ...] = ()
    parameters: list[Parameter] = field(default_factory=list)


@dataclass(frozen=True)
class Appearance:
    """One entrant of the method on one board."""

    entrant: tables.Entrant
    scores: dict[str, SheetCell]  # by task
    standing: str
    backbone: str
    troubles: list[str]

    @classmethod
    def of(cls, standings: Standings, name: str) -> Appearance:
        board, entrant = standings.board, tables.ranked(standings, name)
        own = board.rows[board.rows["entrant"] == name]
        troubles = missing(board, name)
        for task in board.dead_tasks:
            troubles += [f"{plain(task)}: {reason}" for reason in reasons(own[own["task_label"] == task])]
        scores = {task: tables.score(task, entrant) for task in board.tasks}
        return cls(entrant, scores, board.standing(name), ", ".join(sorted(set(own["backbone"]))), troubles)

    @property
    def tier(self) -> str:
        """Its tier, and how many there are."""
        tiers = self.entrant.standings.contest.tiers
        return f"tier {tiers[self.entrant.name]} of {max(tiers.values())}" if tiers else "no tiers"

    def marked(self, mark: str) -> dict[str, SheetCell]:
        """The scores on the tasks where it leads ("best"), or is not told apart from who does ("equal")."""
        return {task: cell for task, cell in self.scores.items() if cell.mark == mark}


def columns() -> list[SheetColumn]:
    """What of a ranking is said of each board. The place is told with how many there are, who leads below the table."""
    return [column for column in tables.RANKING if column.title not in ("Tier", "Method", "Wins")]


@dataclass(frozen=True)
class MethodPart:
    name: str
    card: Card | None
    places: list[Appearance]
    used: dict[str, list[str]]  # parameter -> its values in the rows

    def marked(self, mark: str) -> int:
        """On how many tasks it leads, or is not told apart."""
        return sum(len(place.marked(mark)) for place in self.places)


def method_parts(boards: Sequence[Standings], cards: Mapping[str, Card]) -> list[MethodPart]:
    """The methods that have rows, by name."""
    places: dict[str, list[Appearance]] = {}
    used: dict[str, dict[str, set[str]]] = {}
    for standings in boards:
        for entrant, method in sorted(standings.board.method_of.items()):
            places.setdefault(method, []).append(Appearance.of(standings, entrant))
        for method, params in (
            standings.board.rows[["method", "method_params"]].drop_duplicates().itertuples(index=False)
        ):
            for name, value in (parse(params) or {}).items():
                used.setdefault(method, {}).setdefault(str(name), set()).add(json.dumps(value))
    return [
        MethodPart(name, cards.get(name), found, {key: sorted(own) for key, own in used.get(name, {}).items()})
        for name, found in sorted(places.items())
    ]
