"""The tables of a board. Each column is defined once, for the markdown files and for the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pandas as pd

from ..metrics import ADAPTED, FALLING, SCORES, UNSEEN, sign
from .board import MEASURES, Board
from .cells import (
    NOTHING,
    Cell,
    Column,
    Interval,
    Span,
    Table,
    cells_by_name,
    difference_cell,
    name_or_dash,
    number_cell,
)
from .groups import METHOD, display, published, uploads
from .provenance import missing
from .ranking import Ranking
from .statistics import DECIMALS, MIN_SEEDS
from .text import ABSENT, count, csv_text, data_size, finite, mean_std, number, percent, plain, score_text, slug, unit

EQUAL = "≈"
ABOVE, BELOW = "↑", "↓"
USELESS = "▽"
SETTING_LOSS = (
    "Loss of a median setting: validation score of the best tuning trial minus that of the median trial, mean over "
    "datasets. Trials are compared after the first stage of the search, which all of them reach; a failed trial "
    "counts as 0. If the loss is small, the method works with most settings."
)


@dataclass(frozen=True)
class Entrant:
    """An entry of a ranking, the subject of a line of a table. figures: its numbers; NaN for other names."""

    ranking: Ranking
    name: str
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def board(self) -> Board:
        return self.ranking.board

    @property
    def method(self) -> str:
        return self.board.method_of[self.name]

    def __getitem__(self, figure: str) -> float:
        return self.figures.get(figure, float("nan"))

    def __str__(self) -> str:
        return self.name

    def entry(self) -> tuple[str, str, str]:
        """See `Board.entry`."""
        return self.board.entry(self.name)


def _figure(name: str, show: Callable[[float], str]) -> Callable[[Entrant], Cell]:
    return lambda entrant: number_cell(entrant[name], show)


def _whole(value: float) -> str:
    return f"{value:.0f}" if finite(value) else ""


def _marked(entrant: Entrant) -> Cell:
    return Cell((Span(plain(display(entrant.name))), Span(mark(entrant.board, entrant.name))), entrant.name)


def mark(board: Board, name: str) -> str:
    """' (untuned)' for an entry without tuned settings, if other entries have them. ' ✓3' if the maintainers ran 3 rows
    again with the same result; ' ✗1/3' if the result of one of 3 differed."""
    passed, total = board.verified.get(name, (0, 0))
    untuned = " (untuned)" if name in board.untuned else ""
    return untuned + (f" ✗{total - passed}/{total}" if passed < total else f" ✓{total}" if total else "")


def _rank(entrant: Entrant) -> Cell:
    if entrant.name in entrant.board.references:
        return Cell(entrant.board.status(entrant.name), mark="absent")
    mean, low, high = (entrant[name] for name in ("mean_rank", "low", "high"))
    if not finite(mean):
        return NOTHING
    bounds = f" ({number(low, 1)}{ABSENT}{number(high, 1)})" if finite(low) else ""
    return Cell(number(mean) + bounds, mean, interval=Interval(mean, low, high, len(entrant.board.ranked)))


def against(baseline: str) -> Column:
    """The differences from a baseline; absent if a board does not compare an entry with it."""

    def cell(entrant: Entrant) -> Cell:
        return difference_cell(entrant.ranking.inference.against.get(baseline, {}).get(entrant.name))

    return Column(f"Against {display(baseline)}, points", cell, falling=True)


def _published(entrant: Entrant) -> Cell:
    known = published(entrant.method)
    if not known["paper"]:
        return NOTHING
    code = (Span(", "), Span("code", "link", known["code"])) if known["code"] else ()
    return Cell((Span(known["venue"], "link", known["paper"]), *code), known["venue"])


def score(task: str, entrant: Entrant) -> Cell:
    """The score on a task: the best in bold; a mark if it does not differ significantly from the best."""
    board, name = entrant.board, entrant.name
    line = board.measures(task, name)
    if not line:
        rows = board.rows_of(task)
        words = ", ".join(sorted(set(rows["status"][rows["entrant"] == name]) - {"ok"}))
        return Cell((Span(words or "not run", "em"),), None, "absent")
    text, value = mean_std(line["score"], line["score_std"]), line["score"]
    best, equal = entrant.ranking.leaders[task]
    if name not in board.references and value < entrant.ranking.floors.get(task, value):
        text += f" {USELESS}"
    if name in best:
        return Cell((Span(text, "strong"),), value, "best")
    if name in equal:
        return Cell(f"{text} {EQUAL}", value, "equal")
    if line["n"] < len(board.expected[task]):
        return Cell(f"{text} (n={int(line['n'])})", value, "partial")
    return Cell((Span(text, "em" if name in board.references else ""),), value)


def legend(ranking: Ranking) -> str:
    """The meaning of the marks of `score` on a board, as markdown."""
    if any(len(seeds) >= MIN_SEEDS for seeds in ranking.board.expected.values()):
        apart = f"{EQUAL}: not significantly different from it (paired t-test, at least {MIN_SEEDS} seeds, Holm, 5%)."
    else:
        apart = f"With fewer than {MIN_SEEDS} seeds no difference is significant."
    below = f" {USELESS}: below a reference that learns nothing." if ranking.floors else ""
    units, best = ("percent", "highest") if sign(ranking.board.metric) > 0 else ("the unit of the error", "lowest")
    return f"Mean ± standard deviation over n seeds, in {units}. **Bold**: {best} mean. {apart}{below}"


RANK = Column("Mean rank (95% interval)", _rank, best=True)
SCORE = Column("Mean score, %", _figure("score", score_text), falling=True, best=True)
TRAFFIC = Column("Traffic", _figure("traffic", data_size))
TIME = Column("Train, s", _figure("seconds", partial(number, digits=1)))
HELD_OUT = {UNSEEN: "Unseen clients", ADAPTED: "Unseen clients, adapted"}
MEASURED = [  # next to the score on a task
    Column("n", _figure("n", _whole), falling=True),
    Column("Validation", _figure("val", score_text), falling=True),
    Column("Macro-F1", _figure("macro_f1", percent), falling=True),
    Column("Best round", _figure("best_round", partial(number, digits=1))),
    TRAFFIC,
    Column("Train, s", _figure("train_seconds", partial(number, digits=1))),
    Column("Worker's peak, MiB", _figure("peak_memory_mb", partial(number, digits=0))),
]


def ranking_table(ranking: Ranking) -> Table:
    """The ranked entries by mean rank, then the complete references."""
    names = [*(ranking.table.index if ranking.board.ranked else []), *ranking.references.index]
    return ranking_lines(ranking, ranking_columns(ranking), names)


def ranking_lines(ranking: Ranking, columns: Sequence[Column], names: Iterable[str]) -> Table:
    """A table of these entries, in some columns of `ranking_columns`."""
    suite, lines = ranking.board.suite, [Entrant(ranking, name, ranking.figures(name)) for name in names]
    return Table.of(f"overall:{slug(suite)}", f"Ranking of board {suite}", columns, lines, Entrant.entry)


def ranking_columns(ranking: Ranking) -> list[Column]:
    """The columns of `ranking_table`; some are of some boards only."""
    board, inference, other = ranking.board, ranking.inference, ranking.other_metric
    short = _short if _short(other) != _short(board.metric) else str  # errors of nodes and of graphs stay apart
    metric = unit(short(board.metric))
    scores = [replace(SCORE, title=f"Mean {metric}")]
    if other:
        sizes = {name: count(len(board.datasets_of(name)), "dataset") for name in (board.metric, other)}
        second = Column(unit(short(other)), _figure("other", score_text), falling=True, best=True, note=sizes[other])
        scores = [replace(scores[0], note=sizes[board.metric]), second]
    held_out = []
    for name, title in HELD_OUT.items():
        if known := ranking.unseen.get(name, pd.Series()).dropna().to_dict():
            cells = {str(entrant): Cell(score_text(value), value) for entrant, value in known.items()}
            held_out.append(Column(f"{title}, {metric}", cells_by_name(cells), falling=True, best=True))
    return [
        Column("Group", lambda entrant: name_or_dash(entrant.ranking.inference.groups.get(entrant.name, "")), "word"),
        Column("Method", _marked, "method"),
        RANK,
        *scores,
        *held_out,
        *(
            replace(against(base), note=short(board.metric).replace(f" {FALLING}", "") if other else "")
            for base in (inference.baselines if inference.unit != "none" else ())
        ),
        Column("Wins", _figure("wins", _whole), falling=True, best=True),
        TRAFFIC,
        replace(TIME, title="CPU, s") if board.clock == "cpu_seconds" else TIME,
        Column("Worker's peak, MiB", _figure("peak", partial(number, digits=0))),
        Column("Uploads", lambda entrant: name_or_dash(", ".join(uploads(entrant.method))), "word"),
        Column("Published", _published, "word"),
        *([Column("Loss of a median setting, points", _loss)] if ranking.setting_loss else []),
    ]


def _loss(entrant: Entrant) -> Cell:
    loss = entrant.ranking.setting_loss.get(entrant.method)
    return Cell(percent(loss, 1), loss) if finite(loss) else NOTHING


def _short(metric: str) -> str:
    return metric.removesuffix(" of graphs").removeprefix("clustering ")


def incomplete_table(ranking: Ranking) -> Table:
    """The incomplete entries: what is missing, and why."""
    board = ranking.board
    runs = sum(map(len, board.expected.values()))
    columns = [
        METHOD,
        Column("Tasks", lambda name: _share(board.full[name], len(board.tasks)), falling=True),
        Column("Runs", lambda name: _share(board.counts[name], runs), falling=True),
        Column("What is missing", lambda name: _lines(missing(board, name)), "text"),
    ]
    caption = f"Incomplete methods of board {board.suite}"
    return Table.of(f"incomplete:{slug(board.suite)}", caption, columns, board.incomplete, board.entry)


def _share(counts: pd.Series, total: int) -> Cell:
    return Cell(f"{counts.sum()}/{total}", int(counts.sum()))


def _lines(lines: list[str]) -> Cell:
    return Cell(tuple(Span(line, "break") for line in lines[:-1]) + tuple(map(Span, lines[-1:])))


def per_dataset_table(ranking: Ranking) -> Table:
    """Mean ± std of every entry on every task that has a table."""
    board, columns = ranking.board, [METHOD]
    for task in ranking.tasks:
        link, seeds = f"tables/{slug(task)}.md", f"n={len(board.expected[task])}"
        columns.append(Column(plain(task), partial(score, task), falling=True, note=seeds, link=link))
    lines = [Entrant(ranking, name) for name in ranking.order]
    caption = f"Scores on every task of board {board.suite}, %"
    return replace(Table.of(f"tasks:{slug(board.suite)}", caption, columns, lines, Entrant.entry), tagged=True)


def task_table(ranking: Ranking, task: str) -> Table:
    """Every entry with a score on a task: mean ± std over seeds, and costs."""
    board = ranking.board
    entrants = [Entrant(ranking, name, board.measures(task, name)) for name in order(board, task)]
    heading = unit if sign(board.metric) > 0 else str
    held_out = [
        Column(heading(title), _figure(name, score_text), falling=True)
        for name, title in HELD_OUT.items()
        if any(finite(entrant[name]) for entrant in entrants)
    ]
    columns = [
        METHOD,
        Column(heading("Score"), partial(score, task), falling=True, brief="Score"),
        *held_out,
        *MEASURED,
    ]
    caption = f"{task} on board {board.suite}"
    return Table.of(f"task:{slug(board.suite)}:{slug(task)}", caption, columns, entrants, Entrant.entry)


def order(board: Board, task: str) -> list[str]:
    """Entries with a score on a task, best first, references last."""
    scores = board.summary.xs(task, level="task_label")["score"].round(DECIMALS)
    return sorted(scores.index, key=lambda name: (name in board.references, -scores[name], name))


def task_csv(ranking: Ranking, task: str) -> str:
    """`task_table` as CSV: means over seeds as fractions, bytes, seconds; six significant digits. Errors are positive,
    in their unit."""
    lines = ranking.board.summary.xs(task, level="task_label").loc[order(ranking.board, task)]
    lines[list(SCORES)] *= sign(ranking.board.metric_of[task])
    best, equal = ranking.leaders[task]
    frame = pd.DataFrame({"method": [csv_text(name) for name in lines.index]}, index=lines.index)
    frame[["n", "score", "score_std"]] = lines[["n", "score", "score_std"]]
    frame["standing"] = ["best" if n in best else "equal" if n in equal else "" for n in lines.index]
    frame[MEASURES[1:]] = lines[MEASURES[1:]]
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")
