"""Other ways to score the same runs, the order of the methods under each, and how far these orders agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from .board import Board
from .sheet import Sheet, SheetCell, SheetColumn, SheetLine
from .statistics import ranks
from .text import finite, number, plain, slug

LAST = "Last round"
MEASURES = {"Selected round": "score", LAST: "", "Macro-F1": "macro_f1", "Own model": "personal_on_local"}
LEAST = 3  # methods: fewer have no order to speak of


@dataclass(frozen=True, eq=False)
class Orders:
    """order: the ranked entrants as the board has them."""

    board: Board
    order: list[str]

    @cached_property
    def mean_ranks(self) -> pd.DataFrame:
        """Ranked entrants x measures: mean rank over datasets among those that have the measure on every task."""
        found = {}
        for name, column in MEASURES.items():
            grid = self._last if name == LAST else self.board.grid(column)
            full = grid.reindex(columns=self.order).dropna(axis=1)
            if len(grid) == len(self.board.tasks) and full.shape[1] >= LEAST:
                found[name] = ranks(self.board.averaged(full)).mean()
        return pd.DataFrame(found, index=self.order)

    @cached_property
    def agreement(self) -> pd.DataFrame:
        """Kendall's tau of every two measures over the entrants that have both."""
        return self.mean_ranks.corr("kendall", min_periods=LEAST)

    @property
    def _last(self) -> pd.DataFrame:
        """Tasks x entrants: the score at the last round that was run, mean over seeds; only of whole curves."""
        curves = self.board.score_curves.sort_values("round", kind="stable")
        ends = curves.groupby(["task_label", "entrant", "seed"])["value"].last()
        grouped = ends.groupby(level=["task_label", "entrant"])
        grid, counts = grouped.mean().unstack("entrant"), grouped.size().unstack("entrant")
        expected = pd.Series({task: len(seeds) for task, seeds in self.board.expected.items()})
        return grid.where(counts.eq(expected.reindex(grid.index), axis=0))


def orders_sheet(orders: Orders) -> Sheet:
    """The mean rank of each method under every measure."""
    table = orders.mean_ranks
    columns = [SheetColumn("Method", lambda name: SheetCell(plain(name), name), "method")]
    for measure in table.columns:
        columns.append(SheetColumn(measure, _from(table[measure]), best=True))
    lines = [SheetLine([column.cell(name) for column in columns], name, orders.board.method_of[name], "ranked")
             for name in table.index]  # fmt: skip
    return Sheet(f"orders:{slug(orders.board.suite)}", f"Mean ranks on board {orders.board.suite}", columns, lines)


def agreement_sheet(orders: Orders) -> Sheet:
    """Kendall's tau between the measures."""
    table = orders.agreement
    columns = [SheetColumn("Kendall's tau", lambda name: SheetCell(name, name), "text")]
    columns += [SheetColumn(measure, _from(table[measure])) for measure in table.columns]
    lines = [SheetLine([column.cell(name) for column in columns]) for name in table.index]
    return Sheet(
        f"taus:{slug(orders.board.suite)}", f"Agreement of orders on board {orders.board.suite}", columns, lines
    )


def _from(values: pd.Series) -> Callable[[str], SheetCell]:
    def cell(name: str) -> SheetCell:
        value = float(values[name])
        return SheetCell(number(value), value if finite(value) else None)

    return cell
