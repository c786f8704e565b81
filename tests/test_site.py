"""The site: its navigation has every document, it builds without a warning, and it loads nothing from other hosts."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
CONFIG = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
LOADED = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//[^\"'> ]+")


def named(tree: Any) -> list[str]:
    """The files that a navigation leads to."""
    if isinstance(tree, str):
        return [tree]
    return [path for each in tree for path in named(each.values() if isinstance(each, dict) else each)]


def test_the_navigation_names_every_document_once() -> None:
    paths = named(CONFIG["nav"])
    assert len(paths) == len(set(paths))
    documents = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("results/*/REPRODUCTION.md")]
    assert {path.relative_to(ROOT).as_posix() for path in documents} <= set(paths)
    assert [path for path in paths if not (ROOT / path).exists()] in ([], ["results/site/index.html"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as CI builds it, with made-up pages of leaderboards."""
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("mkdocs-material is not installed (pip install fglbench[docs])")
    folder = tmp_path_factory.mktemp("site")
    (folder / "pages").mkdir()
    (folder / "pages" / "index.html").write_text(
        '<!DOCTYPE html><title>the index</title><!--way back--><a href="../fgssl-table1/REPRODUCTION.md">a table</a>'
        '<a href="../LEADERBOARD.md">text</a><a href="board.html">a board</a>'
    )
    (folder / "pages" / "board.html").write_text("<!DOCTYPE html><title>a board</title>")
    (folder / "pages" / "curve.svg").write_text("<svg/>")
    environment = {**os.environ, "FGLBENCH_SITE": str(folder / "pages"), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site")]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def test_the_site_builds_strictly_and_has_every_document(site: Path) -> None:
    for path in named(CONFIG["nav"]):
        target = Path(path).with_suffix(".html")
        assert (site / (target.with_name("index.html") if target.stem == "README" else target)).is_file()
    pages = site / "results" / "site"
    index = (pages / "index.html").read_text()
    assert "the index" in index and (pages / "board.html").is_file() and (pages / "curve.svg").is_file()
    assert '<a href="../../index.html">Documentation</a>' in index  # the way back
    assert 'href="../fgssl-table1/REPRODUCTION.html"' in index
    assert 'href="https://github.com/fglbench/fglbench/blob/main/results/LEADERBOARD.md"' in index


def test_the_site_loads_nothing_from_another_host(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 25
    outside = {path.name: LOADED.findall(path.read_text(encoding="utf-8")) for path in pages}
    # the address of a page, if any; nothing is loaded from there
    assert {name: links for name, links in outside.items() if links} == {}
    assert LOADED.findall('<script async src="https://example.org/x.js">') != []
    styles = "".join(path.read_text(encoding="utf-8") for path in site.rglob("*.css"))
    assert not re.search(r"url\([\"']?(?:https?:)?//", styles)


def test_links_between_files_hold_and_others_lead_to_the_repository(site: Path) -> None:
    home = (site / "index.html").read_text(encoding="utf-8")
    assert 'href="docs/tutorial.html"' in home
    assert 'href="results/site/index.html"' in home
    assert "LEADERBOARD.md" not in home
    again = (site / "docs" / "findings" / "rows.html").read_text(encoding="utf-8")
    assert "https://github.com/fglbench/fglbench/blob/main/results/verified.csv" in again
    for path in sorted(site.rglob("*.html")):
        for link in re.findall(r'<a\b[^>]*\bhref="([^"#:]+)"', path.read_text(encoding="utf-8")):
            assert path.name == "404.html" or (path.parent / link).exists(), f"{path}: {link}"
