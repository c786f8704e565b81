"""How the methods of a board rank on each kind of data."""

from __future__ import annotations

from functools import partial

import pandas as pd

from .datakinds import kind_of_data
from .sheet import Sheet, SheetCell, SheetColumn
from .standings import Standings
from .statistics import ranks
from .tables import METHOD, Entrant, lines_of
from .text import count, number, slug


def kinds_sheet(standings: Standings) -> Sheet | None:
    """The mean rank of every ranked method over the datasets of each kind; None where there is one kind only."""
    by_dataset = standings.board.by_dataset
    kinds = pd.Series({name: kind_of_data(str(name)) for name in by_dataset.index}, dtype=object)
    if kinds.nunique() < 2 or len(by_dataset.columns) < 2:
        return None
    means = ranks(by_dataset).groupby(kinds).mean().round(12)
    sizes = kinds.value_counts()
    suite, columns = standings.board.suite, [METHOD]
    for kind in map(str, means.index):
        note = count(int(sizes[kind]), "dataset")
        columns.append(SheetColumn(kind.capitalize(), partial(_rank, means.loc[kind]), best=True, note=note))
    entrants = [Entrant(standings, str(name)) for name in standings.table.index]
    caption = f"Mean ranks by kind of data on board {suite}"
    return Sheet(f"kinds:{slug(suite)}", caption, columns, lines_of(columns, entrants))


def _rank(means: pd.Series, entrant: Entrant) -> SheetCell:
    return SheetCell(number(means[entrant.name], 1), float(means[entrant.name]))
