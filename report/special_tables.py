"""Tables of some boards only: comparisons of methods, scores of clients, sites of own data."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from ..metrics import FALLING, sign
from ..registry import OWN
from .board import LOCAL, Board, over_seeds
from .cells import NOTHING, Cell, Column, Table, cells_by_name, difference_cell, number_cell, numbers_by_name
from .groups import METHOD, display, kind_of_data
from .inference import Inference
from .ranking import Ranking
from .statistics import performance_profile, ranks, win_rates
from .tables import order
from .text import count, finite, number, percent, plain, points, score_text, slug, unit

WITHIN = (0.01, 0.02, 0.05)  # gaps to the best: columns of the performance profile
NATURAL = ("own", "source")  # partitions whose clients come with the data

WIDEST = 30  # methods of a table of pairs
CLIENTS = (
    "Worst client: the worst score of a client on its own test nodes. Spread: the standard deviation of these scores. "
    "Both are means over seeds and over the datasets of the main metric."
)
LEGENDS = {
    "Macro-F1 and clients": f"Macro-F1: mean over all datasets of the board. {CLIENTS}",
    "Clients": CLIENTS,
    "Verdicts": "Worse, equivalent, better: the probabilities that {} the method is below the baseline by more than "
    "one point, within one point of it, and above it by more than one point. A verdict needs a probability of 95% and "
    "an interval that agrees. {}Tasks higher, lower: tasks with a significant difference over seeds. Details: *How "
    "ranks are made*, at the end.",
    "Second metric": "Means and differences as in the ranking, over the datasets with this metric.",
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


def method_tables(ranking: Ranking) -> dict[str, Table]:
    """The tables of a board with ranked methods, by their titles in `LEGENDS`."""
    tables = {
        "Second metric": second_table(ranking),
        _clients_title(ranking): clients_table(ranking),
        "Verdicts": verdicts_table(ranking),
        "Performance profile": profile_table(ranking),
        "Win rates": win_rate_table(ranking),
    }
    return {title: table for title, table in tables.items() if table}


def legend(title: str, ranking: Ranking) -> str:
    """The text below a table of `method_tables`."""
    if ranking.inference.unit == "dataset":
        new = "New dataset: 95% prediction interval on one more dataset like these. "
        return LEGENDS[title].format("on a typical dataset", new)
    return LEGENDS[title].format("on average over these tasks (single tasks may differ)", "")


def second_table(ranking: Ranking) -> Table | None:
    """Means and differences of the second metric; None without one, or if it has no comparisons."""
    inference, metric = ranking.second, ranking.other_metric
    if inference is None or inference.unit == "none":
        return None
    means = numbers_by_name(inference.scores.mean(), score_text)
    columns = [METHOD, Column(f"Mean {unit(metric)}", means, falling=True, best=True)]
    return _table(ranking, "second", "Second metric", [*columns, *_differences(inference, "Against")])


def _differences(inference: Inference, against: str) -> list[Column]:
    """The differences from each baseline. against: the first words of the titles."""
    columns = []
    for base, posteriors in inference.against.items():
        gaps = cells_by_name({name: difference_cell(posterior) for name, posterior in posteriors.items()})
        columns.append(Column(f"{against} {display(base)}, points", gaps, falling=True))
    return columns


def _clients_title(ranking: Ranking) -> str:
    return "Macro-F1 and clients" if ranking.macro_f1 else "Clients"


def clients_table(ranking: Ranking) -> Table | None:
    """Macro-F1 and its differences from the baselines; the worst client and the spread between clients; if the clients
    come with the data, also their gains over local training. None if none of these is known."""
    board, inference = ranking.board, ranking.macro_f1
    columns = [METHOD]
    if inference:
        means = numbers_by_name(inference.scores.mean(), percent)
        columns.append(Column("Macro-F1, %", means, falling=True, best=True))
        columns += _differences(inference, "Macro-F1 against") if inference.unit != "none" else []
    clients = client_summary(board).loc[lambda table: table.index.get_level_values("entrant").isin(board.ranked)]
    if not any(grid.isna().any(axis=None) for grid in (clients[name].unstack("entrant") for name in clients)):
        worst, spread = (board.over_datasets(clients[name]) for name in ("worst", "spread"))
        title = unit("Worst client" if sign(board.metric) > 0 else f"Worst client {FALLING}")
        columns += [
            Column(title, numbers_by_name(worst, score_text), falling=True, best=True),
            Column("Spread between clients, points", numbers_by_name(spread, percent), best=True),
        ]
    gains = client_gains(board)
    if board.scored["partition"].isin(NATURAL).all() and not gains["gaining"].isna().all():
        gaining, least = (board.over_datasets(gains[name]) for name in ("gaining", "least"))
        columns += [
            Column("Clients above local training, %", numbers_by_name(gaining, percent), falling=True, best=True),
            Column("Least gain of a client, points", numbers_by_name(least, points), falling=True, best=True),
        ]
    return _table(ranking, "clients", _clients_title(ranking), columns) if len(columns) > 1 else None


def verdicts_table(ranking: Ranking) -> Table | None:
    """Probabilities of the verdicts, interval for a new dataset, tasks higher and lower; None without comparisons."""
    inference = ranking.inference
    if inference.unit == "none" or not inference.baselines:
        return None
    columns = [METHOD]
    for base, posteriors in inference.against.items():
        chances = {name: (gap.worse, gap.equivalent, gap.better) for name, gap in posteriors.items()}
        cells = {name: Cell(" / ".join(map(number, three)), three[2]) for name, three in chances.items()}
        columns.append(Column(f"Worse, equivalent, better than {display(base)}", cells_by_name(cells)))
        if inference.unit == "dataset":
            bounds = {name: inference.new_dataset(name, base) for name in posteriors}
            cells = {name: Cell(f"{points(low)} to {points(high)}", low) for name, (low, high) in bounds.items()}
            columns.append(Column(f"New dataset against {display(base)}, points", cells_by_name(cells)))
        counts = inference.task_counts[base]
        if any(map(sum, counts.values())):
            cells = {name: Cell(f"{higher}, {lower}", higher - lower) for name, (higher, lower) in counts.items()}
            columns.append(Column(f"Tasks higher, lower than {display(base)}", cells_by_name(cells), falling=True))
    return _table(ranking, "verdicts", "Verdicts", columns)


def win_rate_table(ranking: Ranking) -> Table | None:
    """Share of the datasets on which the method of the line is above that of the column; None for fewer than three
    methods, and for more than `WIDEST`, because the table has a column per method."""
    if not 3 <= len(ranking.board.ranked) <= WIDEST:
        return None
    rates, show = win_rates(ranking.board.by_dataset), partial(percent, digits=0)
    names = ranking.table.index
    columns = [METHOD, *(Column(plain(display(name)), numbers_by_name(rates[name], show)) for name in names)]
    table = _table(ranking, "winrates", "Win rates, % of the datasets", columns)
    for place, line in enumerate(table.lines):
        line.cells[place + 1] = NOTHING
    return table


def profile_table(ranking: Ranking) -> Table | None:
    """Share of the tasks on which a method is close to the best, and its largest gap; None for fewer than three
    methods or tasks."""
    board = ranking.board
    if len(board.ranked) < 3 or len(board.tasks) < 3:
        return None
    profile = performance_profile(board.scores[board.ranked], WITHIN)
    columns = [METHOD]
    for gap in WITHIN:
        share = numbers_by_name(profile[gap], partial(percent, digits=0))
        columns.append(Column(f"Within {100 * gap:g} of the best, % of tasks", share, falling=True, best=True))
    worst = numbers_by_name(profile["worst"], partial(percent, digits=1))
    columns.append(Column("Largest gap to the best, points", worst, best=True))
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
    columns = [METHOD]
    for kind, line in means.iterrows():
        cell, note = numbers_by_name(line, partial(number, digits=1)), count(int(sizes[str(kind)]), "dataset")
        columns.append(Column(str(kind).capitalize(), cell, best=True, note=note))
    return _table(ranking, "kinds", "Mean ranks by kind of data", columns)


def alternatives_table(ranking: Ranking) -> Table:
    """The mean rank of each method by every measure."""
    table = ranking.mean_ranks
    columns = [METHOD, *(Column(str(measure), numbers_by_name(table[measure])) for measure in table)]
    return _table(ranking, "orders", "Mean ranks", columns)


def agreement_table(ranking: Ranking) -> Table:
    """Kendall's tau between these measures."""
    table, suite = ranking.agreement, ranking.board.suite
    columns = [Column("Kendall's tau", lambda name: Cell(name, name), "text")]
    columns += [Column(str(measure), numbers_by_name(table[measure])) for measure in table]
    return Table.of(f"taus:{slug(suite)}", f"Agreement of orders on board {suite}", columns, table.index)


def _table(ranking: Ranking, id: str, title: str, columns: list[Column]) -> Table:
    suite, board = ranking.board.suite, ranking.board
    return Table.of(f"{id}:{slug(suite)}", f"{title} on board {suite}", columns, ranking.table.index, board.entry)


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
        base = scores[local] if local not in (None, entrant) else pd.Series()
        columns.append(Column(plain(entrant), partial(_site_cell, scores[entrant], base), falling=True))
    return Table.of(f"sites:{slug(board.suite)}:{slug(task)}", f"Sites of {task}", columns, scores.index)


def _site_cell(scores: pd.Series, local: pd.Series, site: str) -> Cell:
    gain = scores[site] - local.get(site, np.nan)
    return number_cell(scores[site], lambda score: score_text(score) + (f" ({points(gain)})" if finite(gain) else ""))
