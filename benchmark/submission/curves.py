"""Compare a row with its side file: form, values at the best and the last round, means over clients."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from typing import Any

from ...metrics import ADAPTED, METRICS, UNSEEN, bound, sign
from ...registry import UserError
from ..store.schema import Row
from .listing import Folder
from .read import LARGE, Line

PARTS = ("history", "per_client", "label_counts")
CURVES = [*dict.fromkeys(rule.curve for rule in METRICS.values() if rule.curve)]  # every run has them
ROUNDING = 1e-6  # tolerance of a mean over clients of float32 values
UNREADABLE = (OSError, EOFError, ValueError, zlib.error)


def problems(folder: Folder, line: Line) -> Iterator[str]:
    """The problems of the curves of a row with status ok."""
    row = line.row
    try:
        stored = folder.stored(row.suite, row.key)
    except UNREADABLE as error:
        yield f"cannot be read: {str(error).splitlines()[0]:.120}"
        return
    if wrong := malformed(stored, row):
        yield wrong
    elif stored and row.in_time:
        yield from _figures(row, stored["history"])
        if line.cell:
            yield from _best_round(line, stored["history"])
            yield from _clients(line, stored.get("per_client", {}))


def malformed(stored: Any, row: Row) -> str:
    """Why a side file does not have the form of curves; empty if it does."""
    if not isinstance(stored, dict) or not isinstance(stored.get("history"), dict) or set(stored) - set(PARTS):
        return f"is not made of {', '.join(PARTS)}"
    history, clients, counts = stored["history"], stored.get("per_client", {}), stored.get("label_counts", [])
    if not isinstance(clients, dict) or not isinstance(counts, list):
        return "has content other than lists of numbers"
    if not all(map(_numbers, (*history.values(), *clients.values(), *counts))):
        return "has content other than lists of numbers"
    if set(CURVES) - set(history) or any(len(values) != row.rounds for values in history.values()):
        return f"does not have one value of {', '.join(CURVES)} for each of {row.rounds} rounds"
    most = bound(row.score_metric)
    scores = [value for name in ("score", "val") for value in history[name] if value is not None]
    if scores and not 0 <= min(scores) <= max(scores) <= most:
        return f"score or val is outside [0, {most:g}]"
    return ""


def _numbers(values: Any) -> bool:
    """Whether this is a list of None and numbers (no bool, no NaN) between -LARGE and LARGE."""
    if not isinstance(values, list) or not set(map(type, values)) <= {int, float, type(None)}:
        return False
    some = [value for value in values if value is not None]
    return not some or (-LARGE < min(some) <= max(some) < LARGE and (total := sum(some)) == total)  # not true for NaN


def _figures(row: Row, history: dict[str, list[Any]]) -> Iterator[str]:
    """Values of the row that differ from its curves."""
    for name, rule in METRICS.items():
        if rule.curve:
            in_row, at = getattr(row, name), row.rounds if rule.at == "last" else row.best_round
            in_curve = history[rule.curve][(at or 1) - 1]
            if in_row != in_curve:
                yield f"{name} is {in_row!r} in the row and {in_curve!r} in its curves"


def _best_round(line: Line, history: dict[str, list[Any]]) -> Iterator[str]:
    """A best round that is not the one of the selection rule: of equals the first. The value of a round without a value
    is its number."""
    try:
        select_by = line.settings.effective.select_by
    except UserError:  # an unknown method
        select_by = line.settings.cell.training.select_by
    curve = history["round"] if select_by == "last" else history.get(select_by.removesuffix("_accuracy"))
    if curve is None:
        yield f"there is no curve of {select_by}, by which the best round is chosen"
        return
    direction = {"last": 1, "val_loss": -1}.get(select_by) or sign(line.row.score_metric)
    values = [number if value is None else direction * value for number, value in enumerate(curve, start=1)]
    best, chosen = line.row.best_round or 0, values.index(max(values)) + 1
    if chosen != best:
        yield f"best round {best}, but by {select_by} it is {chosen}"


def _clients(line: Line, clients: dict[str, list[Any]]) -> Iterator[str]:
    """Values of the row that are not the means of the values of its clients."""
    row = line.row
    if not {"score", "val"} <= set(clients):
        yield "has no values per client (per_client)"
        return
    training, most = line.settings.cell.training, bound(row.score_metric)
    held_out = (UNSEEN, ADAPTED) if training.unseen else ()
    for name, values in clients.items():
        if name not in (*METRICS, *held_out) or name == "score_metric":
            yield f"has values per client that rows do not have: {name!r:.40}"
            continue
        if len(values) != row.clients and (
            training.score_on == "local" or name.endswith("_on_local") or len(values) != 1
        ):
            yield f"{name} of {len(values)} clients; there are {row.clients}"
        known, in_row = [value for value in values if value is not None], getattr(row, name, None)
        mean = math.fsum(known) / len(known) if known else None
        if any(not 0 <= value <= most for value in known):
            yield f"{name} of a client is outside [0, {most:g}]"
        elif name in METRICS and ((mean is None) != (in_row is None) or abs((mean or 0) - (in_row or 0)) > ROUNDING):
            yield f"{name} is {in_row} in the row; the mean of its clients is {mean}"
