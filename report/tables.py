"""Tables of one task: every entrant's mean ± std over seeds, what it cost, and why a figure is missing."""

from __future__ import annotations

import io
from collections.abc import Callable
from functools import partial

import pandas as pd

from . import origins as provenance
from .board import MEASURES, Board
from .standings import Standings
from .statistics import DECIMALS
from .text import csv_text, data_size, finite, md, mean_std, number, percent, spans, table

MARK = "≈"
# Beside the score, on the page of a task: heading, column of Board.summary, format.
COLUMNS: list[tuple[str, str, Callable[[float], str]]] = [
    ("n", "n", partial(number, digits=0)),
    ("Validation", "val", percent),
    ("Macro-F1", "macro_f1", percent),
    ("Best round", "best_round", partial(number, digits=1)),
    ("Traffic", "traffic", data_size),
    ("Train, s", "train_seconds", partial(number, digits=1)),
    ("Peak, MiB", "peak_memory_mb", partial(number, digits=0)),
]


def cell(standings: Standings, task: str, entrant: str) -> str:
    """One entry of the wide table."""
    board = standings.board
    if not board.counts.loc[task, entrant]:
        own = board.rows[(board.rows["task_label"] == task) & (board.rows["entrant"] == entrant)]
        words = sorted(set(own["status"]) - {"ok"})
        return f"*{', '.join(words)}*" if words else "*not run*"
    line = board.measures(task, entrant)
    text = mean_std(line["score"], line["score_std"])
    best, equal = standings.leaders[task]
    if entrant in best:
        return f"**{text}**"
    if entrant in equal:
        return f"{text} {MARK}"
    if not board.full.loc[task, entrant]:
        return f"{text} (n={int(line['n'])})"
    return f"*{text}*" if board.is_reference(entrant) else text


def legend(board: Board) -> str:
    """What the marks of `cell` mean on this board."""
    text = "Mean ± standard deviation over n seeds, in percent. **Bold**: highest mean."
    if max((len(seeds) for seeds in board.expected.values()), default=0) >= 2:
        text += f" {MARK}: not told apart from it by a paired t-test over seeds (Holm, 5%)."
    else:
        text += " With one seed nothing can be told apart."
    return text


def task_markdown(standings: Standings, task: str) -> str:
    """The page of one task."""
    board = standings.board
    rows = []
    for name in order(board, task):
        line = board.measures(task, name)
        shown = f"*{md(name)}*" if board.is_reference(name) else md(name)
        rows.append([shown, cell(standings, task, name), *(show(line[column]) for _, column, show in COLUMNS)])
    headers = ["Method", "Score", *(heading for heading, _, _ in COLUMNS)]
    own = board.rows[board.rows["task_label"] == task]
    parts = [
        "<!-- Made by `fglbench report`. Do not edit. -->",
        f"# {md(task)}",
        "",
        f"Suite [{md(board.suite)}](../../LEADERBOARD.md). {provenance.task_sentence(board, task)}",
        "",
        table(rows, headers, "lrrrrrrrr"),
        "",
        f"{legend(board)} *Italics*: reference, not a federated method. Traffic: bytes of all clients, up and down, to"
        " the best round. The same figures with more digits are in the CSV file beside this one.",
        "",
        "Score: " + "; ".join(scored_as(own)) + ".",
        "",
    ]
    troubles = trouble(own)
    if troubles:
        parts += ["Runs without a score:", "", *(f"- {line}" for line in troubles), ""]
    return "\n".join(parts)


def order(board: Board, task: str) -> list[str]:
    """Entrants with a score on a task, best first, references last."""
    scores = board.summary.xs(task, level="task_label")["score"].round(DECIMALS)
    return sorted(scores.index, key=lambda name: (board.is_reference(name), -scores[name], name))


def scored_as(rows: pd.DataFrame) -> list[str]:
    """What the score is, with the methods where it is not one thing for all."""
    scored = rows[rows["status"] == "ok"]
    kinds = scored.groupby("score_metric", sort=True)["entrant"].unique()
    if len(kinds) == 1:
        return [md(kinds.index[0])]
    return [f"{md(kind)} for {', '.join(md(name) for name in sorted(names))}" for kind, names in kinds.items()]


def trouble(rows: pd.DataFrame) -> list[str]:
    """Failed and skipped cells, equal reasons told once."""
    bad = rows[rows["status"] != "ok"]
    return [
        f"{md(name)}: {status} (seed {spans(own['seed'])})" + (f": {md(error)}" if error else "")
        for (name, status, error), own in bad.groupby(["entrant", "status", "error"], sort=True)
    ]


def task_csv(standings: Standings, task: str) -> str:
    """The same as CSV: means over seeds as fractions, bytes, seconds; six significant digits."""
    board = standings.board
    lines = board.summary.xs(task, level="task_label").loc[order(board, task)]
    best, equal = standings.leaders[task]
    frame = pd.DataFrame({"method": [csv_text(name) for name in lines.index]}, index=lines.index)
    frame["n"] = lines["n"]
    frame["score"], frame["score_std"] = lines["score"], lines["score_std"]
    frame["standing"] = ["best" if n in best else "equal" if n in equal else "" for n in lines.index]
    for measure in MEASURES[1:]:
        frame[measure] = lines[measure]
    for column in frame.columns.difference(["method", "n", "standing"]):
        frame[column] = [f"{value:.6g}" if finite(value) else "" for value in frame[column]]
    buffer = io.StringIO()
    frame.to_csv(buffer, index=False, lineterminator="\n")
    return buffer.getvalue()
