"""Tables of the site only: summary of a board, tuned and default settings, runs and versions of a method, papers."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial

import pandas as pd

from ...benchmark.store.schema import mapping
from .. import tables
from ..board import FEDAVG, Board
from ..cells import NOTHING, Cell, Column, Span, Table, difference_cell, number_cell, numbers_by_name
from ..compare import compare
from ..groups import METHOD, display
from ..inference import BASELINES
from ..papers import Reading, papers
from ..provenance import missing, reasons
from ..ranking import Ranking
from ..reproduction.match import difference
from ..reproduction.page import digits, printed_text, signed
from ..reproduction.view import VERDICTS, View, counts
from ..statistics import Difference, signed_rank_posterior
from ..text import ABSENT, finite, number, percent, plain, points, score_text, slug, with_bounds


def page_of(kind: str, name: str) -> str:
    """The file of the page of a board, method, dataset or paper."""
    return f"{kind}-{slug(name.lower() if kind == 'paper' else name)}.html"


HASH = 12  # characters of a code version
PAIR = (", tuned", ", published defaults")  # ends of the titles of two boards that differ in their settings only
PLACE = ["dataset", "partition", "clients"]  # equal for matching tasks of two boards
MIN_PAIRED = 6  # datasets for an interval


def summary_table(ranking: Ranking) -> Table:
    """The ranked methods of a board in the columns of the index: scores, differences, cost."""
    kept = re.compile(r"Method|Mean (?!rank).*|Against .*|Traffic|Published")
    columns = [column for column in tables.ranking_columns(ranking) if kept.fullmatch(column.title)]
    if ranking.macro_f1 is not None:
        macro_f1 = numbers_by_name(ranking.macro_f1.scores.mean(), percent)
        columns.insert(2, Column("Macro-F1, %", macro_f1, falling=True))
    times = ranking.table["seconds"] / ranking.table["seconds"].get(FEDAVG, float("nan"))
    ratio = numbers_by_name(times, lambda share: f"{share:.1f}x" if finite(share) else ABSENT)
    columns.insert(-1, Column("Time / FedAvg", ratio))
    return tables.ranking_lines(ranking, columns, ranking.table.index)


def partner(ranking: Ranking, boards: Sequence[Ranking]) -> tuple[Ranking, Ranking] | None:
    """The tuned board and the board of the same tasks at published defaults; None if `ranking` is not one of two."""
    by_title = {each.board.title: each for each in boards}
    for ending in PAIR:
        start = ranking.board.title.removesuffix(ending)
        if start != ranking.board.title and all(start + each in by_title for each in PAIR):
            return by_title[start + PAIR[0]], by_title[start + PAIR[1]]
    return None


def side_by_side(tuned: Ranking, defaults: Ranking) -> Table:
    """The methods ranked on both boards, over the tasks of both with the same dataset, partition and clients."""
    grids = [_by_place(each.board) for each in (tuned, defaults)]
    shared = grids[0].index.intersection(grids[1].index)
    names = [name for name in tuned.table.index if name in grids[1]] if tuned.board.ranked else []
    after, before = (grid.loc[shared, names].groupby("dataset").mean() for grid in grids)
    note, changes = f"{len(after)} datasets", (after - before).mean()
    columns = [
        METHOD,
        Column("Published defaults, %", numbers_by_name(before.mean(), score_text), falling=True, note=note),
        Column("Tuned, %", numbers_by_name(after.mean(), score_text), falling=True, note=note),
        Column("Change, points", numbers_by_name(changes, points), falling=True),
    ]
    for title, grid in (("defaults", before), ("tuned", after)):
        if FEDAVG in names:
            columns.append(Column(f"Against FedAvg, {title}, points", partial(_against, grid), falling=True))
    caption = "Published defaults and tuned settings on the same tasks"
    return Table.of("both", caption, columns, names, tuned.board.entry)


def _by_place(board: Board) -> pd.DataFrame:
    """Mean scores of the ranked entries on plain tasks, indexed by PLACE."""
    grid = board.scores.loc[board.plain.tasks, board.ranked]
    grid.index = pd.MultiIndex.from_tuples([tuple(board.task_row(task)[PLACE]) for task in grid.index], names=PLACE)
    return grid[~grid.index.duplicated(keep=False)]


def _against(grid: pd.DataFrame, name: str) -> Cell:
    gaps = grid[name] - grid[FEDAVG]
    if name == FEDAVG:
        return Cell(ABSENT)
    if len(gaps) < MIN_PAIRED:
        return number_cell(gaps.mean(), points)
    return difference_cell(signed_rank_posterior(gaps))


def comparison_table(board: Board, name: str) -> Table | None:
    """An entry against FedAvg on every task where both have scores; None if there is none, or for FedAvg itself."""
    comparison = compare(board, name, FEDAVG) if name != FEDAVG and FEDAVG in board.entrants else None
    if comparison is None:
        return None
    pair = board.scored[board.scored["entrant"].isin([name, FEDAVG])]
    costs = pair.groupby(["task_label", "entrant"])[["traffic", board.clock]].mean().astype(float)
    shares = costs.xs(name, level="entrant") / costs.xs(FEDAVG, level="entrant").replace(0, float("nan"))
    columns = [
        Column("Task", lambda line: Cell(plain(line["task"]), line["task"]), "text"),
        Column("Score, %", lambda line: number_cell(line["first"], score_text), falling=True),
        Column("FedAvg, %", lambda line: number_cell(line["second"], score_text), falling=True),
        Column("Difference, points (95%)", _difference, falling=True),
        Column("Traffic / FedAvg", partial(_ratio, shares["traffic"])),
        Column("Time / FedAvg", partial(_ratio, shares[board.clock])),
    ]
    caption, lines = f"{display(name)} against FedAvg: {board.title}", comparison.tasks.to_dict("records")
    return Table.of(f"duel:{slug(board.suite)}:{slug(name)}", caption, columns, lines)


def _difference(line: pd.Series) -> Cell:
    low, high, mean = line["low"], line["high"], float(line["difference"])
    if not finite(low):
        return Cell(f"{points(mean)} (one seed)", mean)
    text = with_bounds(Difference(mean, low, high, line["p"]))
    arrow = tables.ABOVE if low > 0 else tables.BELOW if high < 0 else ""
    return Cell((Span(f"{text} {arrow}", "strong"),), mean) if arrow else Cell(text, mean)


def _ratio(shares: pd.Series, line: pd.Series) -> Cell:
    share = float(shares[line["task"]])
    if not finite(share):
        return NOTHING
    return Cell(f"{share:.2g}x" if share < 1 else f"{share:.{0 if share >= 10 else 1}f}x", share)


def places_table(boards: Sequence[Ranking], method: str) -> Table:
    """Place, scores and costs of a method on every board, one line per entry."""
    named = [(each, name) for each in boards for name in entries(each.board, method)]
    columns = [
        Column("Board", lambda e: Cell((Span(e.board.title, "link", page_of("board", e.board.suite)),)), "text"),
        Column("Entry", lambda entrant: Cell(plain(display(entrant.name)), entrant.name), "word"),
        Column("Place", _place),
        tables.RANK,
        tables.SCORE,
        *map(tables.against, BASELINES),
        tables.TRAFFIC,
        tables.TIME,
    ]
    entrants = [tables.Entrant(each, name, each.figures(name)) for each, name in named]
    return Table.of(f"places:{slug(method)}", f"{display(method)} on the boards", columns, entrants)


def entries(board: Board, method: str) -> list[str]:
    """The entries of a method on a board."""
    return sorted(name for name, owner in board.method_of.items() if owner == method)


def _place(entrant: tables.Entrant) -> Cell:
    """The place of an entry by mean rank, with its letters; its status if it is not ranked."""
    name, inference = entrant.name, entrant.ranking.inference
    if name not in inference.order:
        return Cell(entrant.board.status(name), mark="absent")
    place = inference.order.index(name) + 1
    letters = f" ({inference.groups[name]})" if inference.groups else ""
    return Cell(f"{place} of {len(inference.order)}{letters}", place)


def troubles(boards: Sequence[Ranking], method: str) -> list[str]:
    """The missing and failed runs of a method by board, with reasons."""
    texts = []
    for board in (each.board for each in boards):
        for name in entries(board, method):
            texts += [f"{board.title}: {line}" for line in missing(board, name)]
            for task in board.dead_tasks:
                rows = board.rows_of(task)
                texts += [f"{board.title}: {plain(task)}: {why}" for why in reasons(rows[rows["entrant"] == name])]
    return texts


def versions_table(boards: Sequence[Ranking], method: str) -> Table:
    """The code versions of a method's rows: board, version, number of rows, commits, days."""
    lines = []
    for board in (each.board for each in boards):
        made_with = board.rows.loc[board.rows["method"] == method, ["method_version", "git_sha", "started"]]
        for version, rows in made_with.groupby("method_version", sort=True):
            commits = sorted({str(sha)[:HASH] or ABSENT for sha in rows["git_sha"].fillna("")})
            days = sorted({str(moment)[:10] for moment in rows["started"]})
            when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
            lines.append([board.title, str(version)[:HASH], str(len(rows)), ", ".join(commits), when])
    titles = ("Board", "Code version", "Rows", "Commits", "Days")
    columns = [Column(title, partial(_entry, place), "text") for place, title in enumerate(titles)]
    return Table.of(f"versions:{slug(method)}", f"Code versions of {display(method)}", columns, lines)


def _entry(place: int, line: Sequence[str]) -> Cell:
    return Cell(plain(line[place]))


def used_parameters(boards: Sequence[Ranking], method: str) -> dict[str, str]:
    """Parameter -> its values in the rows of a method."""
    used: dict[str, set[str]] = {}
    for board in (each.board for each in boards):
        for text in board.rows.loc[board.rows["method"] == method, "method_params"].unique():
            for name, value in mapping(text).items():
                used.setdefault(str(name), set()).add(json.dumps(value))
    return {name: ", ".join(sorted(values)) for name, values in used.items()}


def readings_of(method: str) -> dict[tuple[str, str], Reading]:
    """The readings of the papers that concern a method, by paper and id; of several tables' the first."""
    readings: dict[tuple[str, str], Reading] = {}
    for paper in papers():
        for reading in (reading for table in paper.tables.values() for reading in paper.readings_of(table)):
            if method in reading.methods:
                readings.setdefault((paper.name, reading.id), reading)
    return readings


def paper_table(view: View) -> Table:
    """A paper's table: in each cell the published value, ours, and ours minus the published value."""
    columns = [Column("", lambda line: Cell(plain(view.row_label(line))), "text")]
    columns += [Column(plain(view.heading(place)), partial(_compared, view, place)) for place in view.columns]
    return Table.of("", f"{view.paper.name}, Table {view.table.table}", columns, view.lines)


def _compared(view: View, place: tuple[str, ...], line: str) -> Cell:
    figure = view.figure(line, place)
    if figure is None:
        return Cell("")
    ours, width = view.ours[figure], digits(figure)
    first = Span(printed_text(figure), "break")
    if not ours.n:
        return Cell((first, Span("not run", "em")))
    gap = difference(figure, ours)
    shown_gap = f" ({signed(gap, width)})" if finite(gap) else ""
    return Cell((first, Span(number(figure.scale * ours.mean, width), "strong"), Span(shown_gap)))


def _number_of_claims(place: int, view: View) -> Cell:
    return number_cell(counts(view.claims)[place], str)


def claims_table(views: Sequence[View]) -> Table:
    """The verdicts on a table's claims under each reading that was run."""
    columns = [
        Column("Reading", lambda view: Cell(plain(view.reading.id) or "as stated"), "text"),
        Column("What it means", lambda view: Cell(plain(view.reading.meaning, 1000) or ABSENT), "text"),
        *(Column(word.capitalize(), partial(_number_of_claims, place)) for place, word in enumerate(VERDICTS)),
        Column("Median of ours - published, points", lambda view: number_cell(view.gap, partial(signed, digits=2))),
    ]
    return Table.of("", "Claims under each reading", columns, [view for view in views if view.ran or view is views[0]])
