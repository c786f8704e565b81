"""What each entrant of a board ran with: tuning, rounds, optimiser steps, whether it was cut off, its network."""

from __future__ import annotations

import json
from collections import Counter

import pandas as pd

from ..benchmark.store.jsoncolumn import mapping
from .board import Board
from .families import family
from .sheet import Sheet, SheetCell, SheetColumn, SheetLine
from .text import ABSENT, finite, plain, slug


def footing(board: Board) -> Sheet:
    """One line an entrant with a score, references and those over the budget included."""
    usual = _usual(board.scored)
    rows = {str(name): own for name, own in board.scored.groupby("entrant", sort=True)}
    columns = [
        SheetColumn("Method", lambda name: SheetCell(plain(name), name), "method"),
        SheetColumn("Family", lambda name: SheetCell(family(board.method_of[name]), family(board.method_of[name])),
                    "text"),
        SheetColumn("Settings", lambda name: SheetCell(settings(rows[name], board.over_budget.get(name, ""))), "text"),
        SheetColumn("Rounds", lambda name: _whole(rows[name]["rounds"])),
        SheetColumn("Optimiser steps", lambda name: _steps(rows[name])),
        SheetColumn("Still rising", lambda name: _rising(rows[name])),
        SheetColumn("Network", lambda name: SheetCell(network(rows[name], usual)), "text"),
    ]  # fmt: skip
    lines = [
        SheetLine([column.cell(name) for column in columns], name, board.method_of[name], board.standing(name))
        for name in rows
    ]
    return Sheet(f"footing:{slug(board.suite)}", f"What the methods of board {board.suite} ran with", columns, lines)


def settings(rows: pd.DataFrame, excess: str = "") -> str:
    """'tuned, 12 trials', or 'untuned' where no row says that a study chose its settings; and what it took too much."""
    tuned = [mapping(text) for text in rows["tuning"] if text]
    trials = sorted({int(own["trials"]) for own in tuned if isinstance(own.get("trials"), int)})
    told = f"tuned, {' or '.join(map(str, trials)) or 'unknown number of'} trials" if tuned else "untuned"
    return f"{told}; over budget: {plain(excess)}" if excess else told


def network(rows: pd.DataFrame, usual: dict[str, str]) -> str:
    """The backbone that ran, with the parameters in which it differs from what most rows of the board have."""
    found: dict[str, None] = {}
    for backbone, params in sorted(set(zip(rows["backbone"], rows["backbone_params"], strict=True))):
        own = {key: json.dumps(value) for key, value in mapping(params).items()}
        other = ", ".join(f"{key}={value}" for key, value in sorted(own.items()) if usual.get(key, value) != value)
        found[f"{plain(backbone, 60)}, {plain(other, 60)}" if other else plain(backbone, 60)] = None
    return "; ".join(found)


def _usual(rows: pd.DataFrame) -> dict[str, str]:
    """The commonest value of each backbone parameter, counted over methods."""
    votes: dict[str, Counter[str]] = {}
    for text in rows.drop_duplicates(["method", "backbone_params"])["backbone_params"]:
        for key, value in mapping(text).items():
            votes.setdefault(key, Counter())[json.dumps(value)] += 1
    return {key: own.most_common(1)[0][0] for key, own in votes.items()}


def _whole(values: pd.Series) -> SheetCell:
    middle = pd.to_numeric(values).dropna().median()  # pandas 2 warns of a column without a number
    return SheetCell(f"{middle:.0f}", float(middle)) if finite(middle) else SheetCell(ABSENT)


def _steps(rows: pd.DataFrame) -> SheetCell:
    """The median, and how many times what plain FedAvg takes in the same cell."""
    cell = _whole(rows["optimiser_steps"])
    share = (pd.to_numeric(rows["optimiser_steps"]) / pd.to_numeric(rows["budget_steps"])).dropna().median()
    return SheetCell(f"{cell.text} ({share:.1f}x)", cell.value) if finite(share) else cell


def _rising(rows: pd.DataFrame) -> SheetCell:
    rising = int(rows["rising"].sum())
    return SheetCell(f"{rising}/{len(rows)}", rising / len(rows))
