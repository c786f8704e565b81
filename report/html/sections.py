"""What the page says about a board, beyond its sheets, its sentences and its figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .. import origins as provenance, tables
from ..board import Board
from ..sheet import Sheet
from ..standings import Standings
from ..text import slug


@dataclass(frozen=True)
class BoardPart:
    """The page part of one board."""

    standings: Standings
    environments: dict[str, dict[str, Any]]

    @property
    def board(self) -> Board:
        return self.standings.board

    @property
    def id(self) -> str:
        return f"board-{self.slug}"

    @property
    def slug(self) -> str:
        return slug(self.board.suite)

    @cached_property
    def settings(self) -> list[str]:
        return provenance.settings(self.board)

    @property
    def summary(self) -> list[str]:
        """What a reader must know of the protocol: tasks, seeds, and what is in bold for a reason. Markdown."""
        return [line for line in self.settings if line == self.settings[0] or line.startswith("- **")]

    @property
    def protocol(self) -> list[str]:
        """The rest of it."""
        return [line for line in self.settings if line not in self.summary]

    @property
    def ahead(self) -> list[str]:
        """Who stands first: where groups are formed, all of the first group."""
        if not self.board.ranked:
            return []
        table = self.standings.table
        return list(table.index[table["group" if table["group"].any() else "position"] == 1])

    def filters(self) -> dict[str, list[str]]:
        """The values that lines can be filtered by, where there is a choice."""
        standing, scored = map(self.board.standing, self.board.entrants), self.board.scored_as.values()
        found = {"standing": sorted(set(standing)), "scored": sorted(set(scored))}
        return {name: values for name, values in found.items() if len(values) > 1}

    def ranking(self) -> Sheet:
        """The ranking, without a column of groups where none are formed."""
        sheet = tables.ranking(self.standings)
        grouped = self.standings.table["group"].any()
        return sheet if grouped else sheet.only([title for title in sheet.titles if title != tables.GROUP])
