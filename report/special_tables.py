"""Tables of some boards only: comparisons of methods, scores of clients, areas under curves, sites of own data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
import pandas as pd

from ..metrics import FALLING, sign
from .board import LOCAL, Board, over_seeds
from .groups import display, kind_of_data
from .ranking import Ranking
from .statistics import Posterior, performance_profile, ranks, win_rates
from .sweeps import AXES
from .tables import METHOD, Entrant, difference_cell, lines_of, order
from .text import (
    ABSENT,
    Cell,
    Column,
    Line,
    Table,
    count,
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

WITHIN = (0.01, 0.02, 0.05)  # gaps to the best: columns of the performance profile
NATURAL = ("own", "source")  # partitions whose clients come with the data

WIDEST = 30  # methods of a table of pairs
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


def client_summary(board: Board) -> pd.DataFrame:
    """Indexed `(task, entrant)`: `worst`, the lowest score of a client, and `spread`, the standard deviation over
    clients, means over seeds; NaN if a seed has fewer than two clients with a score."""
    runs = [board.client_scores(str(key)) for key in board.scored["key"]]
    worst = [scores.min() if len(scores) > 1 else np.nan for scores in runs]
    spread = [scores.std(ddof=1) if len(scores) > 1 else np.nan for scores in runs]
    return over_seeds(board.scored, worst=worst, spread=spread)


def client_gains(board: Board) -> pd.DataFrame:
    """Indexed `(task, entrant)`: gains of clients over local training with the same seed, means over seeds.

    `gaining`: share of clients with a higher score. `least`: the lowest gain of a client. NaN for local training
    itself, and if a seed has no scores of the same clients.
    """
    local = board.scored[board.scored["method"] == LOCAL].drop_duplicates(["task_label", "seed"])
    key_of = local.set_index(["task_label", "seed"])["key"].to_dict()
    gaining, least = [], []
    for row in board.scored[["task_label", "method", "seed", "key"]].itertuples(index=False):
        base = board.per_client(str(key_of.get((row.task_label, row.seed), "")))
        scores = board.per_client(str(row.key))
        gain = scores - base if scores.shape == base.shape and row.method != LOCAL else np.empty(0)
        gain = gain[np.isfinite(gain)]
        gaining.append(float((gain > 0).mean()) if len(gain) else np.nan)
        least.append(float(gain.min()) if len(gain) else np.nan)
    return over_seeds(board.scored, gaining=gaining, least=least)


def clients_table(ranking: Ranking) -> Table | None:
    """Macro-F1 and its differences from the baselines; the worst client and the spread between clients; if the clients
    come with the data, also their gains over local training. None if none of these is known."""
    board, inference = ranking.board, ranking.macro_f1
    clients = client_summary(board).loc[lambda table: table.index.get_level_values("entrant").isin(board.ranked)]
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
    gains = client_gains(board)
    if board.scored["partition"].isin(NATURAL).all() and not gains["gaining"].isna().all():
        means = {name: board.averaged(gains[name].unstack("entrant").reindex(board.tasks)) for name in map(str, gains)}
        means = {name: grid.loc[main].mean(skipna=False) for name, grid in means.items()}
        columns += [
            Column("Clients above local training, %", _of(means["gaining"], percent), falling=True, best=True),
            Column("Least gain of a client, points", _of(means["least"], points), falling=True, best=True),
        ]
    return _table(ranking, "clients", "Macro-F1 and clients", columns) if len(columns) > 1 else None


def verdicts_table(ranking: Ranking) -> Table | None:
    """Probabilities of the verdicts, interval for a new dataset, tasks higher and lower; None without comparisons."""
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
    """Share of the datasets on which the method of the line is above that of the column; None for fewer than three
    methods, and for more than `WIDEST`, because the table has a column per method."""
    if not 3 <= len(ranking.board.ranked) <= WIDEST:
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
    """Share of the tasks on which a method is close to the best, and its largest gap; None for fewer than three
    methods or tasks."""
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


def kinds_table(ranking: Ranking) -> Table | None:
    """The mean rank of every ranked method over the datasets of each kind; None for one kind, or one method."""
    board, by_dataset = ranking.board, ranking.board.by_dataset
    known = {board.dataset_of[task]: kind_of_data(str(board.task_row(task)["dataset"])) for task in board.tasks}
    kinds = pd.Series({name: known[str(name)] for name in by_dataset.index}, dtype=object)
    if kinds.nunique() < 2 or len(by_dataset.columns) < 2:
        return None
    means = ranks(by_dataset).groupby(kinds).mean().round(12)
    sizes = kinds.value_counts()
    show = partial(number, digits=1)
    columns = [METHOD] + [
        Column(kind.capitalize(), _of(means.loc[kind], show), best=True, note=count(int(sizes[kind]), "dataset"))
        for kind in map(str, means.index)
    ]
    return _table(ranking, "kinds", "Mean ranks by kind of data", columns)


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
    "Area: the mean score over the strengths of a condition, from 0 to the greatest (trapezoidal rule), in percent, "
    "mean over datasets. The column *Area* is also a mean over conditions, with the standard deviation over seeds. In "
    "brackets: the difference from the score without the condition, in points."
)
AXIS_LEGEND = (
    " For a setting of the task (clients, alpha of the labels' Dirichlet shares, homophily) the area is between the "
    "least and the greatest value, with logarithms of clients and alpha. *Plain* is then the mild end: fewest clients, "
    "greatest alpha, greatest homophily."
)


def robustness_legend(ranking: Ranking) -> str:
    """The legend of `robustness_table`."""
    return AREA_LEGEND + AXIS_LEGEND if AXES.keys() & {*ranking.robustness.conditions} else AREA_LEGEND


def robustness_table(ranking: Ranking) -> Table:
    """The entries with all curves, by mean area: area and loss under every condition."""
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


OWN = "own:"  # prefix of the names of users' datasets


def site_scores(board: Board, task: str) -> pd.DataFrame:
    """Clients (names, or numbers from 0) x entries: score, mean over seeds; NaN without a score.

    Empty if no row of the task has scores per client, or if rows differ in the number of clients.
    """
    scores: dict[str, list[np.ndarray]] = {}
    rows = board.scored[board.scored["task_label"] == task]
    for entrant, key in zip(rows["entrant"], rows["key"], strict=True):
        if len(of_clients := board.per_client(str(key))):
            scores.setdefault(str(entrant), []).append(of_clients)
    sizes = {len(of_clients) for runs in scores.values() for of_clients in runs}
    if len(sizes) != 1:
        return pd.DataFrame()
    table = pd.DataFrame({entrant: np.mean(runs, axis=0) for entrant, runs in scores.items()})
    row = rows.iloc[0]
    names = board.sites.get(str(row["dataset_fingerprint"]), ()) if row["partition"] == "own" else ()
    table.index = pd.Index(names if len(names) == len(table) else [f"client {k}" for k in range(len(table))])
    return table


def sites_table(ranking: Ranking, task: str) -> Table | None:
    """Sites x methods: score, and in brackets the difference from local training at this site, in points.

    None for datasets of the package, and without scores per client.
    """
    board = ranking.board
    scores = site_scores(board, task) if str(board.task_row(task)["dataset"]).startswith(OWN) else pd.DataFrame()
    if scores.empty:
        return None
    local = next((name for name in map(str, scores) if board.method_of[name] == LOCAL), None)
    columns = [Column("Site", lambda site: Cell(plain(site), site), "text")]
    for entrant in [name for name in order(board, task) if name in scores]:
        base = None if local is None or entrant == local else scores[local]
        columns.append(Column(plain(entrant), _site_cells(scores[entrant], base), falling=True))
    lines = [Line([column.cell(site) for column in columns]) for site in scores.index]
    return Table(f"sites:{slug(board.suite)}:{slug(task)}", f"Sites of {task}", columns, lines)


def _site_cells(scores: pd.Series, local: pd.Series | None) -> Callable[[str], Cell]:
    def cell(site: str) -> Cell:
        value = float(scores[site])
        if not finite(value):
            return Cell(ABSENT)
        if local is None or not finite(float(local[site])):
            return Cell(score_text(value), value)
        return Cell(f"{score_text(value)} ({points(value - float(local[site]))})", value)

    return cell
