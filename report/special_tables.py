"""Tables that some boards have: comparisons of methods, areas under stress conditions, sites of a user's own data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pandas as pd

from ..metrics import FALLING, sign
from .board import LOCAL, Board
from .groups import display
from .ranking import Ranking
from .statistics import Posterior, performance_profile, win_rates
from .sweeps import AXES
from .tables import METHOD, Entrant, difference_cell, lines_of, order
from .text import (
    ABSENT,
    Cell,
    Column,
    Line,
    Table,
    finite,
    mean_std,
    number,
    number_cell,
    percent,
    plain,
    points,
    score_text,
    slug,
    unit,
)

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
    return lambda entrant: number_cell(values.get(entrant.name, np.nan), show)


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


AREA_LEGEND = (
    "Area: the mean score over the strengths of a condition, from none to the greatest (trapezoidal rule), in percent; "
    "mean over datasets, in the second column over conditions too, with the standard deviation over seeds. In "
    "brackets: points less than without the condition."
)
AXIS_LEGEND = (
    " Along a setting of the task (clients, alpha of the labels' Dirichlet shares, homophily) the area is between "
    "its least and its greatest value, of clients and alpha in logarithms; what is called plain, and without the "
    "condition, is the mild end: fewest clients, greatest alpha, greatest homophily."
)


def robustness_legend(ranking: Ranking) -> str:
    """What the table of a board shows."""
    return AREA_LEGEND + AXIS_LEGEND if AXES.keys() & {*ranking.robustness.conditions} else AREA_LEGEND


def robustness_table(ranking: Ranking) -> Table:
    """The entries with all curves by the area under them, and what each loses to every condition."""
    board, table = ranking.board, ranking.robustness.table
    columns = [
        METHOD,
        Column("Area, %", _area, falling=True, best=True),
        Column("Plain, %", _plain, falling=True, best=True),
    ]
    for condition in ranking.robustness.conditions:
        title = condition.replace("_", " ").capitalize()
        columns.append(Column(title, partial(_under, condition), falling=True, best=True))
    figures = table.to_dict("index")
    entrants = [Entrant(ranking, str(name), {str(k): v for k, v in values.items()}) for name, values in figures.items()]
    caption = f"Areas under the curves of score against strength on board {board.suite}"
    return Table(f"robustness:{slug(board.suite)}", caption, columns, lines_of(columns, entrants))


def _area(entrant: Entrant) -> Cell:
    return Cell(mean_std(entrant["area"], entrant["std"]), entrant["area"])


def _plain(entrant: Entrant) -> Cell:
    return Cell(percent(entrant["plain"]), entrant["plain"])


def _under(condition: str, entrant: Entrant) -> Cell:
    loss = points(-entrant[f"{condition} loss"])
    return Cell(f"{percent(entrant[condition])} ({loss})", entrant[condition])


OWN = "own:"  # how datasets of users are called


def site_scores(board: Board, task: str) -> pd.DataFrame:
    """Clients (their names, or their numbers from 0) x entries: the score of each, mean over seeds; NaN without one.

    Empty where no row of the task has stored figures per client.
    """
    scores: dict[str, list[np.ndarray]] = {}
    rows = board.scored[board.scored["task_label"] == task]
    for entrant, key in zip(rows["entrant"], rows["key"], strict=True):
        if len(of_clients := board.per_client(str(key))):
            scores.setdefault(str(entrant), []).append(of_clients)
    if not scores:
        return pd.DataFrame()
    sizes = {len(of_clients) for each in scores.values() for of_clients in each}
    if len(sizes) > 1:
        return pd.DataFrame()
    table = pd.DataFrame({entrant: np.mean(each, axis=0) for entrant, each in scores.items()})
    row = rows.iloc[0]
    names = board.sites.get(str(row["dataset_fingerprint"]), ()) if row["partition"] == "own" else ()
    table.index = pd.Index(names if len(names) == len(table) else [f"client {k}" for k in range(len(table))])
    return table


def sites_table(ranking: Ranking, task: str) -> Table | None:
    """Sites x methods: each method's score, and in brackets its difference from local training at this site, in points.

    None for datasets without real sites, and where nothing is known of the clients.
    """
    board = ranking.board
    scores = site_scores(board, task) if str(board.task_row(task)["dataset"]).startswith(OWN) else pd.DataFrame()
    if scores.empty:
        return None
    alone = next((name for name in map(str, scores) if board.method_of[name] == LOCAL), None)
    columns = [Column("Site", lambda site: Cell(plain(site), site), "text")]
    for entrant in [name for name in order(board, task) if name in scores]:
        base = None if alone is None or entrant == alone else scores[alone]
        columns.append(Column(plain(entrant), _column(scores[entrant], base), falling=True))
    lines = [Line([column.cell(site) for column in columns]) for site in scores.index]
    return Table(f"sites:{slug(board.suite)}:{slug(task)}", f"Sites of {task}", columns, lines)


def _column(scores: pd.Series, alone: pd.Series | None) -> Callable[[str], Cell]:
    def cell(site: str) -> Cell:
        value = float(scores[site])
        if not finite(value):
            return Cell(ABSENT)
        if alone is None or not finite(float(alone[site])):
            return Cell(score_text(value), value)
        return Cell(f"{score_text(value)} ({points(value - float(alone[site]))})", value)

    return cell
