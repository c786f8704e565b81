"""Rows against their side files: what curves and clients' figures say must be what the row says.

Nothing here trains: it is arithmetic on what runs stored, of many rows at a time. Every rule holds of every run that
the engine makes, so that a figure that was changed alone does not fit the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...metrics import METRICS
from ...registry import UserError
from ..store.columnfile import COUNTS, CurveTable, Ragged
from ..store.schema import Row
from .inbox import Line
from .limits import LARGE

ROUNDING = 1e-6  # of float32, in a mean over clients
NEAR = 1e-7  # of float32, in a share
CLIENTS = "per_client."
Mask = NDArray[np.bool_]
Told = Iterator[tuple[int, str]]  # (which of the rows, what is wrong with it)


class TabledRows:
    """Rows with their curves in one table, which have the form of curves. runs: (rows,) where each stands in it."""

    def __init__(self, table: CurveTable, lines: list[Line], runs: NDArray[np.int64]) -> None:
        self.table, self.lines, self.runs = table, lines, runs
        self.rows: list[Row] = [line.row for line in lines]

    def only(self, wanted: Callable[[Line], bool]) -> TabledRows:
        """Those of which something is true."""
        kept = [place for place, line in enumerate(self.lines) if wanted(line)]
        return TabledRows(self.table, [self.lines[place] for place in kept], self.runs[kept])

    def column(self, name: str) -> Ragged:
        return self.table.columns[name]

    def there(self, name: str) -> Mask:
        """(rows,) which have a column."""
        found = self.table.columns.get(name)
        return found.there[self.runs] if found else np.zeros(len(self.runs), bool)

    def where(self, name: str, odd: Mask) -> list[int]:
        """The rows of which a value of the column is odd. odd: (all values of the table,)."""
        return np.flatnonzero(self.column(name).any(odd)[self.runs]).tolist() if odd.any() else []

    def sums(self, name: str, values: NDArray[Any]) -> NDArray[np.float64]:
        """(rows,) the sum of each. values: (all values of the table,), one for each of the column."""
        return self.column(name).reduced(np.add, values, 0.0)[self.runs]

    def figures(self, name: str) -> NDArray[np.float64]:
        """(rows,) what each says of itself; NaN for nothing."""
        return np.array([getattr(row, name) for row in self.rows], dtype=np.float64)

    def at(self, name: str, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """(rows,) the value of each at a round, counted from 1."""
        column = self.column(name)
        found: NDArray[np.float64] = column.values[column.bounds[self.runs] + rounds - 1].astype(np.float64)
        return found


def disagreeing(rows: TabledRows) -> Told:
    """Where the figures of a row are not those of its curves."""
    last, best = (
        np.array([getattr(row, name) for row in rows.rows], dtype=np.int64) for name in ("rounds", "best_round")
    )
    for name, rule in METRICS.items():
        if not rule.curve:
            continue
        own = [place for place, row in enumerate(rows.rows) if row.has(name)]
        if not own:
            continue
        part = TabledRows(rows.table, [rows.lines[place] for place in own], rows.runs[own])
        at = (last if rule.at == "last" else best)[own]
        here, there = part.at(f"history.{rule.curve}", at), part.figures(name)
        for place in np.flatnonzero((here != there) & ~(np.isnan(here) & np.isnan(there))):
            value = part.column(f"history.{rule.curve}").of(int(part.runs[place]))[at[place] - 1]
            yield own[place], f"{name} is {getattr(part.rows[place], name)!r} in the row and {value!r} in its curves"


def impossible(rows: TabledRows) -> Told:
    """What no run of the row's cell can have left behind. Every line names a cell."""
    yield from _courses(rows)
    for place, line in enumerate(rows.lines):
        yield from ((place, what) for what in _rounds(rows, place, line))
    yield from _clients(rows)
    yield from _labels(rows)


def _courses(rows: TabledRows) -> Told:
    """Counts count up, shares are shares, and the time of the last round is the row's."""
    rounds = rows.column("history.round")
    for place in rows.where("history.round", rounds.values != rounds.numbers):
        yield place, "rounds are not counted 1, 2, 3, ..."
    for name in ("upload_bytes", "download_bytes", "seconds"):
        column = rows.column(f"history.{name}")
        before = np.concatenate([np.zeros(1), column.values[:-1]])
        before[column.numbers == 1] = 0
        for place in rows.where(f"history.{name}", ~(column.values >= before)):
            yield place, f"{name} goes down from one round to the next"
    for name in ("score", "val"):
        for place in rows.where(f"history.{name}", _no_share(rows.column(f"history.{name}").values)):
            yield place, f"{name} leaves [0, 1]"
    told = rows.figures("train_seconds")
    end = rows.at("history.seconds", np.array([row.rounds for row in rows.rows], dtype=np.int64))
    apart = np.abs(end - told) > 1e-6 * np.maximum(np.abs(end), np.abs(told))
    for place in np.flatnonzero(apart & (told != 0)).tolist():
        yield place, f"train_seconds is {told[place]:g} in the row and {end[place]:g} in its curves"


def _no_share(values: NDArray[Any]) -> Mask:
    odd: Mask = (values < 0) | (values > 1)
    return odd


def _rounds(rows: TabledRows, place: int, line: Line) -> Iterator[str]:
    """The best round is that of the rule; only patience ends a run early."""
    row, kin = line.row, line.kin
    training, count, best = kin.cell.training, row.rounds or 0, row.best_round or 0
    with suppress(UserError):
        training = kin.effective
    found = _best_round(rows, place, training.select_by)
    if found is None:
        yield f"there is no curve of {training.select_by}, by which the best round is chosen"
    elif found != best:
        yield f"best round {best}, but by {training.select_by} it is {found}"
    full = kin.scheduled
    if full is None:
        return
    if training.patience is None and count != full:
        yield f"{count} rounds; the training has {full}"
    elif training.patience is not None and count > full:
        yield f"{count} rounds; the training has at most {full}"
    elif training.patience is not None and count < full and count - best != training.patience:
        yield f"ended after {count - best} rounds without a better one; patience is {training.patience}"


def _best_round(rows: TabledRows, place: int, select_by: str) -> int | None:
    """The first of the best rounds by the rule, 1-based; a round without a value counts by its number."""
    if select_by == "last":
        return rows.rows[place].rounds
    name = f"history.{select_by.removesuffix('_accuracy')}"
    column, run = rows.table.columns.get(name), int(rows.runs[place])
    if column is None or not column.there[run]:
        return None
    curve = column.part(run)
    if select_by == "val_loss":
        curve = -curve
    if column.gaps:
        curve = np.where(np.isnan(curve), np.arange(1.0, len(curve) + 1), curve)
    return int(curve.argmax()) + 1


def _clients(rows: TabledRows) -> Told:
    """Figures of the row are the means of its clients'."""
    without = np.flatnonzero(~(rows.there("per_client.score") & rows.there("per_client.val")))
    for place in without.tolist():
        yield place, "has no figures of the clients (per_client)"
    with_them = np.setdiff1d(np.arange(len(rows.rows)), without)
    kept = TabledRows(rows.table, [rows.lines[place] for place in with_them], rows.runs[with_them])
    for rule in (_means, _matrix, _bounds, _fractions):
        yield from ((int(with_them[place]), what) for place, what in rule(kept))


def _means(rows: TabledRows) -> Told:
    for column in (name for name in rows.table.columns if name.startswith(CLIENTS)):
        name, own = column.removeprefix(CLIENTS), np.flatnonzero(rows.there(column)).tolist()
        if name not in METRICS:
            for place in own:
                yield place, f"has figures of the clients that are none of the row's: {name!r:.40}"
            continue
        values, lengths = rows.column(column).values, rows.column(column).lengths[rows.runs]
        sums, known = rows.sums(column, np.nan_to_num(values)), rows.sums(column, (~np.isnan(values)).astype(float))
        odd = set(rows.where(column, _no_share(values)))
        for place in own:
            line = rows.lines[place]
            local = line.kin.cell.training.score_on == "local"
            if lengths[place] != line.row.clients and (local or name.endswith("_on_local") or lengths[place] != 1):
                yield place, f"{name} of {lengths[place]} clients; there are {line.row.clients}"
            mean, told = float(sums[place] / known[place]) if known[place] else None, getattr(line.row, name)
            if place in odd:
                yield place, f"{name} of a client leaves [0, 1]"
            elif (mean is None) != (told is None) or (mean is not None and abs(mean - told) > ROUNDING):
                yield place, f"{name} is {told} in the row; the mean of its clients is {mean}"


def _matrix(rows: TabledRows) -> Told:
    """What is in the row's matrix is known of each client, and the other way round."""
    for name in ("global_on_local", "personal_on_local"):
        told = rows.there(CLIENTS + name) != ~np.isnan(rows.figures(name))
        for place in np.flatnonzero(told & rows.there(COUNTS)).tolist():
            if rows.rows[place].task == "node":
                yield place, f"{name} is in the row or of its clients, but not in both"


def _bounds(rows: TabledRows) -> Told:
    """What the clients' scores leave to the weighted mean, and to macro-F1: 1 is right everywhere, 0 nowhere."""
    name = "per_client.score"
    if name not in rows.table.columns:
        return
    values = rows.column(name).values
    low, high = (rows.column(name).reduced(each, values, np.nan)[rows.runs] for each in (np.fmin, np.fmax))
    known, right, some = (rows.sums(name, of.astype(float)) for of in (~np.isnan(values), values == 1, values > 0))
    weighted, f1 = rows.figures("score_weighted"), rows.figures("macro_f1")
    with np.errstate(invalid="ignore", divide="ignore"):
        least, most = right / known, some / known
    off = ~((low - ROUNDING <= weighted) & (weighted <= high + ROUNDING)) & ~np.isnan(weighted)
    unlike = (~((least - ROUNDING <= f1) & (f1 <= most + ROUNDING)) | ((f1 >= 1) & (low < 1))) & ~np.isnan(f1)
    for place in np.flatnonzero((off | unlike) & (known > 0)).tolist():
        row = rows.rows[place]
        if "accuracy" not in row.score_metric:
            continue
        if off[place]:
            yield place, f"score_weighted is {row.score_weighted}, beyond what any client has"
        if unlike[place]:
            span = f"{least[place]:.4f} to {most[place]:.4f}, 1 if all are right"
            yield place, f"macro_f1 is {row.macro_f1}; the clients' scores leave {span}"


def _fractions(rows: TabledRows) -> Told:
    """A client's accuracy is a number of its own nodes by another: right ones by tested ones."""
    for place in np.flatnonzero(rows.there(COUNTS)).tolist():
        line, run = rows.lines[place], int(rows.runs[place])
        local = line.kin.cell.training.score_on == "local"
        if not local or line.row.task != "node" or "accuracy" not in line.row.score_metric:
            continue
        counts = rows.table.counts(run)
        scores = rows.column("per_client.score").of(run)
        for held, score in zip(counts.sum(axis=1).tolist(), scores, strict=False):
            if score is not None and not _fraction(score, held):
                yield place, f"a client's score is {score!r}, which of {held} nodes no number is"


@lru_cache(maxsize=100_000)  # of a client's few nodes most scores come again
def _fraction(score: float, held: int) -> bool:
    """Whether a number of nodes by another, `held` at most, is the score as float32 has it."""
    before, tested, rest = 0, 1, score
    while tested <= held:  # the convergents of its continued fraction: of few nodes, a fraction that is near is one
        if abs(round(score * tested) / tested - score) <= NEAR:
            return True
        rest = 1 / max(rest % 1, 1 / LARGE)
        before, tested = tested, int(rest) * tested + before
    return any(abs(round(score * tested) / tested - score) <= NEAR for tested in range(1, max(held, 1) + 1))


def _labels(rows: TabledRows) -> Told:
    """Label counts are there, a list of counts for every client."""
    several = sum(rows.there(name).astype(int) for name in rows.table.columns if name.startswith(CLIENTS))
    there, few = rows.there(COUNTS), several <= 2 if isinstance(several, np.ndarray) else np.ones(len(rows.rows), bool)
    for place in np.flatnonzero(~there).tolist():
        if rows.rows[place].schema_version > 1 or not few[place]:  # the first rows had neither
            yield place, "has no label_counts"
    negative = set(rows.where(COUNTS, rows.column(COUNTS).values < 0)) if there.any() else set()
    for place in np.flatnonzero(there).tolist():
        if len(rows.table.counts(int(rows.runs[place]))) != rows.rows[place].clients:
            yield place, f"label_counts are not those of {rows.rows[place].clients} clients"
        elif place in negative:
            yield place, "label_counts are no counts"
