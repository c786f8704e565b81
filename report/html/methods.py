"""A method on the page: what its source says about it, and where on the boards it stands."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from markupsafe import Markup

from ...registry import Parameter
from ..labels import parse
from ..leaderboard import mark, mean_rank, missing, reasons
from ..text import ABSENT, data_size, md, number, percent, slug
from .boards import BoardPart
from .prose import Passage, documentation, inline
from .sheet import Cell


@dataclass(frozen=True)
class Card:
    """What the registry knows of a method. bases: registered methods that it is made from, the nearest first."""

    doc: str
    source: str
    bases: tuple[str, ...] = ()
    parameters: list[Parameter] = field(default_factory=list)


@dataclass(frozen=True)
class Place:
    """One entrant of the method on one board. best, equal: (task, score cell) where it leads, or is not told apart."""

    entrant: str
    board: str
    board_id: str
    standing: str
    mark: str
    position: int | None
    ranked: int
    rank: str
    score: str
    traffic: str
    seconds: str
    backbone: str
    scored: str
    solved: int
    tasks: int
    best: list[tuple[str, Cell]]
    equal: list[tuple[str, Cell]]
    troubles: list[Markup]


@dataclass(frozen=True)
class MethodPart:
    name: str
    card: Card | None
    places: list[Place]
    used: dict[str, list[str]]  # parameter -> its values in the rows

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
    places: dict[str, list[Place]] = {}
    used: dict[str, dict[str, set[str]]] = {}
    for part in boards:
        for entrant, method in sorted(part.board.method_of.items()):
            places.setdefault(method, []).append(_place(part, entrant))
        for method, params in part.board.rows[["method", "method_params"]].drop_duplicates().itertuples(index=False):
            for name, value in (parse(params) or {}).items():
                used.setdefault(method, {}).setdefault(str(name), set()).add(json.dumps(value))
    return [
        MethodPart(name, cards.get(name), found, {key: sorted(own) for key, own in used.get(name, {}).items()})
        for name, found in sorted(places.items())
    ]


def _place(part: BoardPart, entrant: str) -> Place:
    board, standings = part.board, part.standings
    leaders = {task: standings.leaders[task] for task in board.tasks}
    best, equal = ([(t, part.score(t, entrant)) for t in board.tasks if entrant in leaders[t][i]] for i in (0, 1))
    position, rank, score, traffic, seconds = None, ABSENT, ABSENT, ABSENT, ABSENT
    table = standings.table if entrant in board.ranked else standings.references
    if entrant in table.index:
        row = table.astype(object).loc[entrant]
        score, traffic, seconds = percent(row.score), data_size(row.traffic), number(row.seconds, 1)
        if entrant in board.ranked:
            position, rank = int(row.position), mean_rank(row)
    own = board.rows[board.rows["entrant"] == entrant]
    troubles = missing(board, entrant)
    for task in board.dead_tasks:
        troubles += [f"{md(task)}: {reason}" for reason in reasons(own[own["task_label"] == task])]
    return Place(
        entrant=entrant,
        board=board.title,
        board_id=part.id,
        standing=part.standing(entrant),
        mark=mark(board, entrant),
        position=position,
        ranked=len(board.ranked),
        rank=rank,
        score=score,
        traffic=traffic,
        seconds=seconds,
        backbone=", ".join(sorted(set(own["backbone"]))),
        scored=part.scored_as(entrant),
        solved=int(board.full[entrant].sum()),
        tasks=len(board.tasks),
        best=best,
        equal=equal,
        troubles=[inline(line) for line in troubles],
    )
