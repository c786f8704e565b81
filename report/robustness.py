"""Curves of score against the strength of a stress condition, or against a setting of the task that a board varies
(number of clients, label skew, homophily), the areas under them, and their table.

The area is computed by the trapezoidal rule, from strength 0 (the plain task) to the greatest strength, or over the
range of the setting. It is divided by the width of this range: a mean score that does not depend on the spacing of the
points. Numbers of clients and alpha are on a logarithmic scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from ..benchmark.store.schema import mapping, strength
from .board import Board
from .cells import Cell, Column, Table, cells_by_name, numbers_by_name
from .display_names import task_labels
from .groups import METHOD
from .sweeps import AXES, along, axis
from .text import csv_text, mean_std, percent, points, slug

MIN_STRENGTHS = 3  # strengths of a curve, including 0
POINT = ["task", "condition", "strength", "entrant", "seed"]


@dataclass(frozen=True, eq=False)
class Robustness:
    """The curves of a board; most boards have none."""

    board: Board

    @cached_property
    def points(self) -> pd.DataFrame:
        """One line per run on a curve: `POINT` and score. condition: a stress condition, or the axis whose value is
        `strength`. task: the label without it."""
        frames = [self._conditions]
        for name, of_task in AXES.items():
            rows = along(self.board.scored, of_task).rename(columns={"value": "strength"})
            frames.append(rows.assign(condition=name)[[*POINT, "score"]])
        points = pd.concat([frame for frame in frames if len(frame)] or frames[:1])
        return points.sort_values(POINT, ignore_index=True)

    @cached_property
    def _by_conditions(self) -> pd.DataFrame:
        """The scored rows with `of`, their conditions, and `task`, the label without these; empty if all are plain."""
        rows = self.board.scored
        if (rows["conditions"] == "{}").all():
            return rows[:0]
        return rows.assign(task=task_labels(rows.assign(conditions="{}")), of=rows["conditions"].map(mapping))

    @cached_property
    def _conditions(self) -> pd.DataFrame:
        """The runs under at most one condition. A plain run is strength 0 of every condition of its task."""
        rows = self._by_conditions
        if rows.empty:
            return pd.DataFrame(columns=[*POINT, "score"])
        single = rows[rows["of"].map(len) == 1]
        pairs = [pair for of in single["of"] for pair in of.items()]
        stressed = single.assign(condition=[name for name, _ in pairs], strength=[strength(*pair) for pair in pairs])
        tried = stressed[["task", "condition"]].drop_duplicates()
        plain = rows[rows["of"].map(len) == 0].merge(tried, on="task").assign(strength=0.0)
        return pd.concat([plain, stressed])[[*POINT, "score"]]

    @cached_property
    def curves(self) -> dict[tuple[str, str], pd.DataFrame]:
        """(task, condition) -> scores, `(entrant, seed)` x strengths, of entries with all seeds at all strengths."""
        grids = {}
        for (task, condition), runs in self.points.groupby(["task", "condition"], sort=True):
            grid = runs.pivot_table(index=["entrant", "seed"], columns="strength", values="score", aggfunc="last")
            complete = grid.dropna()
            seeds = grid.index.get_level_values("seed").nunique()
            counts = complete.groupby(level="entrant").size()
            kept = complete[complete.index.get_level_values("entrant").isin(counts.index[counts == seeds])]
            has_start = condition in AXES or 0.0 in kept.columns
            if len(kept) and has_start and len(kept.columns) >= MIN_STRENGTHS:
                grids[str(task), str(condition)] = kept
        return grids

    @cached_property
    def without_curve(self) -> list[str]:
        """The tasks under conditions that are no point of a curve."""
        rows = self._by_conditions
        if rows.empty:
            return []
        tasks = zip(rows["task_label"], rows["task"], rows["of"], strict=True)
        return sorted({label for label, task, of in tasks if of and not (len(of) == 1 and (task, *of) in self.curves)})

    @cached_property
    def conditions(self) -> list[str]:
        return list(dict.fromkeys(condition for _, condition in self.curves))

    @cached_property
    def areas(self) -> pd.DataFrame:
        """`(entrant, seed)` x (task, condition): the area under each curve, of entries with all curves."""
        by_place = {place: area(grid, axis(place[1]).ratios) for place, grid in self.curves.items()}
        return pd.DataFrame(by_place).dropna() if by_place else pd.DataFrame()

    @cached_property
    def plain(self) -> pd.DataFrame:
        """`(entrant, seed)` x (task, condition): the score at strength 0, or at the mildest value of an axis."""
        scores = {place: grid[axis(place[1]).mildest(grid.columns)] for place, grid in self.curves.items()}
        return pd.DataFrame(scores).reindex(self.areas.index)

    @cached_property
    def table(self) -> pd.DataFrame:
        """Entries by area: area and std (over seeds) of the mean over tasks and conditions, plain, and for each
        condition its area and "CONDITION loss", plain minus area, both means over tasks and seeds."""
        if self.areas.empty:
            return pd.DataFrame(columns=["area", "std", "plain"])
        table = pd.DataFrame(index=self.areas.index.get_level_values("entrant").unique())
        by_condition = pd.DataFrame({name: _over_tasks(self.areas, name) for name in self.conditions})
        means = by_condition.mean(axis=1).groupby(level="entrant")
        table["area"] = means.mean()
        table["std"] = means.std(ddof=1)
        table["plain"] = _over_seeds(self.plain.mean(axis=1))
        for name in self.conditions:
            table[name] = _over_seeds(by_condition[name])
            table[f"{name} loss"] = _over_seeds(_over_tasks(self.plain, name)) - table[name]
        return table.sort_values("area", ascending=False, kind="stable")


def area(grid: pd.DataFrame, ratios: bool = False) -> pd.Series:
    """The area under each line of a grid (lines, strengths), divided by the width; strengths are the columns, in
    increasing order. ratios: take the logarithms of strengths."""
    strengths = grid.columns.to_numpy(dtype=float)
    strengths = np.log(strengths) if ratios else strengths
    scores = grid.to_numpy(dtype=float)
    under = np.diff(strengths) * (scores[:, 1:] + scores[:, :-1]) / 2
    return pd.Series(under.sum(axis=1) / (strengths[-1] - strengths[0]), index=grid.index)


def _over_tasks(values: pd.DataFrame, condition: str) -> pd.Series:
    return pd.DataFrame(values.xs(condition, axis=1, level=1)).mean(axis=1)


def _over_seeds(values: pd.Series) -> pd.Series:
    return values.groupby(level="entrant").mean()


def curves_csv(robustness: Robustness) -> str:
    """The points of all curves as CSV: mean and deviation over seeds as fractions, six significant digits."""
    runs = robustness.points
    grouped = runs.groupby(["task", "condition", "strength", "entrant"], sort=True)["score"]
    frame = grouped.agg(["mean", "std", "size"]).reset_index()
    frame = frame.rename(columns={"entrant": "method", "mean": "score", "std": "score_std", "size": "n"})
    for column in ("task", "method"):
        frame[column] = [csv_text(text) for text in frame[column]]
    return str(frame.to_csv(index=False, lineterminator="\n", float_format="%.6g"))


AREA_LEGEND = (
    "Area: the mean score over the strengths of a condition, from 0 to the greatest (trapezoidal rule), in percent, "
    "mean over datasets. The column *Area* is also a mean over conditions, with the standard deviation over seeds. In "
    "brackets: the difference from the score without the condition, in points."
)
AXIS_LEGEND = (
    " For a setting of the task (clients, alpha of the labels' Dirichlet shares, homophily) the area is between the "
    "least and the greatest value, with logarithms of clients and alpha. *Plain* is then the mild end: fewest clients, "
    "greatest alpha, greatest homophily."
)


def robustness_legend(robustness: Robustness) -> str:
    """The legend of `robustness_table`."""
    return AREA_LEGEND + AXIS_LEGEND if AXES.keys() & {*robustness.conditions} else AREA_LEGEND


def robustness_table(robustness: Robustness) -> Table:
    """The entries with all curves, by mean area: area and loss under every condition."""
    board, table = robustness.board, robustness.table
    areas = zip(table.index, table["area"], table["std"], strict=True)
    area = {name: Cell(mean_std(mean, std), float(mean)) for name, mean, std in areas}
    columns = [
        METHOD,
        Column("Area, %", cells_by_name(area), falling=True, best=True),
        Column("Plain, %", numbers_by_name(table["plain"], percent), falling=True, best=True),
    ]
    for condition in robustness.conditions:
        losses = zip(table.index, table[condition], table[f"{condition} loss"], strict=True)
        under = {name: Cell(f"{percent(mean)} ({points(-loss)})", float(mean)) for name, mean, loss in losses}
        title = condition.replace("_", " ").capitalize()
        columns.append(Column(title, cells_by_name(under), falling=True, best=True))
    caption = f"Areas under the curves of score against strength on board {board.suite}"
    return Table.of(f"robustness:{slug(board.suite)}", caption, columns, table.index, board.entry)
