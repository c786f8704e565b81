"""What each client of a user's own data gains by joining: a table of sites by methods."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from .board import LOCAL, Board
from .ranking import Ranking
from .table import Cell, Column, Line, Table
from .tables import order
from .text import ABSENT, finite, plain, points, score_text, slug

OWN = "own:"  # how datasets of users are called


def site_scores(board: Board, task: str) -> pd.DataFrame:
    """Clients (their names, or their numbers from 0) x entries: the score of each, mean over seeds; NaN without one.

    Empty where no row of the task has stored figures per client.
    """
    scores: dict[str, list[np.ndarray]] = {}
    rows = board.scored[board.scored["task_label"] == task]
    for entrant, key in zip(rows["entrant"], rows["key"], strict=True):
        if len(of_clients := board.per_client(str(key))):
            scores.setdefault(str(entrant), []).append(of_clients)
    if not scores:
        return pd.DataFrame()
    sizes = {len(of_clients) for each in scores.values() for of_clients in each}
    if len(sizes) > 1:
        return pd.DataFrame()
    table = pd.DataFrame({entrant: np.mean(each, axis=0) for entrant, each in scores.items()})
    row = rows.iloc[0]
    names = board.sites.get(str(row["dataset_fingerprint"]), ()) if row["partition"] == "own" else ()
    table.index = pd.Index(names if len(names) == len(table) else [f"client {k}" for k in range(len(table))])
    return table


def sites_table(ranking: Ranking, task: str) -> Table | None:
    """Sites x methods: each method's score, and in brackets its difference from local training at this site, in points.

    None for datasets without real sites, and where nothing is known of the clients.
    """
    board = ranking.board
    scores = site_scores(board, task) if str(board.task_row(task)["dataset"]).startswith(OWN) else pd.DataFrame()
    if scores.empty:
        return None
    alone = next((name for name in map(str, scores) if board.method_of[name] == LOCAL), None)
    columns = [Column("Site", lambda site: Cell(plain(site), site), "text")]
    for entrant in [name for name in order(board, task) if name in scores]:
        base = None if alone is None or entrant == alone else scores[alone]
        columns.append(Column(plain(entrant), _column(scores[entrant], base), falling=True))
    lines = [Line([column.cell(site) for column in columns]) for site in scores.index]
    return Table(f"sites:{slug(board.suite)}:{slug(task)}", f"Sites of {task}", columns, lines)


def _column(scores: pd.Series, alone: pd.Series | None) -> Callable[[str], Cell]:
    def cell(site: str) -> Cell:
        value = float(scores[site])
        if not finite(value):
            return Cell(ABSENT)
        if alone is None or not finite(float(alone[site])):
            return Cell(score_text(value), value)
        return Cell(f"{score_text(value)} ({points(value - float(alone[site]))})", value)

    return cell
