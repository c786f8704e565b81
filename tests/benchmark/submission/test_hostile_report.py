"""A hostile submission from validation to the report: accepted text is shown as text."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fglbench.benchmark.store import Store
from fglbench.benchmark.store.provenance import canonical
from fglbench.benchmark.store.schema import parse
from fglbench.benchmark.store.side_files import environment_text
from fglbench.benchmark.suites.catalogue import catalogue
from fglbench.report import build

from .conftest import META, edit

EVIL = (
    "x|y <script>alert(1)</script><img src=x onerror=alert(2)> [a](javascript:alert(3)) **b** `c` $\\frac$ @me "
    "http://evil.example www.evil.example ${{ secrets.TOKEN }} {{ 7*7 }} =cmd()"
)


CSV = "data:text/csv;charset=utf-8,"  # a table to download, in percent escapes


PLACE = re.compile(r"(index|(board|method|dataset|paper)-[a-z0-9.+_-]+)\.html|(\.\./)+[\w/.-]+\.(md|csv)")
PAPER = re.compile(r"https://(arxiv\.org/abs|doi\.org)/")


class Page(HTMLParser):
    """The active parts of a page: tags, links and event attributes, and the text between."""

    def __init__(self) -> None:
        super().__init__()
        self.acting: list[str] = []
        self.scripts, self.inside = 0, ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.inside = tag
        self.scripts += tag == "script"
        self.acting += [f"{name}={value}" for name, value in attrs if name.startswith("on")]
        self.acting += [
            str(value)
            for name, value in attrs
            if name in ("href", "src") and not str(value).startswith(("#", "data:image/", "data:,", CSV))
        ]

    def handle_data(self, data: str) -> None:
        if self.inside == "script" and "alert(" in data:
            self.acting.append(data)


@pytest.fixture
def hostile(submission: Path, results: Path, cli) -> Path:
    """The results folder after a submission with markup in every free text of rows, environment and metadata."""
    (old,) = (submission / "environments").iterdir()
    about = json.loads(old.read_text())
    about |= {"cpu": EVIL[:200], "system": "<b>Linux</b>", "packages": {**about["packages"], "<i>torch": "`2`"}}
    digest = hashlib.sha256(canonical(about).encode()).hexdigest()[:12]
    old.unlink()
    (submission / "environments" / f"{digest}.json").write_bytes(environment_text(about))
    path = submission / "tiny/fedprox.csv"
    edit(path, None, environment=digest, notes=EVIL, submitter=EVIL[:200])
    lost = Store(submission).rows("tiny")[0].key
    figures = ["score", "val", "macro_f1", "best_round", "score_metric"]
    edit(path, 2, status="failed", error=EVIL, **dict.fromkeys(figures, ""))
    Store(submission).history_file("tiny", lost).unlink()
    (submission / "submission.yaml").write_text(
        json.dumps({**META, "method": "fedprox", "paper": EVIL[:300], "hardware": "<script>alert(4)</script>"})
    )
    cli("validate packed --into results")
    for part in ("tiny", "environments"):  # and as rows that rank
        shutil.copytree(submission / part, results / part, dirs_exist_ok=True)
    return results


def test_text_of_a_submission_never_acts_in_markdown(hostile: Path, workdir: Path, cli) -> None:
    (workdir / "README.md").write_text("<!-- leaderboard:begin -->\n<!-- leaderboard:end -->\n")
    cli("report --results results --no-figures")
    texts = [path.read_text() for path in [workdir / "README.md", *hostile.rglob("*.md")]]
    assert any("alert" in text for text in texts)  # it is shown
    for text in texts:
        for acting in "<script <img <b> <i> <u> [a]( **b** `c` http://evil www.evil @me".split():  # noqa: SIM905
            assert acting not in text
    for path in hostile.rglob("tables/*.csv"):
        assert not re.search(r'(^|,)"?[=+@]', path.read_text(), re.MULTILINE)


def test_text_of_a_submission_never_acts_in_the_pages(hostile: Path, workdir: Path) -> None:
    report = build.make(hostile, None, figures=False)
    build.write(report)
    build.write_site(report, workdir / "site")
    known = {link for each in catalogue()["display"].values() for link in (each["paper_url"], each["code_url"])}
    known |= {each["facts"]["home"] for each in catalogue()["dataset"].values() if "home" in each["facts"]}
    pages = {path.name: path.read_text() for path in (workdir / "site").glob("*.html")}
    assert any("alert" in text for text in pages.values())  # it is shown
    for name, text in pages.items():
        clean = Page()
        clean.feed(text)
        assert all(link in known or PLACE.fullmatch(link) or PAPER.match(link) for link in clean.acting), name
        assert clean.scripts == 2  # the data and the script of the page
        assert "Content-Security-Policy" in text


def test_deeply_nested_parameters_are_text() -> None:
    assert parse("[" * 100_000) is None
    assert parse('{"a":' * 100_000) is None
