"""A method on the page: what its source says about it, and where on the boards it stands."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...benchmark.store.jsoncolumn import mapping
from ...registry import Parameter
from .. import tables
from ..answers import AVERAGE
from ..families import UNKNOWN, family, models, uploads
from ..figures import convergence
from ..gaps import missing, reasons
from ..sheet import Sheet, SheetCell, SheetColumn
from ..standings import Standings
from ..text import plain
from .histories import PaperReading, duel_sheet, method_versions, readings_of
from .lines import Panel, panels


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
    duel: Sheet | None  # against FedAvg, task by task
    panels: list[Panel]  # its curves beside FedAvg's

    @classmethod
    def of(cls, standings: Standings, name: str, curves: Mapping[str, Any] | None) -> Appearance:
        board, entrant = standings.board, tables.ranked(standings, name)
        own = board.rows[board.rows["entrant"] == name]
        troubles = missing(board, name)
        for task in board.dead_tasks:
            troubles += [f"{plain(task)}: {reason}" for reason in reasons(own[own["task_label"] == task])]
        scores = {task: tables.score(task, entrant) for task in board.tasks}
        backbone = ", ".join(sorted(set(own["backbone"])))
        beside = panels(curves, name, AVERAGE) if name != AVERAGE else []
        return cls(entrant, scores, board.standing(name), backbone, troubles, duel_sheet(board, name), beside)

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
    return [column for column in tables.RANKING if column.title not in ("Tier", "Method", "Wins", "Uploads")]


@dataclass(frozen=True)
class MethodPart:
    name: str
    card: Card | None
    places: list[Appearance]
    used: dict[str, list[str]]  # parameter -> its values in the rows
    versions: Sheet
    readings: list[PaperReading]

    @property
    def traits(self) -> dict[str, list[str]]:
        """By what it can be chosen among all methods."""
        name = self.name
        return {"family": [family(name)], "uploads": uploads(name) or [UNKNOWN], "models": [models(name)]}

    def marked(self, mark: str) -> int:
        """On how many tasks it leads, or is not told apart."""
        return sum(len(place.marked(mark)) for place in self.places)


def method_parts(boards: Sequence[Standings], cards: Mapping[str, Card]) -> list[MethodPart]:
    """The methods that have rows, by name."""
    places: dict[str, list[Appearance]] = {}
    used: dict[str, dict[str, set[str]]] = {}
    for standings in boards:
        curves = convergence.data(standings.plain)
        for entrant, method in sorted(standings.board.method_of.items()):
            places.setdefault(method, []).append(Appearance.of(standings, entrant, curves))
        for method, params in (
            standings.board.rows[["method", "method_params"]].drop_duplicates().itertuples(index=False)
        ):
            for name, value in mapping(params).items():
                used.setdefault(method, {}).setdefault(str(name), set()).add(json.dumps(value))
    return [
        MethodPart(
            name, cards.get(name), found, {key: sorted(own) for key, own in used.get(name, {}).items()},
            method_versions(boards, name), readings_of(name),
        )
        for name, found in sorted(places.items())
    ]  # fmt: skip


def method_choices(methods: Sequence[MethodPart]) -> dict[str, list[str]]:
    """The values of each trait by which methods can be told apart, wherever they are."""
    every = [method.traits for method in methods]
    found = {name: sorted({value for own in every for value in own[name]}) for name in ("family", "uploads", "models")}
    return {name: values for name, values in found.items() if len(values) > 1}
