"""The pages, read with a parser: they show the rows, their links exist, and text of rows is never markup."""

from __future__ import annotations

import base64
import hashlib
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder

import pandas as pd
import pytest
import typer
from scipy import stats
from typer.testing import CliRunner

from fglbench.benchmark.cli.report import report
from fglbench.registry import UserError
from fglbench.report import build
from fglbench.report.figures.style import COLOUR_OF
from fglbench.report.groups import display
from fglbench.report.html.pages import Whole, documentation, pages
from fglbench.report.html.tables import comparison_table, readings_of, side_by_side, versions_table
from fglbench.report.papers import papers
from fglbench.report.ranking import Ranking
from fglbench.report.text import ABSENT

from . import samples

VOID = {"meta", "link", "br", "img", "input", "path", "circle"}
KEPT = "<script>window.evil = 1</script> \"><img src=x onerror=alert(1)> ' javascript:alert(1) &lt;b&gt; {{ 7 * 7 }}"
EVIL = f"{KEPT} \u202e"


class Parser(HTMLParser):
    """A strict parser: elements must be closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.builder, self.open = TreeBuilder(), list[str]()
        self.builder.start("root", {})
        self.feed(text)
        self.close()
        assert not self.open
        self.builder.end("root")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"an attribute occurs twice in <{tag} {attrs}>"
        self.builder.start(tag, {name: value or "" for name, value in attrs})
        self.open.append(tag)
        if tag in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self.builder.end(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_data(self, data: str) -> None:
        self.builder.data(data)


def parsed(text: str) -> Element:
    return Parser(text).builder.close()


def text_of(node: Element) -> str:
    return " ".join("".join(node.itertext()).split())


def one(page: Element, path: str) -> Element:
    (node,) = page.findall(f".//{path}")
    return node


def read(folder: Path, figures: bool = False) -> dict[str, Element]:
    """Write the site of a results folder and parse its pages."""
    content = build.make(folder, None, figures)
    build.write(content)
    build.write_site(content, folder / "site")
    return {path.name: parsed(path.read_text()) for path in (folder / "site").glob("*.html")}


def data(page: Element) -> dict[str, Any]:
    """The data of a page's script."""
    return json.loads(one(page, "script[@id='data']").text)


def lines(page: Element, name: str) -> list[list[str]]:
    """The cells of a table's body as texts."""
    return [[*map(text_of, row)] for row in one(page, f"table[@id='{name}']").findall("tbody/tr")]


def test_every_score_is_the_mean_of_its_rows(results: Path) -> None:
    runs = pd.DataFrame([row.model_dump() for row in samples.demo() if row.score is not None])
    by_place = 100 * runs.set_index(["method", "dataset"])[["score", "macro_f1"]]
    site = read(results)
    cells = {line[0].removesuffix(" incomplete"): line[1:] for line in lines(site["board-demo.html"], "tasks:demo")}
    board = data(site["board-demo.html"])["board"]
    names, tasks = ([each["name"] for each in board[kind]] for kind in ("methods", "tasks"))
    assert tasks == ["cora", "pubmed", "wiki"] and names[:3] == ["alpha", "beta", "gamma"]
    assert next(iter(board["metrics"].items())) == ("score", "Accuracy")  # the board's own is first
    for (method, dataset), seeds in by_place.groupby(level=["method", "dataset"]):
        name, place = display(method), tasks.index(dataset)
        values = [board["values"][metric][names.index(name)][place] for metric in ("score", "macro_f1")]
        if len(seeds) == 1:  # a seed is missing
            assert values == [None, None]
            continue
        assert values == pytest.approx(seeds.mean().tolist(), abs=0.006)
        shown = f"{seeds['score'].mean():.2f} ± {seeds['score'].std():.2f}"
        in_page = {line[0]: line[1] for line in lines(site[f"dataset-{dataset}.html"], f"task:demo:{dataset}")}
        assert cells[name][place].startswith(shown) and in_page[name].startswith(shown)
    assert cells["delta"] == ["50.00 (n=1)", "55.00 ± 0.00", "skipped"]


def test_board_page_equals_the_leaderboard(results: Path) -> None:
    page = read(results)["board-demo.html"]
    section = (results / "demo" / "LEADERBOARD.md").read_text()
    plain = section.replace("*", "").replace("\\", "").splitlines()
    first = next(i for i, line in enumerate(plain) if line.startswith("| Group"))
    expected = [[cell.strip() for cell in line.strip("|").split("|")] for line in plain[first + 2 : first + 6]]
    assert lines(page, "overall:demo") == expected
    assert lines(page, "incomplete:demo") == [
        ["delta", "1/3", "3/6", "cora: failed (seed 1): loss is nan | round 3wiki: skipped: needs features"]
    ]
    assert next(line for line in plain if line.startswith("If a board has at least 6 datasets")) in text_of(page)
    assert "Rows: 30 (1 failed, 27 ok, 2 skipped)" in text_of(page)


def test_method_page_shows_places_failures_and_formula(tmp_path: Path) -> None:
    rows = [samples.row("cora", name, seed, 0.5 + 0.1 * i + 0.001 * seed, method_params='{"mu":0.5}' if i else "{}")
            for i, name in enumerate(("fedavg", "fedprox")) for seed in range(3)]  # fmt: skip
    site = read(samples.write(tmp_path / "results", [*rows, samples.row("wiki", "fedprox", 0, error="loss is nan")]))
    page = site["method-fedprox.html"]
    (place,) = lines(page, "places:fedprox")
    assert place[:3] == ["demo", "FedProx", "1 of 2 (a)"]
    assert place[5].startswith("+10.0 (+10.0 to +10.0) better")
    assert "demo: wiki: failed (seed 0): loss is nan" in text_of(page)
    assert "https://arxiv.org/abs/1812.06127" in {link.get("href") for link in page.iter("a")}
    (parameter,) = [row for row in page.iter("tr") if row.findtext("th") == "mu"]
    assert parameter.findall("td")[1].text == "0.5"
    assert "No leaderboard has rows of this method" in text_of(site["method-moon.html"])  # registered, and not run


def test_defaults_and_tuned_side_by_side_by_hand() -> None:
    def board(suite: str, gain: float, extra: list[Any]) -> Ranking:
        rows = [samples.row(d, m, s, 0.5 + 0.01 * i + gain * (m == "feddc"), suite=suite)
                for i, d in enumerate("abcdef") for m in ("fedavg", "feddc") for s in range(3)]  # fmt: skip
        return samples.ranking([*rows, *extra], suite)

    other = [samples.row("a", m, s, 0.9, suite="node", clients=20) for m in ("fedavg", "feddc") for s in range(3)]
    table = side_by_side(board("node", 0.02, other), board("leaderboard", 0.05, []))
    cells = {line.entrant: [cell.text for cell in line.cells] for line in table.lines}
    assert cells["fedavg"] == ["FedAvg", "52.50", "52.50", "0.0", ABSENT, ABSENT]  # without 20 clients
    assert cells["feddc"][:4] == ["FedDC", "57.50", "54.50", "-3.0"]
    assert cells["feddc"][4].startswith("+5.0 (")
    assert cells["feddc"][5].startswith("+2.0 (")


def test_a_method_against_fedavg_by_hand() -> None:
    rows = [samples.row("wiki", "fedavg", 0, 0.4), samples.row("wiki", "fedtgp", 0, 0.3, method_version="later")]
    for seed in range(3):
        cost = {"upload_bytes_best": 40_000, "download_bytes_best": 40_000, "train_seconds": 5.0}
        rows += [
            samples.row("cora", "fedavg", seed, 0.5),
            samples.row("cora", "fedtgp", seed, 0.6 + 0.01 * seed, **cost),
        ]
    board = samples.board(rows)
    cora, wiki = ([cell.text for cell in line.cells] for line in comparison_table(board, "fedtgp").lines)
    half = 100 * stats.t.ppf(0.975, 2) * 0.01 / 3**0.5
    (span,) = cora[3]
    assert span == (f"+11.0 (+{11 - half:.1f} to +{11 + half:.1f}) ↑", "strong", "")
    assert [*cora[:3], *cora[4:]] == ["cora", "61.00", "50.00", "0.01x", "2.5x"]
    assert wiki == ["wiki", "30.00", "40.00", "-10.0 (one seed)", "1.0x", "1.0x"]
    assert comparison_table(board, "fedavg") is None
    versions = versions_table([Ranking(board)], "fedtgp").lines
    assert {line.cells[1].text: line.cells[2].text for line in versions}["later"] == "1"


def test_readings_of_a_method_are_listed_once() -> None:
    named = [(paper.name, reading.id) for paper in papers() for table in paper.tables.values()
             for reading in paper.readings_of(table) if "fedomd" in reading.methods]  # fmt: skip
    assert list(readings_of("fedomd")) == list(dict.fromkeys(named)) and not readings_of("majority")


def test_links_exist_and_nothing_external_is_loaded(results: Path) -> None:
    site = read(results, figures=True)
    (results / "robustness.csv").touch()
    for name, page in site.items():
        ids = [node.get("id") for node in page.iter() if node.get("id")]
        assert len(ids) == len(set(ids)), name
        for node in page.iter():
            assert not any(key.startswith("on") or key == "style" for key in node.attrib)
            for value in (node.get("href", ""), node.get("src", "")):
                if value and not value.startswith(("https://", "data:,", "#")):
                    assert (results / "site" / value).exists(), f"{name}: {value}"
        policy = one(page, "meta[@http-equiv='Content-Security-Policy']").get("content")
        style, (_, script) = one(page, "style"), page.iter("script")
        for node, directive in ((style, "style-src"), (script, "script-src")):
            digest = hashlib.sha256(node.text.encode()).digest()
            assert f"{directive} 'sha256-{base64.b64encode(digest).decode()}'" in policy
            assert not any(bad in node.text for bad in ("http://e", "url(", "@import", "innerHTML", "eval("))
        assert policy.startswith("default-src 'none'") and "unsafe" not in policy
        assert all(head.get("scope") for head in page.iter("th"))
    figures = {image.get("src") for page in site.values() for image in page.iter("img")}
    assert {"demo-tiers.svg", "demo-cora.svg"} <= figures


def test_figures_have_text_a_dark_form_and_one_colour_per_method(tmp_path: Path) -> None:
    rows = [samples.row(d, m, s, 0.5 + 0.01 * i, suite=suite)
            for suite in ("demo", "other") for i, m in enumerate(("moon", "fedavg", "scaffold", "local"))
            for d in ("cora", "wiki") for s in (0, 1)]  # fmt: skip
    read(samples.write(tmp_path / "results", rows), figures=True)
    for suite in ("demo", "other"):
        text = (tmp_path / "results" / "site" / f"{suite}-cora.svg").read_text()
        assert "prefers-color-scheme: dark" in text and ">SCAFFOLD</text>" in text
        for method in ("fedavg", "scaffold", "local"):
            assert COLOUR_OF[method].lower() in text.lower()
        assert "<rect" not in text.partition("axes_1")[0]  # no white background


def test_text_from_rows_is_inert() -> None:
    seen = {}
    for kind, text in (("calm", "calm"), ("hostile", EVIL)):
        suite = f"s {text}"[:60].replace("/", "")
        known = {"suite": suite, "partition": text, "backbone": text, "started": text, "synthetic": True}
        rows = [
            samples.row(f"cora {text}", f"m {text}", 0, 0.5, score_metric=text, submitter=text, git_sha=text,
                     method_version=text, method_params=f'{{"mu": "{text[:8]}"}}', **known),
            samples.row(f"cora {text}", "other", 0, error=text, **known),
            samples.row(f"dead {text}", "other", 0, error=text, **known),
        ]  # fmt: skip
        whole = Whole([samples.ranking(rows, suite)], {"0123456789ab": {"cpu": text}}, [], {}, [[text] * 7], "..")
        about = ("index", "board", "dataset", "method-m-", "method-other")
        made_pages = sorted((name, page) for name, page in pages(whole).items() if name.startswith(about))
        seen[kind] = [parsed(content) for _, content in made_pages]
        assert "\u202e" not in "".join(content for _, content in made_pages)
    for calm, hostile in zip(seen["calm"], seen["hostile"], strict=True):
        shapes = [[(node.tag, list(node.attrib)) for node in page.iter()] for page in (calm, hostile)]
        assert shapes[0] == shapes[1]
    assert any(f"m {KEPT}" in text_of(page) for page in seen["hostile"])


def test_intended_line_breaks_of_docstrings_are_kept() -> None:
    doc = (
        "A first line that was broken only because there was no more room on it, as one sees\n"
        "from its length. Then a line that ends early:\n"
        "x = y\n\n"
        "Formula:\n    a < b\n      c\n\n"
        "Not a link: http://example.org and <b>; `code <i>`; (arXiv 2105.03170v2)."
    )
    kinds, (first, formula, last) = zip(*documentation(doc), strict=True)
    assert list(map(str, first)) == [
        "A first line that was broken only because there was no more room on it, as one sees"
        " from its length. Then a line that ends early:",
        "x = y",
    ]
    assert kinds == (False, True, False)
    assert list(map(str, formula)) == ["Formula:", "    a &lt; b", "      c"]
    assert str(last[0]) == (
        "Not a link: http://example.org and &lt;b&gt;; <code>code &lt;i&gt;</code>;"
        ' (<a href="https://arxiv.org/abs/2105.03170v2">arXiv 2105.03170v2</a>).'
    )


def test_command_writes_the_site_to_the_given_folder(results: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(report)

    def run(*arguments: Any) -> Any:
        return CliRunner().invoke(app, ["--results", str(results), "--no-figures", *map(str, arguments)])

    assert "index.html" in run("--html").output
    target = tmp_path / "new folder" / "deep"
    assert run("--html", target).exit_code == 0
    assert 'href="../../results/LEADERBOARD.md"' in (target / "index.html").read_text()
    assert {path.name for path in target.iterdir()} == {path.name for path in (results / "site").iterdir()}
    assert run("--check").exit_code == 0  # the pages are not checked
    (tmp_path / "file").touch()
    for arguments, message in [
        ([target], "only written with --html"),
        (["--html", "--check"], "use one of them"),
        (["--html", tmp_path / "file"], "cannot write"),
    ]:
        error = run(*arguments).exception
        assert isinstance(error, UserError)
        assert message in str(error)
