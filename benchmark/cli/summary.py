"""Scores of rows as tables on the terminal: method, mean and sd, difference from FedAvg, traffic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING

from rich.table import Table

from .output import plain_console, plain_table

if TYPE_CHECKING:
    from ...report.board import Board
    from ...report.ranking import Ranking
    from ..store.schema import Row

SHOWN = 6  # tasks; of more, their number
BASELINE = "fedavg"


def show_scores(rows: Iterable[Row]) -> None:
    """Print a table for each task of rows with a score; nothing where no row has one.

    The difference is that of paired seeds, in points, with a 95% t interval; it needs two seeds.
    """
    scored = [row for row in rows if row.status == "ok" and row.score is not None]
    if not scored:
        return
    from ...report.board import Board
    from ...report.loading import frame

    boards = [
        Board.build(suite, frame(row for row in scored if row.suite == suite))
        for suite in dict.fromkeys(row.suite for row in scored)
    ]
    tables = [table for board in boards for table in _tables(board)]
    console = plain_console()
    for table in tables[:SHOWN]:
        console.print()
        console.print(table)
    if len(tables) > SHOWN:
        console.print(f"\n{len(tables) - SHOWN} more tasks: see the report")


def show_ranking(ranking: Ranking) -> list[Table]:
    """Print the ranked methods of a board: mean score and rank over datasets, difference from FedAvg, traffic.

    Differences and verdicts are those of the leaderboard. A board of one dataset, or without a ranking, is shown as
    `show_scores` shows rows. Returns what is shown.
    """
    from ...metrics import sign
    from ...report.statistics import ranks
    from ...report.tables import difference_cell
    from ...report.text import data_size, score_text, unit

    board = ranking.board
    console, scores = plain_console(), board.by_dataset.loc[board.datasets_of(board.metric)]
    if len(scores) < 2 or len(scores.columns) < 2:
        shown = list(_tables(board))[:SHOWN]
        for table in shown:
            console.print()
            console.print(table)
        return shown
    means, places = scores.mean(), ranks(scores).mean()
    traffic = board.grid("traffic").median()
    base = next((str(name) for name in scores if board.method_of[str(name)] == BASELINE), None)
    against = ranking.inference.against.get(base or "", {})
    titles = [] if base is None else [f"vs {base} (95% interval)"]
    metric = unit("score" if sign(board.metric) > 0 else board.metric)
    table = plain_table(f"{board.title}, {len(scores)} datasets", "mean rank", metric, *titles, "traffic (median)",
                        numeric=True)  # fmt: skip
    for name in places.sort_values(kind="stable").index:
        cells = [f"{places[name]:.2f}", score_text(float(means[name]), 1)]
        if base is not None and name == base:
            cells.append("baseline")
        elif base is not None:
            cells.append(str(difference_cell(against.get(name)).text))
        table.add_row(str(name), *cells, data_size(float(traffic[name])))
    console.print()
    console.print(table)
    return [table]


def _tables(board: Board) -> Iterator[Table]:
    from ...report.statistics import paired_difference
    from ...report.text import data_size, mean_std, points, unit

    for task in board.tasks:
        seeds, measures = board.seeds_of(task), {name: board.measures(task, name) for name in board.entrants}
        base = next((str(name) for name in seeds if board.method_of[str(name)] == BASELINE), None)
        metric = board.metrics[str(board.task_row(task)["dataset"])]
        against = [] if base is None else [f"vs {base} (95% interval)"]
        table = plain_table(task, f"{unit(metric)} (mean ± sd)", "seeds", *against, "traffic", numeric=True)
        for entrant, scores in sorted(measures.items(), key=lambda each: -each[1].get("score", -inf)):
            if not scores:
                continue
            cells = [mean_std(scores["score"], scores["score_std"], 1), f"{scores['n']:.0f}"]
            if base is not None and entrant == base:
                cells.append("baseline")
            elif base is not None:
                both = seeds[[entrant, base]].dropna()
                gap = paired_difference(both[entrant], both[base])
                known = gap.low == gap.low
                cells.append(points(gap.mean) + (f" ({points(gap.low)} to {points(gap.high)})" if known else ""))
            table.add_row(str(entrant), *cells, data_size(scores["traffic"]))
        yield table
