"""Other ways to score the same runs, the order of the methods under each, and how far these rankings agree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from .board import Board
from .groups import display
from .statistics import ranks
from .table import Cell, Column, Line, Table
from .text import finite, number, plain, slug

LAST = "Last round"
MEASURES = {"Selected round": "score", LAST: "", "Macro-F1": "macro_f1", "Own model": "personal_on_local"}
MIN_METHODS = 3  # methods: fewer have no order to speak of


@dataclass(frozen=True, eq=False)
class AlternativeRankings:
    """order: the ranked entries as the board has them."""

    board: Board
    order: list[str]

    @cached_property
    def mean_ranks(self) -> pd.DataFrame:
        """Ranked entries x measures: mean rank over datasets among those that have the measure on every task."""
        by_measure = {}
        for name, column in MEASURES.items():
            grid = self._last if name == LAST else self.board.grid(column)
            full = grid.reindex(columns=self.order).dropna(axis=1)
            if len(grid) == len(self.board.tasks) and full.shape[1] >= MIN_METHODS:
                by_measure[name] = ranks(self.board.averaged(full)).mean()
        return pd.DataFrame(by_measure, index=self.order)

    @cached_property
    def agreement(self) -> pd.DataFrame:
        """Kendall's tau of every two measures over the entries that have both."""
        return self.mean_ranks.corr("kendall", min_periods=MIN_METHODS)

    @property
    def _last(self) -> pd.DataFrame:
        """Tasks x entries: the score at the last round that was run, mean over seeds; only of whole curves."""
        curves = self.board.score_curves.sort_values("round", kind="stable")
        ends = curves.groupby(["task_label", "entrant", "seed"])["value"].last()
        grouped = ends.groupby(level=["task_label", "entrant"])
        grid, counts = grouped.mean().unstack("entrant"), grouped.size().unstack("entrant")
        expected = pd.Series({task: len(seeds) for task, seeds in self.board.expected.items()})
        return grid.where(counts.eq(expected.reindex(grid.index), axis=0))


def mean_rank_table(rankings: AlternativeRankings) -> Table:
    """The mean rank of each method under every measure."""
    table = rankings.mean_ranks
    columns = [Column("Method", lambda name: Cell(plain(display(name)), name), "method")]
    for measure in table.columns:
        columns.append(Column(measure, _from(table[measure]), best=True))
    lines = [Line([column.cell(name) for column in columns], name, rankings.board.method_of[name], "ranked")
             for name in table.index]  # fmt: skip
    return Table(f"orders:{slug(rankings.board.suite)}", f"Mean ranks on board {rankings.board.suite}", columns, lines)


def agreement_table(rankings: AlternativeRankings) -> Table:
    """Kendall's tau between the measures."""
    table = rankings.agreement
    columns = [Column("Kendall's tau", lambda name: Cell(name, name), "text")]
    columns += [Column(measure, _from(table[measure])) for measure in table.columns]
    lines = [Line([column.cell(name) for column in columns]) for name in table.index]
    return Table(
        f"taus:{slug(rankings.board.suite)}", f"Agreement of orders on board {rankings.board.suite}", columns, lines
    )


def _from(values: pd.Series) -> Callable[[str], Cell]:
    def cell(name: str) -> Cell:
        value = float(values[name])
        return Cell(number(value), value if finite(value) else None)

    return cell
