"""Make the pages from templates, style and script; each page is complete.

The Content-Security-Policy allows the style and script of the page by their hashes, and pictures next to the page. A
script in the text of a row would not run, even if it were not escaped.
"""

from __future__ import annotations

import base64
import hashlib
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment
from markdown_it import MarkdownIt
from markupsafe import Markup, escape

from ...benchmark.suites.catalogue import catalogue, entry, is_board
from ..board import FEDAVG, LOCAL, Board
from ..cells import Cell, Interval, Span
from ..characteristics import groups_of
from ..figures.style import COLOUR_OF, CROWD
from ..groups import display, family, kind_of_data, published, uploads
from ..leaderboard import ABOUT_REPORTED, REPORTED, key_findings
from ..papers import Paper, papers
from ..provenance import protocol
from ..ranking import Ranking
from ..reproduction.page import stated_counts
from ..reproduction.view import View
from ..special_tables import client_summary
from ..templating import document, environment
from ..text import finite, plain, slug
from . import tables
from .tables import page_of

SPARE = 8  # a line break is intended if the next word and this number of characters would have fitted
_MARKDOWN = MarkdownIt("commonmark", {"html": False})
_MARKDOWN.disable(["link", "image", "autolink", "html_inline", "html_block", "reference"])
_PIECES = re.compile(
    r"`(?P<code>[^`]+)`|arXiv (?P<arxiv>\d{4}\.\d{4,5}(v\d+)?)|doi (?P<doi>10\.\d{4,9}/[^\s;,)]+)|.", re.DOTALL
)


def block(markdown: str | Iterable[str]) -> Markup:
    """Markdown paragraphs and lists as HTML. Text that `text.md` escaped is shown as it was."""
    return Markup(_MARKDOWN.render(markdown if isinstance(markdown, str) else "\n".join(markdown)))


def inline(markdown: str) -> Markup:
    """One line of markdown as HTML, without a paragraph."""
    return Markup(_MARKDOWN.renderInline(markdown))


def documentation(doc: str) -> list[tuple[bool, list[Markup]]]:
    """Divide a docstring (from `inspect.getdoc`) into paragraphs: whether it is a formula, and its lines.

    A paragraph with an indented line is a formula, which keeps its lines and spaces; other text keeps intended line
    breaks only.
    """
    doc = "".join(c for c in doc if c == "\n" or not unicodedata.category(c).startswith("C"))
    width = max(map(len, doc.splitlines()), default=0)
    passages: list[tuple[bool, list[Markup]]] = []
    for paragraph in re.split(r"\n\s*\n", doc.strip("\n")):
        lines = paragraph.splitlines()
        formula = any(line.startswith("  ") for line in lines)
        passages.append((formula, list(map(linked, lines if formula else _joined(lines, width)))))
    return passages


def linked(text: str) -> Markup:
    """Escape `text`, link arXiv numbers and DOIs, and set `code` as code."""
    return Markup("").join(map(_piece_html, _PIECES.finditer(text)))


def _piece_html(piece: re.Match[str]) -> Markup:
    if piece["code"]:
        return Markup("<code>{}</code>").format(piece["code"])
    if piece["arxiv"] or piece["doi"]:
        target = f"arxiv.org/abs/{piece['arxiv']}" if piece["arxiv"] else f"doi.org/{piece['doi'].rstrip('.')}"
        return Markup('<a href="https://{}">{}</a>').format(target, piece[0])
    return escape(piece[0])


def _joined(lines: list[str], width: int) -> list[str]:
    joined = lines[:1]
    for before, line in pairwise(lines):
        first = line.split(" ", 1)[0]
        if len(before) + 1 + len(first) + SPARE <= width:
            joined.append(line)
        else:
            joined[-1] += f" {line}"
    return joined


METRICS = {"macro_f1": "Macro-F1", "worst": "Worst client", "val": "Validation"}  # shown together with the score


def board_data(ranking: Ranking) -> dict[str, Any]:
    """The data of a board's page, for its script: methods, plain tasks and values.

    values: metric -> methods x tasks, means over seeds in percent; None if a seed is missing. mixed: tasks with another
    metric, which are left out of means.
    """
    board = ranking.plain.board
    names = [name for name in ranking.order if name in board.entrants]
    tasks = board.tasks
    titles = {"score": board.metric.capitalize().replace("Roc auc", "ROC AUC"), **METRICS}
    grids = {name: _grid(board, name).reindex(columns=names) for name in titles}
    kept = {name: grid for name, grid in grids.items() if grid.notna().any(axis=None)}
    dataset_of = {task: str(board.task_row(task)["dataset"]) for task in tasks}
    return {
        "methods": [_method(ranking, name) for name in names],
        "tasks": [
            {
                "name": plain(task),
                "dataset": plain(dataset),
                "page": page_of("dataset", dataset),
                "groups": list(groups_of(ranking.plain.characteristics, task)),
            }
            for task, dataset in dataset_of.items()
        ],
        "metrics": {name: titles[name] for name in kept},
        "values": {name: [[_percent(v) for v in grid[row]] for row in names] for name, grid in kept.items()},
        "mixed": [plain(task) for task in tasks if board.metric_of[task] != board.metric],
        "baselines": [plain(display(name)) for name in (FEDAVG, LOCAL) if name in names],
        "file": slug(board.suite),
    }


def _grid(board: Board, metric: str) -> pd.DataFrame:
    """Tasks x entries; NaN if a seed is missing."""
    grid = client_summary(board)[metric].unstack("entrant") if metric == "worst" else board.grid(metric)
    return grid.reindex(index=board.tasks, columns=board.entrants).where(board.full)


def _method(ranking: Ranking, name: str) -> dict[str, Any]:
    method = ranking.board.method_of[name]
    return {
        "name": plain(display(name)),
        "page": page_of("method", method),
        "family": family(method),
        "uploads": uploads(method) or ["other"],
        "status": ranking.board.status(name),
        "colour": COLOUR_OF.get(method, CROWD),
    }


def _percent(value: float) -> float | None:
    """Percent; an error is negative and in its unit, so that higher is better on the page too."""
    return round(100 * value if value >= 0 else value, 2 if value >= 0 else 4) if finite(value) else None


TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Drawn:
    """A figure next to the pages: file, suite of its board, caption. dataset: if it shows the tasks of one only."""

    file: str
    suite: str
    caption: str
    dataset: str = ""


@dataclass(frozen=True)
class Whole:
    """The input of all pages."""

    boards: Sequence[Ranking]
    environments: Mapping[str, Mapping[str, Any]]
    drawn: Sequence[Drawn]
    views: Mapping[str, Sequence[View]]  # a paper's table under each reading, by suite
    reported: Sequence[Sequence[str]]
    home: str  # link from the pages to the results folder
    findings: str = ""  # link to the findings, if there are any

    @property
    def methods(self) -> list[str]:
        """Methods with rows on a board, then the registered ones without, each by name."""
        ranked = {method for each in self.boards for method in each.board.method_of.values()}
        return sorted(ranked) + sorted(catalogue()["method"].keys() - ranked)

    @property
    def datasets(self) -> list[str]:
        return sorted({str(name) for each in self.boards for name in each.board.rows["dataset"]})

    def boards_of(self, method: str) -> list[Ranking]:
        return [each for each in self.boards if method in each.board.method_of.values()]

    @property
    def papers(self) -> list[Paper]:
        """The papers with a table that was run."""
        return [paper for paper in papers() if self.views.keys() & paper.tables.keys()]

    def has_paper(self, name: str) -> bool:
        return any(paper.name == name for paper in self.papers)

    @property
    def claims(self) -> dict[str, tuple[int, ...]]:
        """Paper -> numbers of claims supported, contradicted and inconclusive under the reading that it states."""
        return {paper.name: stated_counts(paper, self.views) for paper in self.papers}

    def tasks_of(self, dataset: str) -> list[tuple[Ranking, str]]:
        """The tasks of a dataset that have a table, with their boards; of leaderboards only, if there are any."""
        every = ((each, task) for each in self.boards for task in each.tasks)
        tasks = [(each, task) for each, task in every if each.board.task_row(task)["dataset"] == dataset]
        return [(each, task) for each, task in tasks if is_board(each.board.suite)] or tasks

    def figures(self, suite: str, dataset: str = "") -> list[Drawn]:
        return [one for one in self.drawn if (one.suite, one.dataset) == (suite, dataset)]


def pages(whole: Whole) -> dict[str, str]:
    """All pages by file name."""
    known = {
        **{each.board.title: page_of("board", each.board.suite) for each in whole.boards},
        **{f"{plain(display(name))}, method": page_of("method", name) for name in whole.methods},
        **{f"{plain(name)}, dataset": page_of("dataset", name) for name in whole.datasets},
        **{f"{paper.name}, paper": page_of("paper", paper.name) for paper in whole.papers},
    }
    texts: dict[str, str] = {}

    def add(kind: str, name: str, title: str, data: Mapping[str, Any] | None = None, **values: Any) -> None:
        page = _environment().get_template(f"{kind}.html")
        text = page.render(whole=whole, title=title, data={"pages": known, **(data or {})}, **values)
        texts["index.html" if kind == "index" else page_of(kind, name)] = text

    add("index", "", "Leaderboard", findings=key_findings(whole.boards), lists=_lists(whole))
    for each in whole.boards:
        add("board", each.board.suite, each.board.title, {"board": board_data(each)}, part=each)
    for name in whole.methods:
        add("method", name, plain(display(name)), method=name, known=entry("method", name))
    for name in whole.datasets:
        add("dataset", name, plain(name), dataset=name, known=entry("dataset", name))
    for paper in whole.papers:
        views = {suite: whole.views[suite] for suite in paper.tables if suite in whole.views}
        add("paper", paper.name, paper.name, paper=paper, views_of=views)
    return texts


def _lists(whole: Whole) -> dict[str, dict[str, dict[str, str]]]:
    """Heading -> group -> title -> page, of the lists of the index."""
    lists: dict[str, dict[str, dict[str, str]]] = {"Methods": {}, "Datasets": {}, "Papers": {}}
    for name in whole.methods:
        lists["Methods"].setdefault(family(name), {})[plain(display(name))] = page_of("method", name)
    for name in whole.datasets:
        lists["Datasets"].setdefault(kind_of_data(name), {})[plain(name)] = page_of("dataset", name)
    for paper in whole.papers:
        lists["Papers"].setdefault("tables that were run again", {})[paper.name] = page_of("paper", paper.name)
    return lists


@cache
def _environment() -> Environment:
    """Templates that escape text and print it on one line, without control or bidirectional characters."""
    templates = environment(TEMPLATES, autoescape=True, finalize=_plain)
    templates.policies["json.dumps_kwargs"] = {"sort_keys": False}
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("site.css", "site.js"))
    templates.filters |= {"exact": lambda value: f"{value:.6g}", "cell": cell_html, "pixels": pixels}
    templates.filters |= {"block": block, "inline": inline, "documentation": documentation, "linked": linked}
    templates.globals |= {"style": Markup(style), "script": Markup(script), "policy": _policy(style, script)}
    templates.globals |= {"page_of": page_of, "published": published, "protocol_parts": protocol_parts}
    templates.globals |= {"html_tables": tables, "plot_width": PLOT_WIDTH, "note": document("ranks.md")}
    templates.globals |= {"reported_head": ABOUT_REPORTED, "reported_headers": REPORTED}
    return templates


def _plain(value: Any) -> Any:
    return _line(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


@lru_cache(4096)
def _line(text: str) -> str:
    return plain(text, 1000)


def _policy(style: str, script: str) -> str:
    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    allowed = f"style-src {digest(style)}; script-src {digest(script)}; img-src 'self' file: data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def protocol_parts(board: Board) -> tuple[list[str], list[str]]:
    """The protocol as markdown: its first line (tasks, seeds) with the warnings in bold, and the other lines."""
    first, *rest = protocol(board)
    warnings = [line for line in rest if line.startswith("- **")]
    return [first, *warnings], [line for line in rest if line not in warnings]


PLOT_WIDTH = 96  # pixels of the small plot of a rank's interval
STYLES = {"": "{}", "strong": "<strong>{}</strong>", "em": "<em>{}</em>", "code": "<code>{}</code>", "break": "{}<br>"}


def cell_html(cell: Cell) -> Markup:
    """The text of a cell as HTML."""
    return Markup("").join(map(_span_html, cell.spans))


UNBROKEN = re.compile(r" (?=[^()]*\)|[kMG]?B$)")  # spaces in an interval, and before a unit


def _span_html(span: Span) -> Markup:
    if span.style == "link":
        return Markup('<a href="{}">{}</a>').format(span.target, span.text)
    text = UNBROKEN.sub("\N{NO-BREAK SPACE}", span.text) if span.text[:1] in "+-0123456789" else span.text
    return Markup(STYLES[span.style]).format(escape(text)) if text or span.style == "break" else Markup("")


def pixels(interval: Interval) -> dict[str, float]:
    """Places of a mean rank and its bounds between rank 1 and the last, in pixels from the left."""
    step = (PLOT_WIDTH - 8) / max(interval.last - 1, 1)
    ends = {"low": interval.low, "high": interval.high, "mean": interval.mean}
    return {name: round(4 + step * (rank - 1), 1) for name, rank in ends.items() if finite(rank)}
