"""What the part of a method tells beyond the boards' tables: each task against FedAvg, its versions, its readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from ..answers import AVERAGE
from ..board import Board
from ..duel import compare
from ..papers import papers
from ..sheet import Sheet, SheetCell, SheetColumn, SheetLine, Span
from ..standings import Standings
from ..tables import ABOVE, BELOW
from ..text import ABSENT, finite, number, percent, plain, points, slug

HASH = 12  # characters of a code version


@dataclass(frozen=True)
class PaperReading:
    """How a paper can be read about a method. suite: of a table that has the reading."""

    paper: str
    id: str
    meaning: str
    source: str
    suite: str


def duel_sheet(board: Board, name: str) -> Sheet | None:
    """An entrant against FedAvg on every task where both have scores; None where FedAvg is not on the board."""
    if name == AVERAGE or AVERAGE not in board.entrants:
        return None
    found = compare(board, name, AVERAGE)
    if found is None:
        return None
    clock = "CPU time" if board.clock == "cpu_seconds" else "Training time"
    pair = board.scored[board.scored["entrant"].isin([name, AVERAGE])]
    costs = pair.groupby(["task_label", "entrant"])[["traffic", board.clock]].mean().astype(float)
    shares = costs.xs(name, level="entrant") / costs.xs(AVERAGE, level="entrant").replace(0, float("nan"))
    columns = [
        SheetColumn("Task", lambda line: SheetCell(plain(line["task"]), line["task"]), "text"),
        SheetColumn("Score, %", partial(_percent, "first"), falling=True),
        SheetColumn("FedAvg, %", partial(_percent, "second"), falling=True),
        SheetColumn("Difference, points (95%)", _difference, falling=True),
        SheetColumn("Traffic / FedAvg", partial(_times, shares["traffic"])),
        SheetColumn(f"{clock} / FedAvg", partial(_times, shares[board.clock])),
    ]
    lines = [SheetLine([column.cell(line) for column in columns]) for line in found.tasks.to_dict("records")]
    caption = f"{name} against FedAvg on board {board.suite}"
    return Sheet(f"duel:{slug(board.suite)}:{slug(name)}", caption, columns, lines)


def _percent(column: str, line: pd.Series) -> SheetCell:
    return SheetCell(percent(line[column]), float(line[column]))


def _difference(line: pd.Series) -> SheetCell:
    """In bold, with an arrow, where its interval leaves zero out."""
    low, high, mean = line["low"], line["high"], float(line["difference"])
    if not finite(low):
        return SheetCell(f"{points(mean)} (one seed)", mean)
    text = f"{points(mean)} ({points(low)} to {points(high)})"
    told = ABOVE if low > 0 else BELOW if high < 0 else ""
    return SheetCell((Span(f"{text} {told}", "strong"),), mean) if told else SheetCell(text, mean)


def _times(shares: pd.Series, line: pd.Series) -> SheetCell:
    share = float(shares[line["task"]])
    if not finite(share):
        return SheetCell(ABSENT, None, "absent")
    return SheetCell(f"{share:.2g}x" if share < 1 else f"{number(share, 0 if share >= 10 else 1)}x", share)


def method_versions(boards: Sequence[Standings], method: str) -> Sheet:
    """The code that a method's rows were made with: board, version, rows, commits, days."""
    lines = []
    for standings in boards:
        own = standings.board.rows[standings.board.rows["method"] == method]
        for version, rows in own.groupby("method_version", sort=True):
            commits = sorted({str(sha)[:HASH] or ABSENT for sha in rows["git_sha"].fillna("")})
            days = sorted({str(moment)[:10] for moment in rows["started"]})
            texts = [standings.board.title, str(version)[:HASH], str(len(rows)), ", ".join(commits)]
            texts.append(days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}")
            lines.append(SheetLine([SheetCell(plain(text)) for text in texts]))
    titles = ("Board", "Code version", "Rows", "Commits", "Days")
    columns = [SheetColumn(title, lambda cells: SheetCell(""), "text") for title in titles]
    return Sheet(f"versions:{slug(method)}", f"Code versions of {method}", columns, lines)


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
