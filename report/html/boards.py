"""A board's tables as the templates want them: columns, lines, and cells with what is shown and what is sorted by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

from .. import origins as provenance
from ..board import Board
from ..leaderboard import RANK, mark, mean_rank, missing, outcome, reasons
from ..standings import Standings
from ..tables import COLUMNS, cell, legend, order, scored_as, trouble
from ..text import data_size, finite, md, number, percent, slug
from .prose import block, inline
from .sheet import Cell, Column, Line, Sheet, interval

METHOD = Column("Method", "method")


@dataclass(frozen=True)
class Task:
    """The page part of one task."""

    label: str
    sheet: Sheet
    sentence: Markup
    scored_as: Markup
    troubles: list[Markup]


@dataclass(frozen=True)
class BoardPart:
    """Everything that the page says about a board, except for its figures."""

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
    def versions(self) -> Markup:
        return block(provenance.versions(self.board))

    @property
    def outcome(self) -> str:
        return outcome(self.standings)

    @property
    def legend(self) -> Markup:
        return inline(legend(self.board))

    @property
    def ahead(self) -> list[str]:
        """Who stands first: where groups are formed, all of the first group."""
        if not self.board.ranked:
            return []
        table = self.standings.table
        return list(table.index[table["group" if table["group"].any() else "position"] == 1])

    @property
    def incomplete(self) -> list[str]:
        return [name for name in self.board.entrants if self.board.tasks and name not in self.board.complete]

    def standing(self, entrant: str) -> str:
        if self.board.is_reference(entrant):
            return "reference"
        if entrant in self.board.ranked:
            return "ranked"
        return "complete" if entrant in self.board.complete else "incomplete"  # complete: a setting of a sweep

    def scored_as(self, entrant: str) -> str:
        """What an entrant's score is: whose model, on which nodes."""
        own = self.board.scored[self.board.scored["entrant"] == entrant]
        return "; ".join(sorted(set(own["score_metric"]))) or "no score"

    def filters(self) -> dict[str, list[str]]:
        """The values that lines can be filtered by, where there is a choice."""
        lines = [self._line(name, []) for name in self.board.entrants]
        found = {"standing": [line.standing for line in lines], "scored": [line.scored for line in lines]}
        return {name: sorted(set(values)) for name, values in found.items() if len(set(values)) > 1}

    def overall(self) -> Sheet:
        """The ranking, references below it, with the maintainers' marks."""
        table, covered = self.standings.table, f"{len(self.board.tasks)}/{len(self.board.tasks)}"
        most = {name: table[name].round(12).max() for name in ("score", "wins")}
        grouped, lines = bool(table["group"].any()), []
        for name, row in table.astype(object).iterrows():
            top = [row.position == 1, round(row.score, 12) == most["score"], row.wins == most["wins"] > 0]
            best = ["best" if each else "" for each in top]
            cells = [
                Cell(str(row.position), row.position),
                self._name(str(name), mark(self.board, str(name))),
                Cell(
                    mean_rank(row),
                    row.mean_rank,
                    best[0],
                    plot=interval(row.mean_rank, row.low, row.high, len(self.board.ranked)),
                ),
                Cell(percent(row.score), row.score, best[1]),
                Cell(str(row.wins), row.wins, best[2]),
                *([Cell(str(row.group), row.group)] if grouped else []),
                Cell(covered, 1.0),
                *_cost(row),
            ]
            lines.append(self._line(str(name), cells))
        for name, row in self.standings.references.astype(object).iterrows():
            score = Cell(percent(row.score), row.score)
            blank = [Cell("")] * (2 if grouped else 1)
            shown = self._name(str(name), mark(self.board, str(name)))
            cells = [Cell(""), shown, Cell("reference", mark="absent"), score, *blank]
            lines.append(self._line(str(name), [*cells, Cell(covered, 1.0), *_cost(row)]))
        columns = [
            Column("#", "place"), METHOD, Column(RANK), Column("Mean score, %", falling=True),
            Column("Wins", falling=True), *([Column("Group")] if grouped else []), Column("Tasks"),
            Column("Traffic"), Column("Train, s"),
        ]  # fmt: skip
        return Sheet(f"overall:{self.slug}", f"Ranking of board {self.board.suite}", columns, lines)

    def unranked(self) -> Sheet:
        """Who is not complete, what is missing, and why."""
        total, lines = sum(len(seeds) for seeds in self.board.expected.values()), []
        for name in self.incomplete:
            tasks, runs = int(self.board.full[name].sum()), int(self.board.counts[name].sum())
            cells = [
                self._name(name),
                Cell(f"{tasks}/{len(self.board.tasks)}", tasks),
                Cell(f"{runs}/{total}", runs),
                Cell(Markup("<br>").join(map(inline, missing(self.board, name)))),
            ]
            lines.append(self._line(name, cells))
        columns = [METHOD, Column("Tasks", falling=True), Column("Runs", falling=True)]
        columns.append(Column("What is missing", "text"))
        return Sheet(f"incomplete:{self.slug}", f"Incomplete methods of board {self.board.suite}", columns, lines)

    def dead(self) -> list[tuple[str, list[Markup]]]:
        """Tasks without any score, and why."""
        rows = self.board.rows
        return [
            (task, [inline(reason) for reason in reasons(rows[rows["task_label"] == task])])
            for task in self.board.dead_tasks
        ]

    def wide(self) -> Sheet:
        """Every entrant on every task."""
        columns = [METHOD]
        columns += [Column(t, falling=True, note=f"n={len(self.board.expected[t])}") for t in self.board.tasks]
        lines = []
        for name in self.standings.order:
            cells = [self.score(task, name) for task in self.board.tasks]
            lines.append(self._line(name, [self._name(name), *cells]))
        caption = f"Scores on every task of board {self.board.suite}, %"
        return Sheet(f"tasks:{self.slug}", caption, columns, lines, tagged=True)

    def tasks(self) -> list[Task]:
        return [self._task(task) for task in self.board.tasks]

    def score(self, task: str, entrant: str) -> Cell:
        """A score with its mark."""
        best, equal = self.standings.leaders[task]
        value = self.board.measures(task, entrant)["score"] if self.board.counts.loc[task, entrant] else None
        whole = bool(self.board.full.loc[task, entrant])
        marks = {"best": entrant in best, "equal": entrant in equal, "absent": value is None, "partial": not whole}
        mark = next((name for name, holds in marks.items() if holds), "")
        return Cell(inline(cell(self.standings, task, entrant)), value, mark)

    def _task(self, task: str) -> Task:
        lines = []
        for name in order(self.board, task):
            line = self.board.measures(task, name)
            figures = [(show(line[column]), line[column]) for _, column, show in COLUMNS]
            cells = [Cell(shown, value if finite(value) else None) for shown, value in figures]
            lines.append(self._line(name, [self._name(name), self.score(task, name), *cells]))
        rising = {"Best round", "Traffic", "Train, s", "Peak, MiB"}
        columns = [METHOD, Column("Score, %", falling=True)]
        columns += [Column(heading, falling=heading not in rising) for heading, _, _ in COLUMNS]
        sheet = Sheet(f"task:{self.slug}:{slug(task)}", f"{task} on board {self.board.suite}", columns, lines)
        own = self.board.rows[self.board.rows["task_label"] == task]
        sentence = inline(provenance.task_sentence(self.board, task))
        kinds = inline("Score: " + "; ".join(scored_as(own)) + ".")
        return Task(task, sheet, sentence, kinds, [inline(each) for each in trouble(own)])

    @cached_property
    def _settings(self) -> list[str]:
        return provenance.settings(self.board)

    def _tells(self, line: str) -> bool:
        return line == self._settings[0] or line.startswith("- **")

    def _name(self, entrant: str, note: str = "") -> Cell:
        return Cell(inline(md(entrant) + note), entrant)

    def _line(self, entrant: str, cells: list[Cell]) -> Line:
        return Line(entrant, self.board.method_of[entrant], self.standing(entrant), self.scored_as(entrant), cells)


def _cost(row: Any) -> list[Cell]:
    return [Cell(data_size(row.traffic), row.traffic), Cell(number(row.seconds, 1), row.seconds)]
