"""The page: templates, style and script put together into one file that forbids itself every connection.

The Content-Security-Policy allows the page's own style and script by their hashes, and pictures that it carries within
itself. A script that text from a row smuggled in would not run even if the escaping failed.
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
from markupsafe import Markup
from PIL import Image

from .. import traits
from ..bykind import kinds_sheet
from ..standings import Standings
from ..templating import document, environment
from ..text import plain
from . import sections
from .cards import Card, columns, method_choices, method_parts
from .documents import Paperwork
from .downloads import data_uri, file_name, sheet_csv
from .lines import HEIGHT, WIDTH
from .markup import PLOT_WIDTH, pixels, shown
from .prose import block, documentation, inline

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
    boards: Sequence[Standings],
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
    )


def _environment() -> Environment:
    """Templates that escape, and that print text on one line without control or direction-changing characters."""
    found = environment(TEMPLATES, autoescape=True, finalize=_plain)
    found.filters |= {"exact": lambda value: f"{value:.12g}", "shown": shown, "pixels": pixels}
    found.filters |= {"block": block, "inline": inline, "documentation": documentation}
    found.filters |= {"download": lambda sheet: data_uri(sheet_csv(sheet)), "file_name": file_name}
    found.globals |= {"columns": columns(), "sections": sections, "plot_width": PLOT_WIDTH, "traits": traits}
    found.globals |= {"field": (WIDTH, HEIGHT), "kinds_sheet": kinds_sheet}
    return found


def _plain(value: Any) -> Any:
    return plain(value, 1000) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _policy(style: str, script: str) -> str:
    def digest(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    allowed = f"style-src {digest(style)}; script-src {digest(script)}; img-src data:"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"
