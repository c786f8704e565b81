"""The settings of a study's trials: one table of optimiser settings for all methods, and a method's own parameters.

Every method is tried with the rows of `TABLE`, in the same order. A method with its own SGD takes its learning rate
from the last column. The method's own parameters are sampled by a scrambled Halton sequence. Trial 0 is always the
setting of the suite.

A suite with `tune: {sampler: random}` draws both at random from the same ranges, for each method and dataset, to check
whether scores and ranks of methods depend on the table.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import qmc

from ...methods import METHODS
from ...registry import Spec, UserError, searched, sgd_rates
from ..store.provenance import canonical
from ..suites.cell import Cell
from ..suites.suite import Sampler
from ..suites.tuned import Values

MOST_OWN = 2  # most tuned parameters of a method, so that no method has a much larger space
SCRAMBLE = 0  # seed of the Halton sequence


class Row(NamedTuple):
    """An optimiser setting. sgd_rate: the learning rate of a method with its own SGD."""

    optimiser: str
    rate: float
    weight_decay: float
    dropout: float
    sgd_rate: float


# SGD from 0.05 to 3, Adam from 0.001 to 0.1. The default of most suites, Adam 0.01 with 5e-4 and 0.5, is trial 0.
# The first seven rows span both ranges, so that a study of few trials does too; the other eight fill them.
TABLE = (
    Row("adam", 0.03, 0.0, 0.5, 1.0),
    Row("sgd", 1.5, 5e-4, 0.5, 0.25),
    Row("adam", 0.003, 5e-3, 0.5, 0.1),
    Row("sgd", 0.5, 0.0, 0.5, 1.5),
    Row("sgd", 0.1, 5e-4, 0.0, 0.05),
    Row("sgd", 3.0, 5e-3, 0.7, 3.0),
    Row("adam", 0.1, 5e-4, 0.7, 0.5),
    Row("sgd", 1.0, 5e-4, 0.5, 2.0),
    Row("adam", 0.03, 5e-3, 0.5, 0.5),
    Row("adam", 0.01, 5e-4, 0.7, 0.25),
    Row("sgd", 2.0, 0.0, 0.5, 0.5),
    Row("adam", 0.001, 0.0, 0.0, 0.1),
    Row("sgd", 1.0, 5e-3, 0.7, 1.5),
    Row("sgd", 0.25, 0.0, 0.5, 2.0),
    Row("sgd", 0.05, 5e-4, 0.5, 0.05),
)
TRIALS = 1 + len(TABLE)  # of a study
RANDOM_TRIALS = 64  # draws of a random design; a study uses the first ones
GRAPHS = 0.01  # factor of SGD rates for sets of graphs, where sums over nodes make gradients large


def random_rows(rng: np.random.Generator) -> tuple[Row, ...]:
    """Optimiser settings from the ranges of `TABLE`: rates and decay log-uniform, a quarter without weight decay."""

    def log_uniform(low: float, high: float) -> float:
        return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.3g}")

    return tuple(
        Row(
            optimiser := str(rng.choice(["adam", "sgd"])),
            log_uniform(0.001, 0.1) if optimiser == "adam" else log_uniform(0.05, 3),
            0.0 if rng.random() < 0.25 else log_uniform(1e-4, 1e-2),
            round(float(rng.uniform(0, 0.7)), 2),
            log_uniform(0.05, 3),
        )
        for _ in range(RANDOM_TRIALS)
    )


class Dimension(NamedTuple):
    """name: as in `--set`, for example `method.mu`. default: the suite's value. choices: all values, with the default;
    each is canonical JSON of the fields that it sets."""

    name: str
    default: str
    choices: tuple[str, ...]


class Design:
    """The trials of a cell's study, by `sampler`: "table" or "random". UserError for a value outside its field's
    bounds, for more than `MOST_OWN` parameters, and for a cell with nothing to tune."""

    def __init__(self, cell: Cell, sampler: Sampler = "table") -> None:
        self.cell = cell
        method = METHODS.cls(cell.method.name)
        self.specific = _parameters(cell, method)
        if len(self.specific) > MOST_OWN:
            raise UserError(
                f"{method.name} tunes {len(self.specific)} parameters of its own; at most {MOST_OWN} are allowed"
            )
        if sampler == "random":
            rng = np.random.default_rng(zlib.crc32(f"{method.name} {cell.dataset.name}".encode()))
            table = random_rows(rng)
            self._draws = rng.random((len(table), max(1, len(self.specific))))
        else:
            table = TABLE
            self._draws = qmc.Halton(max(1, len(self.specific)), scramble=True, rng=SCRAMBLE).random(len(TABLE))
        columns = _columns(cell, method, table)
        self.shared = [
            Dimension(name, default, tuple(dict.fromkeys([default, *column])))
            for name, (default, column) in columns.items()
            if _has_effect(cell, name, column)
        ]
        self.rows = [
            {dimension.name: columns[dimension.name][1][i] for dimension in self.shared} for i in range(len(table))
        ]
        if not self.dimensions:
            raise UserError(f"{method.name} has nothing to tune: no field has a range that changes {cell}")

    @property
    def dimensions(self) -> list[Dimension]:
        """The dimensions that all methods share, then the method's own."""
        return [*self.shared, *self.specific]

    @property
    def own_settings(self) -> int:
        """Settings of the method's own parameters: the product of their choices."""
        return math.prod(len(dimension.choices) for dimension in self.specific)

    def points(self, trials: int | None = None) -> list[dict[str, str]]:
        """The first `trials` points: dimension name -> choice. Point 0 is the suite's setting.

        trials: None: `TRIALS`, or all points if the design has fewer. A study of more trials begins with the points of
        a smaller one. UserError if the design has fewer points than `trials`.
        """
        most = TRIALS if trials is None else trials
        settings = {self.cell.key: {dimension.name: dimension.default for dimension in self.dimensions}}
        for row, draw in zip(self.rows, self._draws, strict=True):
            if len(settings) >= most:
                break
            chosen = {
                dimension.name: dimension.choices[int(u * len(dimension.choices))]
                for dimension, u in zip(self.specific, draw, strict=False)
            }
            point = {**row, **chosen}
            settings.setdefault(applied(self.cell, point).key, point)
        if trials is not None and len(settings) < trials:
            where = f"{self.cell.method.name} has only {len(settings)} settings on {self.cell.dataset.name}"
            raise UserError(f"{where}; use --trials {len(settings)}")
        return list(settings.values())[:most]


def _columns(cell: Cell, method: type[Spec], table: Sequence[Row]) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Name of a dimension -> the suite's value and that of each row of the table, as canonical JSON."""
    unit = GRAPHS if cell.task == "graph-classification" else 1.0
    columns: dict[str, list[dict[str, Any]]] = {
        "training.optimiser": [
            {"optimiser": row.optimiser, "lr": round(unit * row.rate, 6) if row.optimiser == "sgd" else row.rate}
            for row in table
        ],
        "training.weight_decay": [{"weight_decay": row.weight_decay} for row in table],
    }
    if "dropout" in cell.backbones[0].params:
        columns["backbone.dropout"] = [{"dropout": row.dropout} for row in table]
    for name in sgd_rates(method):
        columns[f"method.{name}"] = [{name: round(unit * row.sgd_rate, 6)} for row in table]
    known = {"training": dict(cell.training), "backbone": cell.backbones[0].params, "method": cell.method.params}
    own = {name: {field: known[name.partition(".")[0]][field] for field in columns[name][0]} for name in columns}
    return {name: (canonical(own[name]), tuple(map(canonical, column))) for name, column in columns.items()}


def _parameters(cell: Cell, method: type[Spec]) -> list[Dimension]:
    """The method's own parameters that change the cell, with the suite's value among the choices."""
    dimensions = []
    for field, settings in searched(method).items():
        default = canonical({name: cell.method.params[name] for name in settings[0]})
        choices = tuple(dict.fromkeys([*map(canonical, settings), default]))
        if _has_effect(cell, f"method.{field}", choices):
            dimensions.append(Dimension(f"method.{field}", default, choices))
    return dimensions


def _has_effect(cell: Cell, name: str, choices: tuple[str, ...]) -> bool:
    """Whether the choices of a dimension give different cells; they do not if the method sets the field itself."""
    keys = (applied(cell, {name: choice}).key for choice in choices)
    first = next(keys)
    return any(key != first for key in keys)


def values(point: Mapping[str, str]) -> Values:
    """One choice of each dimension, by name, as values of a cell."""
    sections: dict[str, dict[str, Any]] = {}
    for name, choice in point.items():
        sections.setdefault(name.partition(".")[0], {}).update(json.loads(choice))
    return Values(**sections)


def applied(cell: Cell, point: Mapping[str, str]) -> Cell:
    """The cell with these choices. UserError for a value that is not valid."""
    return values(point).applied(cell)
