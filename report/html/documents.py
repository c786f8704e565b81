"""HTML from markdown, docstrings, the findings and the papers' tables.

Nothing in these texts can act: no HTML is let through but a line break; links lead to parts of the page or by https to
a paper, or are left out.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from markupsafe import Markup, escape

from ..table import data_uri
from ..text import slug

SPARE = 8  # characters that must have been left on a line before its end counts as meant
_MARKDOWN = MarkdownIt("commonmark", {"html": False})
_MARKDOWN.disable(["link", "image", "autolink", "html_inline", "html_block", "reference"])
_PIECES = re.compile(
    r"`(?P<code>[^`]+)`|arXiv (?P<arxiv>\d{4}\.\d{4,5}(v\d+)?)|doi (?P<doi>10\.\d{4,9}/[^\s;,)]+)|.", re.DOTALL
)


def block(markdown: str | Iterable[str]) -> Markup:
    """Paragraphs and lists. What `text.md` escaped comes out as the text that it was."""
    return Markup(_MARKDOWN.render(markdown if isinstance(markdown, str) else "\n".join(markdown)))


def inline(markdown: str) -> Markup:
    """One line, without a paragraph around it."""
    return Markup(_MARKDOWN.renderInline(markdown))


@dataclass(frozen=True)
class Passage:
    """Part of a docstring: a formula keeps its lines and spaces, other text breaks where its author meant it to."""

    formula: bool
    lines: list[Markup]


def documentation(doc: str) -> list[Passage]:
    """A docstring (as `inspect.getdoc` gives it) in passages. One with an indented line is a formula."""
    doc = "".join(c for c in doc if c == "\n" or not unicodedata.category(c).startswith("C"))
    width = max(map(len, doc.splitlines()), default=0)
    found = []
    for paragraph in re.split(r"\n\s*\n", doc.strip("\n")):
        lines = paragraph.splitlines()
        formula = any(line.startswith("  ") for line in lines)
        found.append(Passage(formula, [linked(line) for line in (lines if formula else _joined(lines, width))]))
    return found


def linked(text: str) -> Markup:
    """`text` escaped, with links to the papers that it cites by arXiv number or DOI, and `code` as code."""
    return Markup("").join(map(_set, _PIECES.finditer(text)))


def _set(piece: re.Match[str]) -> Markup:
    if piece["code"]:
        return Markup("<code>{}</code>").format(piece["code"])
    if piece["arxiv"] or piece["doi"]:
        target = f"arxiv.org/abs/{piece['arxiv']}" if piece["arxiv"] else f"doi.org/{piece['doi'].rstrip('.')}"
        return Markup('<a href="https://{}">{}</a>').format(target, piece[0])
    return escape(piece[0])


def _joined(lines: list[str], width: int) -> list[str]:
    """Lines that were broken for want of room as one."""
    found = lines[:1]
    for before, line in pairwise(lines):
        first = line.split(" ", 1)[0]
        if len(before) + 1 + len(first) + SPARE <= width:
            found.append(line)
        else:
            found[-1] += f" {line}"
    return found


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
    """Files of a results folder as texts, empty where there are none: FINDINGS.md, REPRODUCTION.md, papers' tables.

    reported: the lines of the list of self-reported results.
    """

    findings: str = ""
    index: str = ""
    tables: Sequence[Reproduced] = field(default_factory=tuple)
    reported: Sequence[Sequence[str]] = ()

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
