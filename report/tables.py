"""The tables of a board as sheets. A column stands in one list here, and from there in every file and on the page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pandas as pd

from .board import MEASURES, Board
from .datakinds import groups_of
from .families import uploads
from .gaps import missing
from .sheet import Interval, Sheet, SheetCell, SheetColumn, SheetLine, Span
from .standings import Standings
from .statistics import ALPHA, DECIMALS, MIN_SEEDS
from .text import ABSENT, csv_text, data_size, finite, mean_std, number, percent, plain, points, slug

EQUAL = "≈"
ABOVE, BELOW = "↑", "↓"
LEARNS_NOTHING = ("majority", "one-cluster", "label-counts")  # references that no method should be below
USELESS = "▽"


@dataclass(frozen=True)
class Entrant:
    """What a line of a sheet is about. figures: what is known of it, NaN for anything else."""

    standings: Standings
    name: str
    figures: Mapping[str, float] = field(default_factory=dict)

    @property
    def board(self) -> Board:
        return self.standings.board

    def __getitem__(self, figure: str) -> float:
        return self.figures.get(figure, float("nan"))


def _figure(name: str, show: Callable[[float], str], entrant: Entrant) -> SheetCell:
    value = entrant[name]
    return SheetCell(show(value), value if finite(value) else None)


def _whole(value: float) -> str:
    return f"{value:.0f}" if finite(value) else ""


def _tier(value: float) -> str:
    return _whole(value) if value != 0 else ABSENT


def _name(entrant: Entrant) -> SheetCell:
    return SheetCell(plain(entrant.name), entrant.name)


def _marked(entrant: Entrant) -> SheetCell:
    return SheetCell((Span(plain(entrant.name)), Span(mark(entrant.board, entrant.name))), entrant.name)


def mark(board: Board, name: str) -> str:
    """' ✓3' for an entrant of which the maintainers ran 3 rows again, all of which came out the same; ' ✗1/3' where one
    of 3 did not; nothing where none was run again."""
    passed, total = board.verified.get(name, (0, 0))
    return f" ✗{total - passed}/{total}" if passed < total else f" ✓{total}" if total else ""


def _rank(entrant: Entrant) -> SheetCell:
    if entrant.name in entrant.board.references:
        return SheetCell(entrant.board.standing(entrant.name), mark="absent")
    mean, low, high = (entrant[name] for name in ("mean_rank", "low", "high"))
    bounds = f" ({number(low, 1)}{ABSENT}{number(high, 1)})" if finite(low) else ""
    return SheetCell(number(mean) + bounds, mean, interval=Interval(mean, low, high, len(entrant.board.ranked)))


def _against(control: str, entrant: Entrant) -> SheetCell:
    """The difference from a control in points with its interval, and an arrow where it is told from zero."""
    found = entrant.standings.contest.against[control].get(entrant.name)
    if found is None or not finite(found.mean):
        return SheetCell(ABSENT, None, "absent")
    arrow = f" {ABOVE if found.mean > 0 else BELOW}" if found.p <= ALPHA else ""
    return SheetCell(f"{points(found.mean)} ({points(found.low)} to {points(found.high)}){arrow}", found.mean)


def _solved(entrant: Entrant) -> tuple[int, int]:
    return int(entrant.board.full[entrant.name].sum()), len(entrant.board.tasks)


def _uploads(entrant: Entrant) -> SheetCell:
    what = ", ".join(uploads(entrant.board.method_of[entrant.name]))
    return SheetCell(what or ABSENT, what or None)


def _tasks(entrant: Entrant) -> SheetCell:
    solved, every = _solved(entrant)
    return SheetCell(f"{solved}/{every}", solved)


def _runs(entrant: Entrant) -> SheetCell:
    runs = int(entrant.board.counts[entrant.name].sum())
    return SheetCell(f"{runs}/{sum(map(len, entrant.board.expected.values()))}", runs)


def _missing(entrant: Entrant) -> SheetCell:
    lines = missing(entrant.board, entrant.name)
    return SheetCell(tuple(Span(line, "break") for line in lines[:-1]) + tuple(map(Span, lines[-1:])))


def score(task: str, entrant: Entrant) -> SheetCell:
    """The score on a task: best in bold, those not told apart from the best with a mark."""
    board, name = entrant.board, entrant.name
    line = board.measures(task, name)
    if not line:
        rows = board.rows_of(task)
        words = ", ".join(sorted(set(rows["status"][rows["entrant"] == name]) - {"ok"}))
        return SheetCell((Span(words or "not run", "em"),), None, "absent")
    text, value = mean_std(line["score"], line["score_std"]), line["score"]
    best, equal = entrant.standings.leaders[task]
    if name not in board.references and value < board.floor(task, LEARNS_NOTHING):
        text += f" {USELESS}"
    if name in best:
        return SheetCell((Span(text, "strong"),), value, "best")
    if name in equal:
        return SheetCell(f"{text} {EQUAL}", value, "equal")
    if line["n"] < len(board.expected[task]):
        return SheetCell(f"{text} (n={int(line['n'])})", value, "partial")
    return SheetCell((Span(text, "em" if name in board.references else ""),), value)


def legend(board: Board) -> str:
    """What the marks of `score` mean on this board, as markdown."""
    if any(len(seeds) >= MIN_SEEDS for seeds in board.expected.values()):
        apart = f"{EQUAL}: not told apart from it by a paired t-test over at least {MIN_SEEDS} seeds (Holm, 5%)."
    else:
        apart = f"With fewer than {MIN_SEEDS} seeds nothing is told apart."
    below = f" {USELESS}: below a reference that learns nothing." if board.has_floor(LEARNS_NOTHING) else ""
    return f"Mean ± standard deviation over n seeds, in percent. **Bold**: highest mean. {apart}{below}"


METHOD = SheetColumn("Method", _name, "method")
TIME = SheetColumn("Train, s", partial(_figure, "seconds", partial(number, digits=1)))  # by the board's clock
RANKING = [
    SheetColumn("Tier", partial(_figure, "tier", _tier), "place"),
    SheetColumn("Method", _marked, "method"),
    SheetColumn("Mean rank (95% interval)", _rank, best=True),
    SheetColumn("Mean score, %", partial(_figure, "score", percent), falling=True, best=True),
    SheetColumn("Wins", partial(_figure, "wins", _whole), falling=True, best=True),
    SheetColumn("Traffic", partial(_figure, "traffic", data_size)),
    TIME,
    SheetColumn("Uploads", _uploads, "word"),
]
FIRST = 4  # columns of the ranking that stand before those of the controls
UNRANKED = [
    METHOD,
    SheetColumn("Tasks", _tasks, falling=True),
    SheetColumn("Runs", _runs, falling=True),
    SheetColumn("What is missing", _missing, "text"),
]
# Beside the score, for one task.
MEASURED = [
    SheetColumn("n", partial(_figure, "n", _whole), falling=True),
    SheetColumn("Validation", partial(_figure, "val", percent), falling=True),
    SheetColumn("Macro-F1", partial(_figure, "macro_f1", percent), falling=True),
    SheetColumn("Best round", partial(_figure, "best_round", partial(number, digits=1))),
    SheetColumn("Traffic", partial(_figure, "traffic", data_size)),
    SheetColumn("Train, s", partial(_figure, "train_seconds", partial(number, digits=1))),
    SheetColumn("Peak, MiB", partial(_figure, "peak_memory_mb", partial(number, digits=0))),
]


def ranking(standings: Standings) -> Sheet:
    """The ranking, references below it."""
    suite = standings.board.suite
    names = [*(standings.table.index if standings.board.ranked else []), *standings.references.index]
    lines = [ranked(standings, name) for name in names]
    controls = [
        SheetColumn(f"Against {control}, points", partial(_against, control), falling=True)
        for control in (standings.contest.controls if standings.contest.unit != "none" else [])
    ]
    columns = [*RANKING[:FIRST], *controls, *RANKING[FIRST:]]
    if standings.board.clock == "cpu_seconds":
        columns = [replace(column, title="CPU, s") if column is TIME else column for column in columns]
    return _sheet(f"overall:{slug(suite)}", f"Ranking of board {suite}", columns, lines)


def ranked(standings: Standings, name: str) -> Entrant:
    """What the columns of `RANKING` are made from; an entrant that is not in the ranking has no figures."""
    return Entrant(standings, name, standings.figures(name))


def unranked(standings: Standings) -> Sheet:
    """Who is not complete, what is missing, and why."""
    suite, lines = standings.board.suite, [Entrant(standings, name) for name in standings.board.incomplete]
    return _sheet(f"incomplete:{slug(suite)}", f"Incomplete methods of board {suite}", UNRANKED, lines)


def per_dataset(standings: Standings) -> Sheet:
    """Mean ± std of every entrant on every task; of a board under stress, on every plain one."""
    board, columns = standings.board, [METHOD]
    for task in board.plain.tasks:
        link, seeds = f"{board.suite}/tables/{slug(task)}.md", f"n={len(board.expected[task])}"
        column = SheetColumn(plain(task), partial(score, task), falling=True, note=seeds, link=link)
        columns.append(replace(column, groups=groups_of(standings, task)))
    lines = [Entrant(standings, name) for name in standings.order]
    caption = f"Scores on every task of board {board.suite}, %"
    return replace(_sheet(f"tasks:{slug(board.suite)}", caption, columns, lines), tagged=True)


def one_task(standings: Standings, task: str) -> Sheet:
    """Every entrant with a score on a task: its mean ± std over seeds, and what it cost."""
    board = standings.board
    columns = [METHOD, SheetColumn("Score, %", partial(score, task), falling=True, brief="Score"), *MEASURED]
    lines = [Entrant(standings, name, board.measures(task, name)) for name in order(board, task)]
    return _sheet(f"task:{slug(board.suite)}:{slug(task)}", f"{task} on board {board.suite}", columns, lines)


def _sheet(id: str, caption: str, columns: Sequence[SheetColumn], entrants: Iterable[Entrant]) -> Sheet:
    return Sheet(id, caption, columns, lines_of(columns, entrants))


def lines_of(columns: Sequence[SheetColumn], entrants: Iterable[Entrant]) -> list[SheetLine]:
    """A line for each entrant, the best of the ranked marked in the columns that ask for it."""
    lines = [_line(entrant, [column.cell(entrant) for column in columns]) for entrant in entrants]
    racing = [line.cells for line in lines if line.standing == "ranked"]
    for place, column in enumerate(columns):
        if column.best:
            _mark_best(racing, place, max if column.falling else min)
    return lines


def _mark_best(lines: Sequence[list[SheetCell]], place: int, best: Callable[..., float]) -> None:
    values = [round(float(cells[place].value or 0), DECIMALS) for cells in lines]
    for cells, value in zip(lines, values, strict=True):
        cells[place] = replace(cells[place], mark="best" if value == best(values) else "")


def _line(entrant: Entrant, cells: list[SheetCell]) -> SheetLine:
    board, name = entrant.board, entrant.name
    return SheetLine(cells, name, board.method_of[name], board.standing(name))


def order(board: Board, task: str) -> list[str]:
    """Entrants with a score on a task, best first, references last."""
    scores = board.summary.xs(task, level="task_label")["score"].round(DECIMALS)
    return sorted(scores.index, key=lambda name: (name in board.references, -scores[name], name))


def one_task_csv(standings: Standings, task: str) -> str:
    """The same as `one_task` as CSV: means over seeds as fractions, bytes, seconds; six significant digits."""
    lines = standings.board.summary.xs(task, level="task_label").loc[order(standings.board, task)]
    best, equal = standings.leaders[task]
    frame = pd.DataFrame({"method": [csv_text(name) for name in lines.index]}, index=lines.index)
    frame[["n", "score", "score_std"]] = lines[["n", "score", "score_std"]]
    frame["standing"] = ["best" if n in best else "equal" if n in equal else "" for n in lines.index]
    frame[MEASURES[1:]] = lines[MEASURES[1:]]
    return frame.to_csv(index=False, lineterminator="\n", float_format="%.6g")
