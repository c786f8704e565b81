"""Build the HTML page: templates, style and script in one file that allows no connection.

The Content-Security-Policy allows the style and the script of the page by their hashes, and pictures inside the page.
A script that text from a row smuggled in would not run even if the escaping failed.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup, escape
from PIL import Image

from ..board import Board
from ..groups import MENUS, filter_choices, filters
from ..leaderboard import key_findings
from ..provenance import protocol
from ..ranking import Ranking
from ..self_reported import HEAD, HEADERS
from ..table import Cell, Column, Interval, Span, data_uri, file_name, to_csv
from ..templating import document, environment
from ..text import finite, plain
from .documents import Paperwork, block, documentation, inline
from .methods import HEIGHT, WIDTH, Card, columns, method_choices, method_parts

TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Picture:
    """A figure of a board: its name and caption, and the bytes of a PNG file."""

    name: str
    caption: str
    png: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height in CSS pixels, so that text in the figure is as large as on paper."""
        image = Image.open(io.BytesIO(self.png))
        across, down = image.info.get("dpi", (96, 96))
        return round(image.width * 96 / across), round(image.height * 96 / down)

    @property
    def uri(self) -> str:
        """The same pixels as a data URI. WebP without loss is a third of matplotlib's PNG."""
        buffer = io.BytesIO()
        Image.open(io.BytesIO(self.png)).convert("RGB").save(buffer, "WEBP", lossless=True, quality=80, method=4)
        return f"data:image/webp;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def page(
    boards: Sequence[Ranking],
    environments: dict[str, dict[str, Any]],
    pictures: Mapping[str, Sequence[Picture]],
    cards: Mapping[str, Card],
    paperwork: Paperwork = Paperwork(),  # noqa: B008 - frozen
) -> str:
    """The whole page. `pictures` are those of each suite, `cards` what the registry knows of each method, `paperwork`
    the results folder's own files."""
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    methods = method_parts(boards, cards)
    started = [moment for each in boards for moment in each.board.rows["started"]]
    template = _environment().get_template("page.html")
    return template.render(
        style=Markup(style),
        script=Markup(script),
        policy=_policy(style, script),
        boards=boards,
        findings=key_findings(boards),
        environments=environments,
        methods=methods,
        without_rows=sorted(set(cards) - {method.name for method in methods}),
        pictures=pictures,
        paperwork=paperwork,
        menu=method_choices(methods),
        method_traits={method.name: method.traits for method in methods},
        rows=sum(len(each.board.rows) for each in boards),
        datasets=len({name for each in boards for name in each.board.rows["dataset"]}),
        first=min(started)[:10],
        last=max(started)[:10],
        note=document("ranks.md"),
        reported_head=HEAD,
        reported_headers=HEADERS,
    )


def _environment() -> Environment:
    """Templates that escape, and that print text on one line without control or direction-changing characters."""
    found = environment(TEMPLATES, autoescape=True, finalize=_plain)
    found.filters |= {"exact": lambda value: f"{value:.12g}", "shown": cell_html, "pixels": pixels}
    found.filters |= {"block": block, "inline": inline, "documentation": documentation}
    found.filters |= {"download": lambda table: data_uri(to_csv(table)), "file_name": file_name}
    found.globals |= {
        "columns": columns(),
        "plot_width": PLOT_WIDTH,
        "menus_by_filter": MENUS,
        "filter_choices": filter_choices,
    }
    found.globals |= {each.__name__: each for each in SECTIONS}
    found.globals |= {"field": (WIDTH, HEIGHT)}
    return found


def _plain(value: Any) -> Any:
    return plain(value, 1000) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _policy(style: str, script: str) -> str:
    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    allowed = f"style-src {digest(style)}; script-src {digest(script)}; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


def protocol_summary(board: Board) -> list[str]:
    """What a reader must know of the protocol_details: tasks, seeds, and what is in bold for a reason. Markdown."""
    first, *rest = protocol(board)
    return [first, *(line for line in rest if line.startswith("- **"))]


def protocol_details(board: Board) -> list[str]:
    """The rest of it."""
    shown = protocol_summary(board)
    return [line for line in protocol(board) if line not in shown]


def first_group(ranking: Ranking) -> list[str]:
    """The methods that share a letter with the first; empty without comparisons."""
    return ranking.inference.leaders if ranking.board.ranked else []


def test_basis(ranking: Ranking) -> str:
    """The unit of the comparisons, in a few words."""
    if ranking.board.is_sweep:
        return "nothing: settings of one method"
    words = {"dataset": "datasets", "seed": "seeds of each task", "none": "nothing: too few seeds"}
    return words[ranking.inference.unit] if ranking.board.ranked else "nothing is ranked"


def entrant_filters(board: Board) -> dict[str, dict[str, list[str]]]:
    """By what each entrant can be chosen, for the script."""
    return {name: filters(board, name) for name in board.entrants}


def column_groups(columns: Sequence[Column]) -> dict[str, list[str]]:
    """By what columns can be chosen, where there is a choice: kinds of data, and how alike labels are."""
    found = list(dict.fromkeys(group for column in columns for group in column.groups))
    labels = [name for name in found if name.startswith("labels ")]
    kinds = [name for name in found if name not in labels]
    return {title: own for title, own in (("Edges are of", sorted(kinds)), ("Clients", labels)) if len(own) > 1}


SECTIONS = (protocol_summary, protocol_details, first_group, test_basis, entrant_filters, column_groups)  # of templates
PLOT_WIDTH = 96  # pixels of the small plot of a rank's interval
STYLES = {"": "{}", "strong": "<strong>{}</strong>", "em": "<em>{}</em>", "code": "<code>{}</code>", "break": "{}<br>"}


def cell_html(cell: Cell) -> Markup:
    """The text of a cell."""
    return Markup("").join(map(_span_html, cell.spans))


def _span_html(span: Span) -> Markup:
    if span.style == "link":
        return Markup('<a href="{}">{}</a>').format(span.target, span.text)
    return Markup(STYLES[span.style]).format(escape(span.text))


def pixels(interval: Interval) -> dict[str, float]:
    """Where to draw a mean rank and its interval between rank 1 and the last, in pixels from the left."""
    step = (PLOT_WIDTH - 8) / max(interval.last - 1, 1)
    ends = {"low": interval.low, "high": interval.high, "mean": interval.mean}
    return {name: round(4 + step * (rank - 1), 1) for name, rank in ends.items() if finite(rank)}
