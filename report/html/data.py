"""What the script of a board's page draws from: scores of every method on every task, by metric, in percent."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..board import FEDAVG, LOCAL, Board
from ..characteristics import groups_of
from ..figures.style import COLOUR_OF, CROWD
from ..groups import display, family, uploads
from ..ranking import Ranking
from ..text import finite, plain, slug
from .links import dataset_page, method_page

METRICS = {"macro_f1": "Macro-F1", "worst": "Worst client", "val": "Validation"}  # besides the board's own score


def board_data(ranking: Ranking) -> dict[str, Any]:
    """Methods, tasks and values of a board's page; under stress, of its plain tasks.

    values: metric -> methods x tasks, means over seeds; None where a seed is missing. mixed: tasks that no mean of the
    board's score includes, since another metric scores them.
    """
    board = ranking.plain.board
    names = [name for name in ranking.order if name in board.entrants]
    tasks = board.tasks
    grids = {"score": board.scores, **{name: _grid(board, name) for name in METRICS}}
    titles = {"score": board.metric.capitalize().replace("Roc auc", "ROC AUC"), **METRICS}
    kept = {name: grid.reindex(index=tasks, columns=names) for name, grid in grids.items()}
    kept = {name: grid for name, grid in kept.items() if grid.notna().any(axis=None)}
    return {
        "methods": [_method(ranking, name) for name in names],
        "tasks": [
            {
                "name": plain(task),
                "dataset": plain(str(board.task_row(task)["dataset"])),
                "page": dataset_page(str(board.task_row(task)["dataset"])),
                "groups": list(groups_of(ranking.plain.characteristics, task)),
            }
            for task in tasks
        ],
        "metrics": {name: titles[name] for name in kept},
        "values": {name: [[_percent(v) for v in grid[own]] for own in names] for name, grid in kept.items()},
        "mixed": [plain(task) for task in tasks if board.metrics[board.task_row(task)["dataset"]] != board.metric],
        "baselines": [plain(display(name)) for name in (FEDAVG, LOCAL) if name in names],
        "file": slug(board.suite),
    }


def _grid(board: Board, metric: str) -> pd.DataFrame:
    """Tasks x entries, without those that lack a seed."""
    found = board.client_summary[metric].unstack("entrant") if metric == "worst" else board.grid(metric)
    return found.reindex(index=board.tasks, columns=board.entrants).where(board.full)


def _method(ranking: Ranking, name: str) -> dict[str, Any]:
    method = ranking.board.method_of[name]
    return {
        "name": plain(display(name)),
        "page": method_page(method),
        "family": family(method),
        "uploads": uploads(method) or ["other"],
        "status": ranking.board.status(name),
        "colour": COLOUR_OF.get(method, CROWD),
    }


def _percent(value: float) -> float | None:
    return round(100 * value, 2) if finite(value) else None
