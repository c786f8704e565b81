"""The cost of client-level privacy: score by epsilon, compared with the same method without privacy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import pandas as pd

from ..benchmark.store.schema import mapping
from .board import LOCAL, Board
from .cells import Cell, Column, Table
from .display_names import entrant_labels, without
from .groups import display
from .text import ABSENT, finite, mean_std, plain, slug

MIN_NOISES = 3  # amounts of noise that make a curve
NOISE, CLIP = "dp_noise", "dp_clip"  # settings of the training configuration
SETTINGS = (NOISE, CLIP, "dp_delta")
PLACE = ["task", "entrant"]
LEGEND = (
    "Mean and standard deviation of the score over seeds, in percent: without privacy, with clipping only, and with "
    "increasing noise (in units of what one client can add to the average); in brackets epsilon, mean over seeds. "
    "Without noise nothing is private. `local` sends nothing."
)


@dataclass(frozen=True, eq=False)
class PrivacyCost:
    """The curves of a board; most boards have none."""

    board: Board

    @cached_property
    def points(self) -> pd.DataFrame:
        """Indexed `(task, entrant, clip, noise)`: score, std (over seeds) and epsilon (NaN without noise).

        The name of the entry has no privacy settings. clip: 0 without clipping.
        """
        rows = self.board.scored
        training = [mapping(text) for text in rows["training"]]
        runs = pd.DataFrame({
            "task": rows["task_label"],
            "entrant": entrant_labels(rows.assign(training=without(SETTINGS, rows["training"])), rows["task_label"]),
            "clip": [_number(settings.get(CLIP)) for settings in training],
            "noise": [_number(settings.get(NOISE)) for settings in training],
            "epsilon": pd.to_numeric(rows["dp_epsilon"]),
            "score": rows["score"],
        })  # fmt: skip
        grouped = runs.groupby([*PLACE, "clip", "noise"], sort=True)
        points = grouped.agg(score=("score", "mean"), std=("score", "std"), epsilon=("epsilon", "mean"))
        return points.fillna({"std": 0.0})

    @cached_property
    def curves(self) -> dict[tuple[str, str, float], pd.DataFrame]:
        """`(task, entrant, clip)` -> score, std, epsilon by noise; with at least MIN_NOISES amounts of noise."""
        if self.board.scored["dp_epsilon"].isna().all():
            return {}
        lines = {}
        for (task, entrant, clip), points in self.points.groupby([*PLACE, "clip"], sort=True):
            line = points[points["epsilon"] > 0].droplevel([*PLACE, "clip"])
            if len(line) >= MIN_NOISES:
                lines[str(task), str(entrant), float(str(clip))] = line
        return {place: lines[place] for place in sorted(lines, key=_natural_order)}

    @cached_property
    def shown(self) -> list[tuple[str, str, float]]:
        """The curves, and local training without clipping on each of their tasks."""
        tasks = {task for task, _, _ in self.curves}
        local = [(task, LOCAL, 0.0) for task in tasks if (task, LOCAL, 0.0, 0.0) in self.points.index]
        return sorted({*self.curves, *local}, key=_natural_order)

    def level(self, task: str, entrant: str, clip: float = 0.0) -> tuple[float, float]:
        """Mean and deviation of the score without noise, at a clip (0: none); NaN if that was not run."""
        place = (task, entrant, clip, 0.0)
        if place not in self.points.index:
            return float("nan"), float("nan")
        mean, std = self.points.loc[place, ["score", "std"]]
        return float(mean), float(std)


def privacy_table(cost: PrivacyCost) -> Table:
    """One line per task and method: not private, clipped only, and with every amount of noise."""
    noises = sorted({noise for line in cost.curves.values() for noise in line.index})
    several = len({clip for _, _, clip in cost.curves}) > 1
    columns = [
        Column("Task", lambda place: Cell(plain(place[0]), place[0]), "text"),
        Column("Method", lambda place: Cell(plain(display(place[1])), place[1]), "method"),
        *([Column("Clip", lambda place: Cell(f"{place[2]:g}" if place[2] else ABSENT, place[2]))] * several),
        Column("Not private", lambda place: _scored(*cost.level(*place[:2])), falling=True),
        Column("Clip alone", lambda place: _scored(*cost.level(*place)) if place[2] else _scored(), falling=True),
        *(Column(f"Noise {noise:g}", partial(_noisy, cost, noise), falling=True) for noise in noises),
    ]
    id, caption = f"privacy:{slug(cost.board.suite)}", f"Scores by epsilon on board {cost.board.suite}"
    return Table.of(id, caption, columns, cost.shown, lambda place: (place[1], place[1], ""))


def _noisy(cost: PrivacyCost, noise: float, place: tuple[str, str, float]) -> Cell:
    line = cost.curves.get(place, pd.DataFrame())
    return _scored(*line.loc[noise, ["score", "std", "epsilon"]]) if noise in line.index else _scored()


def _scored(mean: float = np.nan, std: float = np.nan, epsilon: float = np.nan) -> Cell:
    if not finite(mean):
        return Cell(ABSENT)
    short = f"{epsilon:,.0f}" if epsilon >= 100 else f"{epsilon:.3g}"
    return Cell(mean_std(mean, std) + (f" (ε {short})" if finite(epsilon) else ""), mean)


def _natural_order(place: tuple[str, str, float]) -> tuple[list[str], tuple[str, str, float]]:
    """Sort key: by name, with 50 clients before 100."""
    return re.sub(r"\d+", lambda digits: digits.group().zfill(6), place[0]).split(), place


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
