"""The stored embeddings of a board's runs, checked: what the t-SNE and the CKA figures are drawn from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..standings import Standings

WHOLE = ("global_on_global", "personal_on_global")
METHODS, TASKS = 6, 3  # panels in a row, and rows, of a figure that stays readable and small


def shown(
    standings: Standings, pick: Callable[[dict[str, np.ndarray]], dict[str, Any] | None]
) -> dict[str, Any] | None:
    """`tasks`: those with embeddings, each with the seed that most entrants have (the lowest of equals) and `runs`.

    None where no task has any.

    pick: what a figure needs of a run's arrays, None where it is not there. A run is that, with the entrant's `name`
    and the `accuracy` of the global model (of a centralised run: its only one) on the whole graph, in [0, 1] or NaN;
    entrants come in the order of the standings.
    """
    board, tasks = standings.board, []
    place, rows = {name: number for number, name in enumerate(standings.order)}, dict[str, list[dict[str, Any]]]()
    for row in board.scored[["task_label", "entrant", "seed", "key", *WHOLE]].to_dict("records"):
        if row["entrant"] in place:
            rows.setdefault(row["task_label"], []).append({str(name): value for name, value in row.items()})
    for task in board.tasks:
        seeds: dict[int, list[dict[str, Any]]] = {}
        for row in sorted(rows.get(task, ()), key=lambda row: (place[row["entrant"]], row["seed"])):
            picked = pick(board.arrays(str(row["key"])))
            if picked is not None:
                whole = [row[column] for column in WHOLE]
                accuracy = next((float(value) for value in whole if value == value), float("nan"))
                run = {"name": row["entrant"], "accuracy": accuracy, **picked}
                seeds.setdefault(int(row["seed"]), []).append(run)
        if seeds:
            seed = max(sorted(seeds), key=lambda one: len(seeds[one]))
            tasks.append({"task": task, "seed": seed, "runs": seeds[seed][:METHODS]})
        if len(tasks) == TASKS:
            break
    return {"tasks": tasks} if tasks else None


def sound(rows: np.ndarray | None) -> bool:
    """Whether an array holds embeddings: numbers, one line a node, at least ten of them that are not all equal."""
    return (
        rows is not None
        and rows.ndim == 2
        and rows.dtype.kind == "f"
        and len(rows) >= 10
        and rows.shape[1] > 0
        and bool(np.isfinite(rows).all())
        and bool((rows != rows[0]).any())
    )
