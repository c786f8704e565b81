"""Compare two methods of a board task by task: paired differences and a test over datasets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from ..metrics import sign
from ..registry import UserError, did_you_mean, listed
from . import text
from .board import Board
from .inference import RULE, Inference
from .loading import load_boards
from .provenance import different_data
from .statistics import MIN_SEEDS, Posterior, paired_difference
from .templating import document
from .text import ABSENT, count, markdown_table, plain, score_text


@dataclass(frozen=True)
class Comparison:
    """tasks: one line per task with scores of both for a common seed: task, dataset, n (seeds), first, second,
    difference, low, high (95% t interval over seeds), p. datasets: mean difference per dataset. scope: the datasets of
    mean, low, high (the 95% interval of the posterior) and verdict, as "2 datasets"; verdict is a sentence. Scores and
    differences are fractions, of errors second - first. errors: whether a dataset has them. cautions: sentences on rows
    that were made on different data or partitions."""

    suite: str
    first: str
    second: str
    tasks: pd.DataFrame
    datasets: pd.Series
    scope: str
    mean: float
    low: float
    high: float
    verdict: str
    errors: bool = False
    cautions: tuple[str, ...] = ()


def compare(board: Board, first: str, second: str) -> Comparison | None:
    """Compare two entries of one board; None if they have no task and seed in common."""
    lines, grids = [], {}
    for task in board.tasks:
        both = board.seeds_of(task).reindex(columns=[first, second]).dropna()
        if len(both):
            grids[task] = both
            gap = paired_difference(both[first], both[second])
            lines.append([task, board.dataset_of[task], len(both), both[first].mean(), both[second].mean(), *gap])
    if not lines:
        return None
    columns = ["task", "dataset", "n", "first", "second", "difference", "low", "high", "p"]
    tasks = pd.DataFrame(lines, columns=columns)
    means = tasks.groupby("dataset", sort=True)[["first", "second", "difference"]].mean()
    datasets, scores = means["difference"], means[["first", "second"]].set_axis([first, second], axis=1)
    main = [name for name in scores.index if board.metrics[name] == board.metric] or list(scores.index)
    inference = Inference(scores, grids, board.dataset_of, averaged=main)
    over = inference.difference(first, second)
    verdict = _verdict(first, second, over, inference.unit)
    mean = float(datasets[main].mean()) if inference.unit == "none" else over.mean
    averaged = inference.tested if inference.unit == "seed" else main
    scope = count(len(averaged), "dataset") + " of one metric" * (len(main) < len(datasets))
    if inference.unit == "seed" and (tasks.loc[tasks["dataset"].isin(main), "n"] < MIN_SEEDS).any():
        scope += f" with at least {MIN_SEEDS} common seeds"
    rows = board.scored[board.scored["entrant"].isin([first, second])]
    average = scope, mean, over.low, over.high
    errors = any(sign(board.metrics[name]) < 0 for name in datasets.index)
    return Comparison(
        board.suite, first, second, tasks, datasets, *average, verdict, errors, tuple(different_data(rows))
    )


def _verdict(first: str, second: str, posterior: Posterior, unit: str) -> str:
    if unit == "none":
        return f"Too few datasets and seeds for a comparison over the board. {RULE}."
    chances = f"worse {posterior.worse:.2f}, equivalent {posterior.equivalent:.2f}, better {posterior.better:.2f}"
    words = {"equivalent": "is equivalent to", "undecided": "is neither shown to differ from nor to be equivalent to"}
    phrase = words.get(posterior.verdict, f"is {posterior.verdict} than")
    return f"Over {unit}s, {plain(first)} {phrase} {plain(second)} (one point; probabilities: {chances})."


def comparisons(first: str, second: str, suite: str | None, results: Path) -> list[Comparison]:
    """Compare two methods on every board of a results folder where both have rows, or on the board of `suite`.

    Raises UserError for an unknown suite or method, for one method twice, and without a common dataset and seed.
    """
    boards = {board.suite: board for board in load_boards(results)}
    if suite is not None and suite not in boards:
        raise did_you_mean(suite, boards, "suite with results")
    chosen = [board for name, board in boards.items() if suite in (None, name)]
    known = {name: method for board in chosen for name, method in board.method_of.items()}
    for name in (first, second):
        settings = sorted(entrant for entrant, method in known.items() if method == name)
        if settings and name not in known:
            raise UserError(f"{name!r} has results with several settings; name one: {listed(map(repr, settings), 5)}")
        if name not in known:
            raise did_you_mean(name, known, "method with results")
    if first == second:
        raise UserError(f"{first!r} cannot be compared with itself; name two methods")
    shared = (compare(board, first, second) for board in chosen if {first, second} <= set(board.entrants))
    compared = list(filter(None, shared))
    if not compared:
        fix = "run both on the same suite, or failed runs again with --rerun failed"
        raise UserError(f"{first!r} and {second!r} have no scores of one dataset and seed; {fix}")
    return compared


def as_data(comparison: Comparison) -> dict[str, Any]:
    """A comparison as JSON data: scores and differences as fractions; None for a missing interval or p."""
    tasks = comparison.tasks.astype(object).where(comparison.tasks.notna(), None)
    interval = [value if math.isfinite(value) else None for value in (comparison.low, comparison.high)]
    names = {name: getattr(comparison, name) for name in ("suite", "first", "second")}
    datasets, mean, verdict = comparison.datasets.to_dict(), comparison.mean, comparison.verdict
    return {
        **names, "tasks": tasks.to_dict("records"), "datasets": datasets, "mean": mean, "interval": interval,
        "scope": comparison.scope, "verdict": verdict, "cautions": comparison.cautions,
    }  # fmt: skip


def as_text(comparison: Comparison) -> str:
    """A comparison as text for a terminal; differences in percentage points."""
    points = partial(text.points, digits=2)
    rows = [
        [
            plain(line["task"], 40), str(line["n"]), score_text(line["first"]), score_text(line["second"]),
            points(line["difference"]), f"{points(line['low'])} to {points(line['high'])}" if line["n"] > 1 else ABSENT,
        ]
        for line in comparison.tasks.to_dict("records")
    ]  # fmt: skip
    headers = ["task", "seeds", plain(comparison.first, 24), plain(comparison.second, 24), "difference", "95% interval"]
    rounded = comparison.datasets.round(12)
    signs = {"better": (rounded > 0).sum(), "equal": (rounded == 0).sum(), "worse": (rounded < 0).sum()}
    return document(
        "comparison.txt", comparison=comparison, table=markdown_table(rows, headers, "lrrrrr"), points=points, **signs
    )
