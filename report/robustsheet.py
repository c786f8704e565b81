"""Who is robust to what, in one table; and the points of the curves behind it."""

from __future__ import annotations

from functools import partial

from .axes import AXES
from .sheet import Sheet, SheetCell, SheetColumn
from .standings import Standings
from .tables import METHOD, Entrant, lines_of
from .text import csv_text, mean_std, percent, points, slug

LEGEND = (
    "Area: the mean score over the strengths of a condition, from none to the greatest (trapezoidal rule), in percent; "
    "mean over datasets, in the second column over conditions too, with the standard deviation over seeds. In "
    "brackets: points less than without the condition."
)
ALONG = (
    " Along a setting of the task (clients, alpha of the labels' Dirichlet shares, homophily) the area lies between "
    "its least and its greatest value, of clients and alpha in logarithms; what is called plain, and without the "
    "condition, is the mild end: fewest clients, greatest alpha, greatest homophily."
)


def legend(standings: Standings) -> str:
    """What the sheet of a board shows."""
    return LEGEND + ALONG if AXES.keys() & {*standings.robustness.conditions} else LEGEND


def robustness_sheet(standings: Standings) -> Sheet:
    """The entrants with all curves by the area under them, and what each loses to every condition."""
    board, table = standings.board, standings.robustness.table
    columns = [
        METHOD,
        SheetColumn("Area, %", _area, falling=True, best=True),
        SheetColumn("Plain, %", _plain, falling=True, best=True),
    ]
    for condition in standings.robustness.conditions:
        title = condition.replace("_", " ").capitalize()
        columns.append(SheetColumn(title, partial(_under, condition), falling=True, best=True))
    figures = table.to_dict("index")
    entrants = [Entrant(standings, str(name), {str(k): v for k, v in own.items()}) for name, own in figures.items()]
    caption = f"Areas under the curves of score against strength on board {board.suite}"
    return Sheet(f"robustness:{slug(board.suite)}", caption, columns, lines_of(columns, entrants))


def _area(entrant: Entrant) -> SheetCell:
    return SheetCell(mean_std(entrant["area"], entrant["std"]), entrant["area"])


def _plain(entrant: Entrant) -> SheetCell:
    return SheetCell(percent(entrant["plain"]), entrant["plain"])


def _under(condition: str, entrant: Entrant) -> SheetCell:
    loss = points(-entrant[f"{condition} loss"])
    return SheetCell(f"{percent(entrant[condition])} ({loss})", entrant[condition])


def curves_csv(standings: Standings) -> str:
    """The points of all curves: mean and deviation over seeds as fractions, six significant digits."""
    runs = standings.robustness.points
    found = runs.groupby(["task", "condition", "strength", "entrant"], sort=True)["score"].agg(["mean", "std", "size"])
    frame = found.reset_index().rename(columns={"entrant": "method", "mean": "score", "std": "score_std", "size": "n"})
    for column in ("task", "method"):
        frame[column] = [csv_text(text) for text in frame[column]]
    return str(frame.to_csv(index=False, lineterminator="\n", float_format="%.6g"))
