"""The report's own markdown files on the page: the papers' tables and the findings. Nothing in them can act.

Of HTML only a line break is let through; links lead to parts of the page or by https to a paper, or are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from ..text import slug
from .downloads import data_uri

BREAK = re.compile(r"<br\s*/?>")
PAGE = re.compile(r"(?:\.\./)?([a-z0-9-]+)/REPRODUCTION\.md")


@dataclass(frozen=True)
class Reproduced:
    """A paper's table: its file and the same figures as CSV."""

    suite: str
    markdown: str
    csv: str

    @property
    def anchor(self) -> str:
        return f"reproduction-{slug(self.suite)}"

    @property
    def title(self) -> str:
        """What its first heading says."""
        return next((line[2:] for line in self.markdown.splitlines() if line.startswith("# ")), self.suite)

    @property
    def download(self) -> str:
        return data_uri(self.csv)


@dataclass(frozen=True)
class Paperwork:
    """Files of a results folder as texts, empty where there are none: FINDINGS.md, REPRODUCTION.md, papers' tables."""

    findings: str = ""
    index: str = ""
    tables: Sequence[Reproduced] = field(default_factory=tuple)

    def shown(self, markdown: str, under: int) -> Markup:
        """One of the files without its title, as HTML, below a heading of the level `under`."""
        known = {"anchors": {table.suite: table.anchor for table in self.tables}}
        tokens = _PARSER.parse(_body(markdown), known)
        level = under
        for token in tokens:
            if token.type == "heading_open":
                level = min(int(token.tag[1:]) + under - 1, level + 1, 6)
            if token.type in ("heading_open", "heading_close"):
                token.tag = f"h{level}"
        return Markup(_PARSER.renderer.render(tokens, _PARSER.options, known))

    def anchor(self, suite: str) -> str:
        """Where a paper's table stands on the page; empty where it does not."""
        return next((table.anchor for table in self.tables if table.suite == suite), "")


def _body(markdown: str) -> str:
    lines = [line for line in markdown.splitlines() if not line.startswith(("# ", "<!--"))]
    return "\n".join(lines)


class _Renderer(RendererHTML):
    """Tables in a box that scrolls, links that stay on the page, no HTML but line breaks."""

    def table_open(self, tokens: Sequence[Token], at: int, options: Mapping, env: Mapping) -> str:
        return '<div class="scroll" role="region" aria-label="Table" tabindex="0"><table class="plain">'

    def table_close(self, tokens: Sequence[Token], at: int, options: Mapping, env: Mapping) -> str:
        return "</table></div>"

    def th_open(self, tokens: Sequence[Token], at: int, options: Mapping, env: Mapping) -> str:
        return f'<th scope="col" class="{_side(tokens[at])}">'

    def td_open(self, tokens: Sequence[Token], at: int, options: Mapping, env: Mapping) -> str:
        return f'<td class="{_side(tokens[at])}">'

    def html_inline(self, tokens: Sequence[Token], at: int, options: Mapping, env: Mapping) -> str:
        return "<br>" if BREAK.fullmatch(tokens[at].content) else str(escape(tokens[at].content))

    def html_block(self, tokens: Sequence[Token], at: int, options: Mapping, env: Mapping) -> str:
        return f"<p>{escape(tokens[at].content)}</p>"

    def image(self, tokens: Sequence[Token], at: int, options: Mapping, env: Mapping) -> str:
        return str(escape(tokens[at].content))

    def link_open(self, tokens: Sequence[Token], at: int, options: Mapping, env: Mapping) -> str:
        target = _target(str(tokens[at].attrGet("href") or ""), env["anchors"])
        return f'<a href="{escape(target)}">' if target else "<span>"

    def link_close(self, tokens: Sequence[Token], at: int, options: Mapping, env: Mapping) -> str:
        opening = max(i for i in range(at) if tokens[i].type == "link_open")
        target = _target(str(tokens[opening].attrGet("href") or ""), env["anchors"])
        return "</a>" if target else "</span>"


def _side(token: Token) -> str:
    return "number" if "right" in str(token.attrGet("style") or "") else "text"


def _target(href: str, anchors: Mapping[str, str]) -> str:
    """Where a link of a file leads on the page; empty for a file that is not on it."""
    if found := PAGE.fullmatch(href):
        return f"#{anchors[found[1]]}" if found[1] in anchors else ""
    if href.endswith("REPRODUCTION.md"):
        return "#reproduction" if anchors else ""
    return href if href.startswith("https://") else ""


_PARSER = MarkdownIt("commonmark", {"html": True}, renderer_cls=_Renderer).enable("table")
