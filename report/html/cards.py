"""A method on the page: what its source says about it, and where on the boards it stands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from ...registry import Parameter
from .. import tables
from ..gaps import missing, reasons
from ..labels import parse
from ..sheet import Column, SheetCell
from ..text import plain, slug
from .prose import Passage, documentation
from .sections import BoardPart


@dataclass(frozen=True)
class Card:
    """What the registry knows of a method. bases: registered methods that it is made from, the nearest first."""

    doc: str
    source: str
    bases: tuple[str, ...] = ()
    parameters: list[Parameter] = field(default_factory=list)


@dataclass(frozen=True)
class Appearance:
    """One entrant of the method on one board. cells: one for each of `columns`. best, equal: (task, cell of the score)
    where it leads, or is not told apart."""

    part: BoardPart
    entrant: str
    mark: str
    position: int | None
    cells: list[SheetCell]
    backbone: str
    best: list[tuple[str, SheetCell]]
    equal: list[tuple[str, SheetCell]]
    troubles: list[Markup]

    @classmethod
    def of(cls, part: BoardPart, name: str) -> Appearance:
        board, entrant = part.board, tables.ranked(part.standings, name)
        own = board.rows[board.rows["entrant"] == name]
        lines = missing(board, name)
        for task in board.dead_tasks:
            lines += [f"{plain(task)}: {reason}" for reason in reasons(own[own["task_label"] == task])]
        return cls(
            part=part,
            entrant=name,
            mark=tables.mark(board, name),
            position=int(entrant["position"]) if name in board.ranked else None,
            cells=[column.cell(entrant) for column in columns()],
            backbone=", ".join(sorted(set(own["backbone"]))),
            best=_led(entrant, "best"),
            equal=_led(entrant, "equal"),
            troubles=[escape(line) for line in lines],
        )

    @property
    def board(self) -> str:
        return self.part.board.title

    @property
    def standing(self) -> str:
        return self.part.board.standing(self.entrant)

    @property
    def ranked(self) -> int:
        return len(self.part.board.ranked)

    @property
    def scored(self) -> str:
        return self.part.board.scored_as[self.entrant]


def columns() -> list[Column]:
    """What of a ranking is said of each board. The place is told with how many there are, who leads below the table."""
    return [column for column in tables.RANKING if column.title not in ("#", "Method", "Wins", tables.GROUP)]


def _led(entrant: tables.Entrant, mark: str) -> list[tuple[str, SheetCell]]:
    scores = [(task, tables.score(task, entrant)) for task in entrant.board.tasks]
    return [(task, cell) for task, cell in scores if cell.mark == mark]


@dataclass(frozen=True)
class MethodPart:
    name: str
    card: Card | None
    places: list[Appearance]
    used: dict[str, list[str]]  # parameter -> its values in the rows

    @property
    def columns(self) -> list[Column]:
        return columns()

    @property
    def id(self) -> str:
        return f"method-{slug(self.name)}"

    @property
    def passages(self) -> list[Passage]:
        return documentation(self.card.doc) if self.card else []

    @property
    def leads(self) -> int:
        return sum(len(place.best) for place in self.places)

    @property
    def close(self) -> int:
        return sum(len(place.equal) for place in self.places)


def method_parts(boards: list[BoardPart], cards: Mapping[str, Card]) -> list[MethodPart]:
    """The methods that have rows, by name."""
    places: dict[str, list[Appearance]] = {}
    used: dict[str, dict[str, set[str]]] = {}
    for part in boards:
        for entrant, method in sorted(part.board.method_of.items()):
            places.setdefault(method, []).append(Appearance.of(part, entrant))
        for method, params in part.board.rows[["method", "method_params"]].drop_duplicates().itertuples(index=False):
            for name, value in (parse(params) or {}).items():
                used.setdefault(method, {}).setdefault(str(name), set()).add(json.dumps(value))
    return [
        MethodPart(name, cards.get(name), found, {key: sorted(own) for key, own in used.get(name, {}).items()})
        for name, found in sorted(places.items())
    ]
