"""A row against its side file: what its curves and its clients' figures say must be what the row says.

Nothing here trains: it is arithmetic on what a run stored. Every rule holds of every run that the engine makes, so that
a figure that was changed alone does not fit the others.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import Any

from ...metrics import METRICS
from ...registry import UserError
from ..store import Store
from ..store.attachments import Curves
from ..store.schema import Row
from ..suites.cell import Cell
from .inbox import Line
from .kin import Kin
from .limits import LARGE

PARTS = {"history", "per_client", "label_counts"}
NAMES = {*(rule.curve for rule in METRICS.values() if rule.curve), "round", "seconds", "val_loss", "train_loss"}
ROUNDING = 1e-6  # of float32, in a mean over clients
NEAR = 1e-7  # of float32, in a share
Stored = dict[str, Any]


def read(store: Store, row: Row) -> tuple[Curves | None, str | None]:
    """(side file of a row, what is wrong with its form); no side file where something is."""
    try:
        packed = store.curves(row.suite, row.key)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        return None, f"cannot be read: {str(error).splitlines()[0]:.120}"
    wrong = _misshapen(packed.found, row)
    return (None, wrong) if wrong else (packed, None)


def load(store: Store, row: Row) -> Stored | None:
    """What the side file of a row holds; None where something is wrong with its form."""
    packed, _ = read(store, row)
    return packed.found if packed else None


def of(store: Store, lines: Iterable[Line]) -> dict[Line, Stored]:
    """The side files of rows that have a sound one."""
    loaded = ((line, load(store, line.row)) for line in lines if line.row.status == "ok")
    return {line: found for line, found in loaded if found is not None}


def _misshapen(found: Any, row: Row) -> str | None:
    """In what a side file has not the form of curves with one value for each of a row's rounds."""
    history = found.get("history") if isinstance(found, dict) else None
    if not isinstance(history, dict) or not set(found) <= PARTS:
        return f"is not made of {', '.join(sorted(PARTS))}"
    if not all(map(_numbers, found.values())):
        return "holds something else than lists of numbers"
    curves = [*dict.fromkeys(rule.curve for name, rule in METRICS.items() if rule.curve and row.has(name)), "seconds"]
    if strange := sorted(set(history) - NAMES):
        return f"has a curve that no run has: {strange[0]!r:.40}"
    if not set(curves) <= set(history) or {len(column) for column in history.values()} != {row.rounds}:
        return f"has not one value of {', '.join(curves)} for each of {row.rounds} rounds"
    return None


def _numbers(part: Any) -> bool:
    """Whether a part of a side file is lists of numbers, with names or without."""
    lists = list(part.values()) if isinstance(part, dict) else part
    if not isinstance(lists, list) or not all(isinstance(each, list) for each in lists):
        return False
    return _bounded(list(chain.from_iterable(lists)))


def _bounded(values: list[Any]) -> bool:
    """Whether all are None or numbers (no bool, no NaN) of a sane size. They are millions: the loops are C's."""
    kinds = set(map(type, values))
    if not kinds <= {int, float, type(None)}:
        return False
    numbers = _known(values) if type(None) in kinds else values
    with suppress(OverflowError):  # of a whole number beyond all floats
        if sum(map(abs, numbers)) < LARGE:  # so is each, and none is a NaN: one pass over most
            return True
    within = -LARGE < min(numbers, default=0) <= max(numbers, default=0) < LARGE
    return within and math.isfinite(sum(numbers))  # otherwise a NaN, which may hide what is least and greatest


def _known(values: list[Any]) -> list[Any]:
    return [value for value in values if value is not None]


def disagreeing(history: dict[str, list[Any]], row: Row) -> Iterator[str]:
    """Where the figures of a row are not those of its curves."""
    for name, rule in METRICS.items():
        if rule.curve and row.has(name):
            here = history[rule.curve][-1 if rule.at == "last" else (row.best_round or 0) - 1]
            there = getattr(row, name)
            if here != there:
                yield f"{name} is {there!r} in the row and {here!r} in its curves"


def impossible(stored: Stored, row: Row, kin: Kin) -> Iterator[str]:
    """What no run of the row's cell can have left behind. ValueError where its columns name none."""
    history = stored["history"]
    yield from _courses(history, row)
    yield from _rounds(history, row, kin)
    yield from _clients(stored, row, kin.cell)


def _courses(history: dict[str, list[Any]], row: Row) -> Iterator[str]:
    """Counts count up, shares are shares, and the time of the last round is the row's."""
    if history["round"] != list(range(1, len(history["round"]) + 1)):
        yield "rounds are not counted 1, 2, 3, ..."
    for name in ("upload_bytes", "download_bytes", "seconds"):
        if None in history[name] or sorted(history[name]) != history[name] or history[name][0] < 0:
            yield f"{name} goes down from one round to the next"
    for name in ("score", "val"):
        if not _shares(history[name]):
            yield f"{name} leaves [0, 1]"
    end = history["seconds"][-1]
    if end is not None and row.train_seconds and not math.isclose(end, row.train_seconds, rel_tol=1e-6):
        yield f"train_seconds is {row.train_seconds:g} in the row and {end:g} in its curves"


def _shares(values: list[Any]) -> bool:
    """Whether all that are known are in [0, 1]; of a side file that is `_bounded`."""
    known = _known(values) if None in values else values
    return not known or 0 <= min(known) <= max(known) <= 1


def _rounds(history: dict[str, list[Any]], row: Row, kin: Kin) -> Iterator[str]:
    """The best round is that of the rule; only patience ends a run early."""
    training, rounds, best = kin.cell.training, row.rounds or 0, row.best_round or 0
    with suppress(UserError):
        training = kin.effective
    found = best_round(history, training.select_by)
    if found is None:
        yield f"there is no curve of {training.select_by}, by which the best round is chosen"
    elif found != best:
        yield f"best round {best}, but by {training.select_by} it is {found}"
    full = kin.scheduled
    if full is None:
        return
    if training.patience is None and rounds != full:
        yield f"{rounds} rounds; the training has {full}"
    elif training.patience is not None and rounds > full:
        yield f"{rounds} rounds; the training has at most {full}"
    elif training.patience is not None and rounds < full and rounds - best != training.patience:
        yield f"ended after {rounds} rounds, {rounds - best} without a better one; patience is {training.patience}"


def best_round(history: dict[str, list[Any]], select_by: str) -> int | None:
    """The first of the best rounds by the rule, 1-based; a round without a value counts by its number."""
    if select_by == "last":
        return len(history["round"])
    if select_by == "val_loss" and "val_loss" not in history:
        return None
    curve = history["val"] if select_by == "val_accuracy" else history["val_loss"]
    sign = 1 if select_by == "val_accuracy" else -1
    if None in curve:
        curve = [sign * number if value is None else value for number, value in enumerate(curve, start=1)]
    return curve.index(max(curve) if sign > 0 else min(curve)) + 1


def _clients(stored: Stored, row: Row, cell: Cell) -> Iterator[str]:
    """Figures of the row are the means of its clients'."""
    clients = stored.get("per_client")
    if not isinstance(clients, dict) or not {"score", "val"} <= set(clients):
        yield "has no figures of the clients (per_client)"
        return
    local = cell.training.score_on == "local"
    for name, values in clients.items():
        if name not in row.__class__.model_fields:
            yield f"has figures of the clients that are none of the row's: {name!r:.40}"
            continue
        one = not local and not name.endswith("_on_local")
        if len(values) != row.clients and not (one and len(values) == 1):
            yield f"{name} of {len(values)} clients; there are {row.clients}"
        known = _known(values)
        mean, told = sum(known) / len(known) if known else None, getattr(row, name)
        if not _shares(known):
            yield f"{name} of a client leaves [0, 1]"
        elif (mean is None) != (told is None) or (mean is not None and abs(mean - told) > ROUNDING):
            yield f"{name} is {told} in the row; the mean of its clients is {mean}"
    for name in ("global_on_local", "personal_on_local"):
        if "label_counts" in stored and row.task == "node" and (name in clients) != (getattr(row, name) is not None):
            yield f"{name} is in the row or of its clients, but not in both"
    if "accuracy" in row.score_metric:
        yield from _bounds(clients, row)
        yield from _fractions(stored, row) if local else ()
    yield from _labels(stored, row)


def _bounds(clients: dict[str, list[float | None]], row: Row) -> Iterator[str]:
    """What the clients' scores leave to the weighted mean, and to macro-F1: 1 is right everywhere, 0 nowhere."""
    scores = _known(clients["score"])
    if not scores:
        return
    if row.score_weighted is not None and not min(scores) - ROUNDING <= row.score_weighted <= max(scores) + ROUNDING:
        yield f"score_weighted is {row.score_weighted}, beyond what any client has"
    if row.macro_f1 is not None:
        least, most = (sum(found) / len(scores) for found in ([s == 1 for s in scores], [s > 0 for s in scores]))
        if not least - ROUNDING <= row.macro_f1 <= most + ROUNDING or (row.macro_f1 >= 1 > min(scores)):
            yield f"macro_f1 is {row.macro_f1}; the clients' scores leave {least:.4f} to {most:.4f}, 1 if all are right"


def _fractions(stored: Stored, row: Row) -> Iterator[str]:
    """A client's accuracy is a number of its own nodes by another: right ones by tested ones."""
    counts = map(sum, stored.get("label_counts") or ())
    for held, score in zip(counts, stored["per_client"]["score"], strict=False):
        if score is not None and row.task == "node" and not _fraction(score, held):
            yield f"a client's score is {score!r}, which of {held} nodes no number is"


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


def _labels(stored: Stored, row: Row) -> Iterator[str]:
    """Label counts are there, a list of counts for every client."""
    counts = stored.get("label_counts")
    if counts is None:
        if row.schema_version > 1 or len(stored["per_client"]) > 2:  # the first rows had neither
            yield "has no label_counts"
    elif len(counts) != row.clients or len(set(map(len, counts))) != 1:
        yield f"label_counts are not those of {row.clients} clients"
    elif set(map(type, each := list(chain.from_iterable(counts)))) - {int} or min(each, default=0) < 0:
        yield "label_counts are no counts"
