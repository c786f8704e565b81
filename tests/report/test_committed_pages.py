"""The pages of the committed results: each is small, and its links hold."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fglbench.report import build

ROOT = Path(__file__).resolve().parents[2]
NODES, BYTES = 5000, 400_000  # of a page at most


class Counter(HTMLParser):
    """How many elements a page has, and where its links and pictures lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.nodes, self.targets = 0, list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.nodes += 1
        self.targets += [str(value) for name, value in attrs if name in ("href", "src")]


@pytest.mark.skipif(not (ROOT / "results" / "LEADERBOARD.md").is_file(), reason="no committed results")
def test_every_page_is_small_and_its_links_hold(tmp_path: Path) -> None:
    count, largest = build.write_site(build.make(ROOT / "results", None, figures=False), tmp_path / "site")
    pages = list((tmp_path / "site").glob("*.html"))
    index = (tmp_path / "site" / "index.html").read_text()
    stated = re.search(r"\| FGSSL \| (\d+ / \d+ / \d+) \|", (ROOT / "results" / "FINDINGS.md").read_text())
    assert stated and f">FGSSL</a> {stated[1]}," in index and 'FINDINGS.md">' in index
    assert count == len(pages) > 100 and largest < BYTES
    for path in pages:
        page = Counter(path.read_text())
        assert 25 < page.nodes < NODES, path.name
        for target in page.targets:
            known = target.startswith(("https://", "data:,", "#")) or (path.parent / target).exists()
            assert known, f"{path.name}: {target}"
