"""Hook of mkdocs: the site has README.md, docs/, the reports and the page.

So links between these files hold on GitHub and on the site alike. A link to a file that is not on the site leads to
GitHub; one to LEADERBOARD.md leads to the page, which has the same tables.
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
BOARD, PAGE = "results/LEADERBOARD.md", "results/leaderboard.html"
SHOWN = (
    "*.md", "docs/**/*.md", "docs/assets/*", "examples/*.md", "results/FINDINGS.md", "results/REPRODUCTION.md",
    "results/*/REPRODUCTION.md", "results/leaderboard/figures/tiers.png",
)  # fmt: skip
LINK = re.compile(r"(\]\()([^)#:\s]+)((?:#[^)]*)?\))")


def the_page() -> Path:
    """The HTML page of the leaderboard, which `fglbench report --html` makes. PluginError where there is none."""
    path = Path(os.environ.get("FGLBENCH_PAGE") or ROOT / PAGE)
    if not path.is_file():
        raise PluginError(f"there is no {str(path)!r}: run `fglbench report --html` first, or set FGLBENCH_PAGE")
    return path


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The repository's files instead of those of `docs_dir`; what the theme brings stays."""
    for file in list(files):
        if file.src_dir == config.docs_dir:
            files.remove(file)
    for pattern in SHOWN:
        for path in sorted(ROOT.glob(pattern)):
            files.append(File.generated(config, path.relative_to(ROOT).as_posix(), abs_src_path=str(path)))
    files.append(File.generated(config, PAGE, abs_src_path=str(the_page())))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links that leave the site to the repository."""
    folder = posixpath.dirname(page.file.src_uri)

    def target(found: re.Match[str]) -> str:
        place = posixpath.normpath(posixpath.join(folder, found[2]))
        if place == BOARD:
            return f"{found[1]}{posixpath.relpath(PAGE, folder or '.')})"
        if files.get_file_from_path(place) is None and (ROOT / place).exists():
            return f"{found[1]}{SOURCE}{place}{found[3]}"
        return found[0]

    return LINK.sub(target, markdown)
