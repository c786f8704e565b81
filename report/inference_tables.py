"""Tables of the comparisons of a board: macro-F1 and clients, verdicts with probabilities, win rates, profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pandas as pd

from ..metrics import FALLING, sign
from .groups import display
from .ranking import Ranking
from .statistics import Posterior, performance_profile, win_rates
from .table import Cell, Column, Table
from .tables import METHOD, Entrant, difference_cell, lines_of
from .text import ABSENT, finite, number, percent, plain, points, score_text, slug, unit

WITHIN = (0.01, 0.02, 0.05)  # of the best: columns of the performance profile

LEGENDS = {
    "Macro-F1 and clients": "Macro-F1: mean over all datasets of the board. Worst client: the lowest score of a "
    "client. Spread: the standard deviation over clients. Both are means over seeds and over the datasets of the main "
    "metric.",
    "Verdicts": "Worse, equivalent, better: the probabilities that on a typical dataset the method is below the "
    "baseline by more than one point, within one point of it, and above it by more than one point. A verdict needs a "
    "probability of 95% and an interval that agrees. New dataset: 95% prediction interval on one more dataset like "
    "these. Tasks higher, lower: tasks with a significant difference over seeds. Details: *How ranks are made*, at the "
    "end.",
    "Performance profile": "Points below the best method of each task.",
    "Win rates": "Share of the datasets on which the method of the line has a higher score than that of the column; a "
    "tie counts half.",
}


def clients_table(ranking: Ranking) -> Table | None:
    """Macro-F1, its differences from the baselines, the worst client and the spread between clients; where clients come
    with the data, also their gains over local training. Without macro-F1, as of regression, the rest; None without."""
    board, inference = ranking.board, ranking.macro_f1
    clients = board.client_summary.loc[lambda table: table.index.get_level_values("entrant").isin(board.ranked)]
    wide = {name: clients[name].unstack("entrant").reindex(board.tasks) for name in ("worst", "spread")}
    main = board.datasets_of(board.metric)
    columns = [METHOD]
    if inference:
        columns.append(Column("Macro-F1, %", _of(inference.scores.mean(), percent), falling=True, best=True))
    for base, against in inference.against.items() if inference and inference.unit != "none" else ():
        columns.append(Column(f"Macro-F1 against {display(base)}, points", partial(_against, against), falling=True))
    if not any(grid.isna().any(axis=None) for grid in wide.values()):
        means = {name: board.averaged(grid).loc[main].mean() for name, grid in wide.items()}
        worst = unit("Worst client" if sign(board.metric) > 0 else f"Worst client {FALLING}")
        columns += [
            Column(worst, _of(means["worst"], score_text), falling=True, best=True),
            Column("Spread between clients, points", _of(means["spread"], percent), best=True),
        ]
    gains = board.client_gains
    if board.natural and not gains["gaining"].isna().all():
        means = {name: board.averaged(gains[name].unstack("entrant").reindex(board.tasks)) for name in map(str, gains)}
        means = {name: grid.loc[main].mean(skipna=False) for name, grid in means.items()}
        columns += [
            Column("Clients above local training, %", _of(means["gaining"], percent), falling=True, best=True),
            Column("Least gain of a client, points", _of(means["least"], points), falling=True, best=True),
        ]
    return _table(ranking, "clients", "Macro-F1 and clients", columns) if len(columns) > 1 else None


def verdicts_table(ranking: Ranking) -> Table | None:
    """Probabilities of the verdicts, interval for a new dataset, tasks won and lost; None without comparisons."""
    inference = ranking.inference
    if inference.unit == "none" or not inference.baselines:
        return None
    columns = [METHOD]
    for base in inference.baselines:
        columns.append(Column(f"Worse, equivalent, better than {display(base)}", partial(_chances, ranking, base)))
        if inference.unit == "dataset":
            columns.append(Column(f"New dataset against {display(base)}, points", partial(_new_dataset, ranking, base)))
        if any(sum(tasks) for tasks in inference.task_counts[base].values()):
            title = f"Tasks higher, lower than {display(base)}"
            columns.append(Column(title, partial(_counts, ranking, base), falling=True))
    return _table(ranking, "verdicts", "Verdicts", columns)


def win_rate_table(ranking: Ranking) -> Table | None:
    """Share of the datasets on which the method of a line is above that of a column; None for fewer than 3 methods."""
    if len(ranking.board.ranked) < 3:
        return None
    rates = win_rates(ranking.board.by_dataset)
    columns = [
        METHOD,
        *(Column(plain(display(name)), _of(rates[name], partial(percent, digits=0))) for name in ranking.table.index),
    ]
    table = _table(ranking, "winrates", "Win rates, % of the datasets", columns)
    for place, line in enumerate(table.lines):
        line.cells[place + 1] = Cell(ABSENT, None, "absent")
    return table


def profile_table(ranking: Ranking) -> Table | None:
    """Share of the tasks on which a method is close to the best, and its largest gap; None for fewer than 3 methods."""
    board = ranking.board
    if len(board.ranked) < 3 or len(board.tasks) < 3:
        return None
    profile = performance_profile(board.scores[board.ranked], WITHIN)
    columns = [
        METHOD,
        *(
            Column(f"Within {100 * gap:g} of the best, % of tasks", _of(profile[gap], partial(percent, digits=0)),
                   falling=True, best=True)
            for gap in WITHIN
        ),
        Column("Largest gap to the best, points", _of(profile["worst"], partial(percent, digits=1)), best=True),
    ]  # fmt: skip
    return _table(ranking, "profile", "Performance profile", columns)


def _table(ranking: Ranking, id: str, title: str, columns: list[Column]) -> Table:
    suite, entrants = ranking.board.suite, [Entrant(ranking, str(name)) for name in ranking.table.index]
    return Table(f"{id}:{slug(suite)}", f"{title} on board {suite}", columns, lines_of(columns, entrants))


def _of(values: pd.Series, show: Callable[[float], str]) -> Callable[[Entrant], Cell]:
    def cell(entrant: Entrant) -> Cell:
        value = float(values.get(entrant.name, np.nan))
        return Cell(show(value), value if finite(value) else None)

    return cell


def _against(posteriors: Mapping[str, Posterior], entrant: Entrant) -> Cell:
    return difference_cell(posteriors.get(entrant.name))


def _chances(ranking: Ranking, base: str, entrant: Entrant) -> Cell:
    posterior = ranking.inference.against[base].get(entrant.name)
    if posterior is None:
        return Cell(ABSENT, None, "absent")
    chances = (posterior.worse, posterior.equivalent, posterior.better)
    return Cell(" / ".join(map(number, chances)), posterior.better)


def _new_dataset(ranking: Ranking, base: str, entrant: Entrant) -> Cell:
    if entrant.name == base:
        return Cell(ABSENT, None, "absent")
    low, high = ranking.inference.new_dataset(entrant.name, base)
    return Cell(f"{points(low)} to {points(high)}", low)


def _counts(ranking: Ranking, base: str, entrant: Entrant) -> Cell:
    if entrant.name == base:
        return Cell(ABSENT, None, "absent")
    higher, lower = ranking.inference.task_counts[base][entrant.name]
    return Cell(f"{higher}, {lower}", higher - lower)
