"""What the page says about a board and each of its tasks, except for the figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup, escape

from .. import origins as provenance, tables
from ..board import Board
from ..gaps import dead, troubles
from ..sheet import Sheet
from ..standings import Standings
from ..task_page import scored_as
from ..text import slug
from .prose import block, inline


@dataclass(frozen=True)
class TaskPart:
    """The page part of one task."""

    label: str
    sheet: Sheet
    sentence: Markup
    scored_as: Markup
    troubles: list[Markup]


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

    @property
    def summary(self) -> list[Markup]:
        """What a reader must know of the protocol: tasks, seeds, and what is in bold for a reason."""
        return [inline(line.removeprefix("- ")) for line in self._settings if self._tells(line)]

    @property
    def protocol(self) -> Markup:
        return block([line for line in self._settings if not self._tells(line)])

    @property
    def facts(self) -> Markup:
        return block(provenance.facts(self.board, self.environments))

    @property
    def versions(self) -> Sheet:
        return provenance.versions(self.board)

    @property
    def legend(self) -> Markup:
        return inline(tables.legend(self.board))

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

    def unranked(self) -> Sheet:
        return tables.unranked(self.standings)

    def dead(self) -> list[Markup]:
        return [escape(line) for line in dead(self.board)]

    def per_dataset(self) -> Sheet:
        return tables.per_dataset(self.standings)

    def tasks(self) -> list[TaskPart]:
        return [self._task(task) for task in self.board.tasks]

    def _task(self, task: str) -> TaskPart:
        own = self.board.rows[self.board.rows["task_label"] == task]
        sentence = inline(provenance.task_sentence(self.board, task))
        lines = [escape(line) for line in troubles(own)]
        return TaskPart(task, tables.one_task(self.standings, task), sentence, escape(scored_as(own)), lines)

    @cached_property
    def _settings(self) -> list[str]:
        return provenance.settings(self.board)

    def _tells(self, line: str) -> bool:
        return line == self._settings[0] or line.startswith("- **")
