"""The pages of the committed results are small, and their links exist."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fglbench.report import build

ROOT = Path(__file__).resolve().parents[2]
NODES, BYTES = 5000, 400_000  # maximum of a page


class Counter(HTMLParser):
    """The number of elements of a page, and the targets of its links and images."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.nodes, self.targets = 0, list[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.nodes += 1
        self.targets += [str(value) for name, value in attrs if name in ("href", "src")]


@pytest.fixture(params=["leaderboard", pytest.param("all", marks=pytest.mark.slow)])
def results(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The committed results, or a copy with the rows of one board."""
    if not (ROOT / "results" / "LEADERBOARD.md").is_file():
        pytest.skip("no committed results")
    if request.param == "all":
        return ROOT / "results"
    shutil.copytree(ROOT / "results" / request.param, tmp_path / "results" / request.param)
    shutil.copytree(ROOT / "results" / "environments", tmp_path / "results" / "environments")
    return tmp_path / "results"


def test_every_page_is_small_and_its_links_hold(results: Path, tmp_path: Path) -> None:
    report = build.make(results, None, figures=False)
    if results != ROOT / "results":
        build.write(report)
    count, largest = build.write_site(report, tmp_path / "site")
    pages = list((tmp_path / "site").glob("*.html"))
    index = (tmp_path / "site" / "index.html").read_text()
    if results == ROOT / "results":
        stated = re.search(r"\| FGSSL \| (\d+ / \d+ / \d+) \|", (results / "FINDINGS.md").read_text())
        assert stated and f">FGSSL</a> {stated[1]}," in index and 'FINDINGS.md">' in index
    assert count == len(pages) > 50 and largest < BYTES
    for path in pages:
        page = Counter(path.read_text())
        assert 25 < page.nodes < NODES, path.name
        for target in page.targets:
            known = target.startswith(("https://", "data:,", "#")) or (path.parent / target).exists()
            assert known, f"{path.name}: {target}"
