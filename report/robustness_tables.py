"""The table of a board under stress conditions: areas under the curves of score against strength."""

from __future__ import annotations

from functools import partial

from .ranking import Ranking
from .sweeps import AXES
from .table import Cell, Column, Table
from .tables import METHOD, Entrant, lines_of
from .text import mean_std, percent, points, slug

AREA_LEGEND = (
    "Area: the mean score over the strengths of a condition, from none to the greatest (trapezoidal rule), in percent; "
    "mean over datasets, in the second column over conditions too, with the standard deviation over seeds. In "
    "brackets: points less than without the condition."
)
AXIS_LEGEND = (
    " Along a setting of the task (clients, alpha of the labels' Dirichlet shares, homophily) the area is between "
    "its least and its greatest value, of clients and alpha in logarithms; what is called plain, and without the "
    "condition, is the mild end: fewest clients, greatest alpha, greatest homophily."
)


def robustness_legend(ranking: Ranking) -> str:
    """What the table of a board shows."""
    return AREA_LEGEND + AXIS_LEGEND if AXES.keys() & {*ranking.robustness.conditions} else AREA_LEGEND


def robustness_table(ranking: Ranking) -> Table:
    """The entries with all curves by the area under them, and what each loses to every condition."""
    board, table = ranking.board, ranking.robustness.table
    columns = [
        METHOD,
        Column("Area, %", _area, falling=True, best=True),
        Column("Plain, %", _plain, falling=True, best=True),
    ]
    for condition in ranking.robustness.conditions:
        title = condition.replace("_", " ").capitalize()
        columns.append(Column(title, partial(_under, condition), falling=True, best=True))
    figures = table.to_dict("index")
    entrants = [Entrant(ranking, str(name), {str(k): v for k, v in values.items()}) for name, values in figures.items()]
    caption = f"Areas under the curves of score against strength on board {board.suite}"
    return Table(f"robustness:{slug(board.suite)}", caption, columns, lines_of(columns, entrants))


def _area(entrant: Entrant) -> Cell:
    return Cell(mean_std(entrant["area"], entrant["std"]), entrant["area"])


def _plain(entrant: Entrant) -> Cell:
    return Cell(percent(entrant["plain"]), entrant["plain"])


def _under(condition: str, entrant: Entrant) -> Cell:
    loss = points(-entrant[f"{condition} loss"])
    return Cell(f"{percent(entrant[condition])} ({loss})", entrant[condition])
