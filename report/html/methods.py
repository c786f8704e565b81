"""The section of a method on the page: its docstring, its place on each board, its curves beside those of FedAvg."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from ...benchmark.store.json_columns import mapping
from ...registry import Parameter
from .. import tables
from ..board import FEDAVG, Board
from ..compare import compare
from ..figures import convergence
from ..groups import UNKNOWN, family, models, uploads
from ..papers import papers
from ..provenance import missing, reasons
from ..ranking import Ranking
from ..table import Cell, Column, Line, Span, Table
from ..tables import ABOVE, BELOW
from ..text import ABSENT, finite, number, percent, plain, points, slug

WIDTH, HEIGHT = 180, 92  # of a panel's field, in CSS pixels
POINTS = 41  # of a line: more cannot be told apart
START = 0.1  # of the rounds, whose scores may lie below the field


@dataclass(frozen=True)
class Panel:
    """Two lines over rounds. own, baseline: points of a polyline; low, high: percent at the foot and the top; ends: the
    last scores in percent."""

    task: str
    own: str
    baseline: str
    low: float
    high: float
    rounds: int
    ends: tuple[float, float]


def panels(curves: Mapping[str, Any] | None, entrant: str, baseline: str) -> list[Panel]:
    """curves: those of a board, as its convergence figure has them. A panel for each task with both lines."""
    found = []
    for each in curves["panels"] if curves else []:
        lines = {line["name"]: line for line in each["lines"]}
        if entrant in lines and baseline in lines:
            found.append(_panel(each["task"], lines[entrant], lines[baseline]))
    return found


def _panel(task: str, own: Mapping[str, Any], baseline: Mapping[str, Any]) -> Panel:
    pair = [(np.asarray(line["round"], dtype=float), 100 * np.asarray(line["mean"])) for line in (own, baseline)]
    late = np.concatenate([values[int(START * len(values)) :] for _, values in pair])
    low, high = float(np.nanmin(late)), float(np.nanmax(late))
    low, high = (low, high) if high > low else (low - 0.5, high + 0.5)
    last = max(rounds.max() for rounds, _ in pair)
    drawn = [_points(*line, low, high, last) for line in pair]
    ends = float(pair[0][1][-1]), float(pair[1][1][-1])
    return Panel(task, drawn[0], drawn[1], low, high, int(last), ends)


def _points(rounds: np.ndarray, values: np.ndarray, low: float, high: float, last: float) -> str:
    kept = np.unique(np.linspace(0, len(rounds) - 1, POINTS).round().astype(int))
    kept = kept[np.isfinite(values[kept])]
    across = WIDTH * rounds[kept] / max(last, 1)
    down = HEIGHT * (1 - (np.maximum(values[kept], low) - low) / (high - low))
    return " ".join(f"{x:.0f},{y:.1f}".removesuffix(".0") for x, y in zip(across, down, strict=True))


HASH = 12  # characters of a code version


@dataclass(frozen=True)
class PaperReading:
    """How a paper can be read about a method. suite: of a table that has the reading."""

    paper: str
    id: str
    meaning: str
    source: str
    suite: str


def comparison_table(board: Board, name: str) -> Table | None:
    """An entrant against FedAvg on every task where both have scores; None where FedAvg is not on the board."""
    if name == FEDAVG or FEDAVG not in board.entrants:
        return None
    found = compare(board, name, FEDAVG)
    if found is None:
        return None
    clock = "CPU time" if board.clock == "cpu_seconds" else "Training time"
    pair = board.scored[board.scored["entrant"].isin([name, FEDAVG])]
    costs = pair.groupby(["task_label", "entrant"])[["traffic", board.clock]].mean().astype(float)
    shares = costs.xs(name, level="entrant") / costs.xs(FEDAVG, level="entrant").replace(0, float("nan"))
    columns = [
        Column("Task", lambda line: Cell(plain(line["task"]), line["task"]), "text"),
        Column("Score, %", partial(_percent, "first"), falling=True),
        Column("FedAvg, %", partial(_percent, "second"), falling=True),
        Column("Difference, points (95%)", _difference, falling=True),
        Column("Traffic / FedAvg", partial(_times, shares["traffic"])),
        Column(f"{clock} / FedAvg", partial(_times, shares[board.clock])),
    ]
    lines = [Line([column.cell(line) for column in columns]) for line in found.tasks.to_dict("records")]
    caption = f"{name} against FedAvg on board {board.suite}"
    return Table(f"duel:{slug(board.suite)}:{slug(name)}", caption, columns, lines)


def _percent(column: str, line: pd.Series) -> Cell:
    return Cell(percent(line[column]), float(line[column]))


def _difference(line: pd.Series) -> Cell:
    """In bold, with an arrow, where its interval leaves zero out."""
    low, high, mean = line["low"], line["high"], float(line["difference"])
    if not finite(low):
        return Cell(f"{points(mean)} (one seed)", mean)
    text = f"{points(mean)} ({points(low)} to {points(high)})"
    told = ABOVE if low > 0 else BELOW if high < 0 else ""
    return Cell((Span(f"{text} {told}", "strong"),), mean) if told else Cell(text, mean)


def _times(shares: pd.Series, line: pd.Series) -> Cell:
    share = float(shares[line["task"]])
    if not finite(share):
        return Cell(ABSENT, None, "absent")
    return Cell(f"{share:.2g}x" if share < 1 else f"{number(share, 0 if share >= 10 else 1)}x", share)


def method_versions(boards: Sequence[Ranking], method: str) -> Table:
    """The code that a method's rows were made with: board, version, rows, commits, days."""
    lines = []
    for ranking in boards:
        own = ranking.board.rows[ranking.board.rows["method"] == method]
        for version, rows in own.groupby("method_version", sort=True):
            commits = sorted({str(sha)[:HASH] or ABSENT for sha in rows["git_sha"].fillna("")})
            days = sorted({str(moment)[:10] for moment in rows["started"]})
            texts = [ranking.board.title, str(version)[:HASH], str(len(rows)), ", ".join(commits)]
            texts.append(days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}")
            lines.append(Line([Cell(plain(text)) for text in texts]))
    titles = ("Board", "Code version", "Rows", "Commits", "Days")
    columns = [Column(title, lambda cells: Cell(""), "text") for title in titles]
    return Table(f"versions:{slug(method)}", f"Code versions of {method}", columns, lines)


def readings_of(method: str) -> list[PaperReading]:
    """What the papers leave open about a method, each reading once."""
    found: dict[tuple[str, str], PaperReading] = {}
    for paper in papers():
        for suite, table in paper.tables.items():
            for own in paper.readings_of(table):
                if method in own.methods:
                    known = PaperReading(paper.name, own.id, own.meaning, own.source, suite)
                    found.setdefault((paper.name, own.id), known)
    return list(found.values())


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
    scores: dict[str, Cell]  # by task
    status: str
    backbone: str
    troubles: list[str]
    duel: Table | None  # against FedAvg, task by task
    panels: list[Panel]  # its curves beside FedAvg's

    @classmethod
    def of(cls, ranking: Ranking, name: str, curves: Mapping[str, Any] | None) -> Appearance:
        board, entrant = ranking.board, tables.ranked_entrant(ranking, name)
        own = board.rows[board.rows["entrant"] == name]
        troubles = missing(board, name)
        for task in board.dead_tasks:
            troubles += [f"{plain(task)}: {reason}" for reason in reasons(own[own["task_label"] == task])]
        scores = {task: tables.score(task, entrant) for task in board.tasks}
        backbone = ", ".join(sorted(set(own["backbone"])))
        beside = panels(curves, name, FEDAVG) if name != FEDAVG else []
        return cls(entrant, scores, board.status(name), backbone, troubles, comparison_table(board, name), beside)

    @property
    def place(self) -> str:
        """Its place by mean rank, with its letters."""
        order, groups = self.entrant.ranking.inference.order, self.entrant.ranking.inference.groups
        place = f"place {order.index(self.entrant.name) + 1} of {len(order)}"
        return f"{place} ({groups[self.entrant.name]})" if groups else place

    def marked(self, mark: str) -> dict[str, Cell]:
        """The scores on the tasks where it leads ("best"), or is not told apart from who does ("equal")."""
        return {task: cell for task, cell in self.scores.items() if cell.mark == mark}


def columns() -> list[Column]:
    """What of a ranking is said of each board. The place is told with how many there are, who leads below the table."""
    left = ("Group", "Method", "Wins", "Uploads", "Published")
    return [column for column in tables.RANKING if column.title not in left]


@dataclass(frozen=True)
class MethodPart:
    name: str
    card: Card | None
    places: list[Appearance]
    used: dict[str, list[str]]  # parameter -> its values in the rows
    versions: Table
    readings: list[PaperReading]

    @property
    def traits(self) -> dict[str, list[str]]:
        """By what it can be chosen among all methods."""
        name = self.name
        return {"family": [family(name)], "uploads": uploads(name) or [UNKNOWN], "models": [models(name)]}

    def marked(self, mark: str) -> int:
        """On how many tasks it leads, or is not told apart."""
        return sum(len(place.marked(mark)) for place in self.places)


def method_parts(boards: Sequence[Ranking], cards: Mapping[str, Card]) -> list[MethodPart]:
    """The methods that have rows, by name."""
    places: dict[str, list[Appearance]] = {}
    used: dict[str, dict[str, set[str]]] = {}
    for ranking in boards:
        curves = convergence.data(ranking.plain)
        for entrant, method in sorted(ranking.board.method_of.items()):
            places.setdefault(method, []).append(Appearance.of(ranking, entrant, curves))
        for method, params in ranking.board.rows[["method", "method_params"]].drop_duplicates().itertuples(index=False):
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
