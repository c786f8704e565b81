"""Hook of mkdocs: the site has README.md, docs/, the reports and the leaderboards' pages.

So links between these files work on GitHub and on the site. A link to a file that is not on the site leads to GitHub;
one to a LEADERBOARD.md leads to the leaderboards' pages, which have the same tables. These pages get a link back to
the documentation.
"""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
SOURCE = "https://github.com/fglbench/fglbench/blob/main/"
BOARD, PAGES = re.compile(r"results/(?:([\w.+-]+)/)?LEADERBOARD\.md"), "results/site"
SHOWN = (
    "*.md", "docs/**/*.md", "docs/assets/*", "examples/*.md", "results/FINDINGS.md", "results/REPRODUCTION.md",
    "results/*/REPRODUCTION.md", "results/node-3/figures/tiers.png",
)  # fmt: skip
WAY_BACK = "<!--way back-->"  # in every page
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")


def the_pages() -> Path:
    """The folder of the leaderboards' pages, which `fglbench report --html` makes. PluginError where there is none."""
    path = Path(os.environ.get("FGLBENCH_SITE") or ROOT / PAGES)
    if not (path / "index.html").is_file():
        raise PluginError(
            f"there is no {str(path / 'index.html')!r}: run `fglbench report --html` or set FGLBENCH_SITE"
        )
    return path


def joined(text: str) -> str:
    """A page of the leaderboards with a way back, its links to the results folder as the site has them."""

    def target(match: re.Match[str]) -> str:
        place = match[1]
        if place == "FINDINGS.md":
            return 'href="../FINDINGS.html"'
        if (ROOT / "results" / place).match("*/REPRODUCTION.md"):
            return f'href="../{place.removesuffix(".md")}.html"'
        return f'href="{SOURCE}results/{place}"'

    text = text.replace(WAY_BACK, '<a href="../../index.html">Documentation</a>')
    return re.sub(r'href="\.\./([\w./+-]+\.(?:md|csv))"', target, text)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The repository's files instead of those of `docs_dir`; what the theme brings stays."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    for path in sorted(the_pages().iterdir()):
        if path.suffix == ".html":
            files.append(File.generated(config, f"{PAGES}/{path.name}", content=joined(path.read_text("utf-8"))))
        elif path.suffix == ".svg":
            files.append(File.generated(config, f"{PAGES}/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave the site to the repository."""
    folder = posixpath.dirname(page.file.src_uri)

    def target(match: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join(folder, match[2]))
        if suite := BOARD.fullmatch(place):
            board = f"{PAGES}/board-{suite[1]}.html"  # only of a suite
            page_of = board if files.get_file_from_path(board) else f"{PAGES}/index.html"
            return f"{match[1]}{posixpath.relpath(page_of, folder or '.')})"
        if files.get_file_from_path(place) is None and (ROOT / place).exists():
            return f"{match[1]}{SOURCE}{place}{match[3]}"
        return match[0]

    return LINK.sub(target, markdown)
