"""HTML from markdown and docstrings. Nothing in these texts can act: no HTML gets through, links lead to papers."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from markdown_it import MarkdownIt
from markupsafe import Markup, escape

SPARE = 8  # characters that must have been left on a line before its end counts as meant
_MARKDOWN = MarkdownIt("commonmark", {"html": False})
_MARKDOWN.disable(["link", "image", "autolink", "html_inline", "html_block", "reference"])
_PIECES = re.compile(
    r"`(?P<code>[^`]+)`|arXiv (?P<arxiv>\d{4}\.\d{4,5}(v\d+)?)|doi (?P<doi>10\.\d{4,9}/[^\s;,)]+)|.", re.DOTALL
)


def block(markdown: str | Iterable[str]) -> Markup:
    """Paragraphs and lists. What `text.md` escaped is the original text again."""
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
