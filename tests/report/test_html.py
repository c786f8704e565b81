"""The HTML page, read with a parser: it shows what the rows say, and nothing from a row or a docstring can act."""

from __future__ import annotations

import base64
import hashlib
import io
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from PIL import Image, ImageChops
from typer.testing import CliRunner

from fglbench.benchmark.cli.report import report
from fglbench.benchmark.store import verified
from fglbench.registry import Parameter, UserError
from fglbench.report import build
from fglbench.report.groups import display
from fglbench.report.html import Card, Picture, documents, page
from fglbench.report.ranking import Ranking

VOID = {"meta", "link", "br", "img", "input", "path", "circle", "polyline"}
KEPT = "<script>window.evil = 1</script> \"><img src=x onerror=alert(1)> ' javascript:alert(1) &lt;b&gt; {{ 7 * 7 }}"
EVIL = f"{KEPT} \u202e"


@dataclass
class Node:
    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return " ".join("".join(c if isinstance(c, str) else f"{c.text}" for c in self.children).split())

    def all(self, tag: str, **attributes: str) -> list[Node]:
        found = []
        for child in self.children:
            if isinstance(child, Node):
                if child.tag == tag and attributes.items() <= child.attributes.items():
                    found.append(child)
                found += child.all(tag, **attributes)
        return found

    def one(self, tag: str, **attributes: str) -> Node:
        (found,) = self.all(tag, **attributes)
        return found

    def every(self) -> list[Node]:
        inner = [child for child in self.children if isinstance(child, Node)]
        return [self, *(node for child in inner for node in child.every())]


class Reader(HTMLParser):
    """A strict reader: every element that is opened must be closed, in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open = [Node("root")]
        self.feed(text)
        self.close()
        assert len(self.open) == 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len(attrs) == len(dict(attrs)), f"an attribute occurs twice in <{tag} {attrs}>"
        node = Node(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop().tag == tag

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def read(folder: Path, cards: dict[str, Card] | None = None, figures: bool = False) -> Node:
    made = build.make(folder, None, figures)
    build.write(made)
    build.write_page(made, folder / "page.html", cards or {})
    return Reader((folder / "page.html").read_text()).open[0]


def sheet(root: Node, name: str) -> list[list[Node]]:
    """The body of a table: its cells, row by row."""
    rows = root.one("table", id=name).one("tbody").all("tr")
    return [[child for child in row.children if isinstance(child, Node)] for row in rows]


def texts(rows: list[list[Node]]) -> list[list[str]]:
    return [[cell.text for cell in row] for row in rows]


def test_every_score_is_the_mean_of_its_rows(results: Path, made: SimpleNamespace) -> None:
    scores = defaultdict(list)
    for row in made.demo():
        if row.score is not None:
            scores[row.method, row.dataset].append(row.score)
    root = read(results)
    table = root.one("table", id="tasks:demo")
    assert [head.text for head in table.one("thead").all("th")] == ["Method", "cora n=2", "pubmed n=2", "wiki n=2"]
    lines = {row[0].one("a").text: row for row in sheet(root, "tasks:demo")}
    assert list(lines) == ["alpha", "beta", "gamma", "delta", "Centralised training"]
    for (method, dataset), values in scores.items():
        cell = lines[display(method)][1 + ["cora", "pubmed", "wiki"].index(dataset)]
        shown = f"{100 * statistics.mean(values):.2f}"
        if len(values) > 1:
            shown += f" ± {100 * statistics.stdev(values):.2f}"
        assert cell.text.startswith(shown)
        assert float(cell.attributes["data-value"]) == pytest.approx(statistics.mean(values), rel=1e-11)
    assert [lines["alpha"][i].attributes["class"] for i in (1, 2, 3)] == ["number best", "number best", "number"]
    assert [cell.text for cell in lines["delta"][1:]] == ["50.00 (n=1)", "55.00 ± 0.00", "skipped"]
    assert "data-value" not in lines["delta"][3].attributes
    assert lines["delta"][0].text.endswith("incomplete")


def test_the_page_says_what_the_leaderboard_says(results: Path, made: SimpleNamespace) -> None:
    made.write(results, [made.row(d, m, s, 0.1 * i + 0.01 * j + 0.001 * s, suite="many")
                         for i, m in enumerate("abc") for j, d in enumerate("pqrstuv") for s in (0, 1)])  # fmt: skip
    again = next(row for row in made.demo() if row.method == "beta")
    same = {"suite": "demo", "key": again.key, "method": "beta", "method_version": again.method_version, "bar": 0}
    who = {
        "date": again.started,
        "git_sha": "c",
        "environment": "e",
        "by": "us",
        "score": again.score,
        "verdict": "passed",
    }
    verified.add(results, [verified.Verified(**same, **who)])
    root = read(results)
    assert [row[1].text for row in sheet(root, "overall:demo")] == ["alpha", "beta ✓1", "gamma", "Centralised training"]
    text = (results / "LEADERBOARD.md").read_text()
    for suite in ("demo", "many"):
        section = text.partition(f"## {suite}\n")[2]
        plain = section.replace("*", "").replace("\\", "").splitlines()
        first = next(i for i, line in enumerate(plain) if line.startswith("| Group"))
        lines = []
        for line in plain[first + 2 :]:
            if not line.startswith("|"):
                break
            lines.append([cell.strip() for cell in line.strip("|").split("|")])
        assert texts(sheet(root, f"overall:{suite}")) == lines
        assert next(line for line in plain if line.startswith("Methods are compared")) in root.text
    assert texts(sheet(root, "incomplete:demo")) == [
        ["delta", "1/3", "3/6", "cora: failed (seed 1): loss is nan | round 3wiki: skipped: needs features"]
    ]
    detail = sheet(root, "task:demo:cora")
    assert [row[0].text for row in detail] == ["alpha", "beta", "gamma", "delta", "Centralised training"]
    assert [cell.text for cell in detail[0][2:]] == ["2", "80.50", "40.25", "40.0", "8.0 MB", "2.0", "500"]
    view = root.one("div", id="view:demo:cora").text
    assert "partition louvain (resolution=1.0) into 10 clients" in view
    assert "delta: failed (seed 1): loss is nan | round 3" in view
    demo = root.one("section", id="board-demo")
    assert "Rows: 30 (1 failed, 27 ok, 2 skipped)" in demo.text
    assert "a | pipe" in demo.text
    assert "aaaaaaaaaaaa (30 rows)" in demo.text


def test_a_method_part_says_what_it_is_and_where_it_leads(results: Path, made: SimpleNamespace) -> None:
    tuned = {"suite": "other", "method_params": '{"mu":0.5,"nu":2}'}
    made.write(results, [made.row("cora", "alpha", s, score, **tuned) for s, score in enumerate((0.5, 0.6, 0.55))])
    made.write(results, [made.row("cora", "beta", s, x, suite="other") for s, x in enumerate((0.55, 0.5, 0.54))])
    parameters = [Parameter("mu", "0.1", "float", "weight"), Parameter("nu", "2", "int", "order")]
    doc = "Li, CVPR 2021 (arXiv 2103.16257), doi 10.1145/1234567.890.\n\nf:\n  x < y\n    z\n"
    cards = {"alpha": Card(doc, "methods/alpha.py", ("beta",), parameters), "beta": Card("", ""), "new": Card("", "")}
    root = read(results, cards)
    alpha = root.one("details", id="method-alpha")
    assert alpha.one("summary").text.startswith("alpha demo place 1 of 3")
    assert "best on 3 tasks" in alpha.one("summary").text
    links = [link.attributes["href"] for link in alpha.all("a")]
    assert links[:3] == ["https://arxiv.org/abs/2103.16257", "https://doi.org/10.1145/1234567.890", "#method-beta"]
    (formula,) = alpha.all("pre")
    assert "".join(map(str, formula.children)) == "f:\n  x < y\n    z\n"
    used = [
        [child.text for child in row.children if isinstance(child, Node)]
        for row in alpha.one("table", **{"class": "plain parameters"}).all("tr")[1:]
    ]
    assert used == [["mu", "0.1", "0.5", "weight"], ["nu", "2", "default", "order"]]
    assert "Best: demo: cora 80.50 ± 0.71, pubmed 85.50 ± 0.71; other: cora 55.00 ± 5.00." in alpha.text
    assert "Not told apart" not in alpha.text
    beta = root.one("details", id="method-beta")
    assert "Not told apart from the best: other: cora 53.00 ± 2.65 ≈." in beta.text
    assert sheet(root, "tasks:other")[1][1].attributes["class"] == "number equal"
    delta = root.one("details", id="method-delta")
    assert "does not know the method" in delta.text
    assert "demo: cora: failed (seed 1): loss is nan | round 3" in delta.text
    assert "incomplete" in delta.one("summary").text
    assert "without a row on any board: new." in root.text


def test_boards_without_a_ranking_have_their_part(tmp_path: Path, made: SimpleNamespace) -> None:
    rows = [made.row("arxiv", "a", 0, suite="dead", error="features are unavailable")]
    rows += [made.row("cora", "a", s, 0.5, suite="sweep", method_params=f'{{"mu":{s}}}') for s in (0, 1, 2)]
    rows += [made.row("cora", "a", 0, 0.5 + mu, suite="sweep", method_params=f'{{"mu":{mu}}}') for mu in (0.1, 0.2)]
    root = read(made.write(tmp_path / "results", rows))
    dead = root.one("section", id="board-dead")
    assert "No method is complete" in dead.text
    assert "arxiv: failed (seed 0): features are unavailable" in dead.text
    assert dead.all("table", **{"class": "sheet"}) == []
    assert "dead: arxiv: failed (seed 0): features are unavailable" in root.one("details", id="method-a").text
    assert len(sheet(root, "tasks:sweep")) > 1


def test_the_page_needs_nothing_but_itself(results: Path) -> None:
    root = read(results, {"alpha": Card("Li (arXiv 2103.16257)", "a.py")}, figures=True)
    nodes = root.every()
    ids = [node.attributes["id"] for node in nodes if "id" in node.attributes]
    assert len(ids) == len(set(ids))
    for node in nodes:
        for name, value in node.attributes.items():
            assert not name.startswith("on")
            assert name != "style"
            if name == "src" or (name == "href" and node.tag == "link"):
                assert value.startswith("data:")
            elif name == "href" and "download" in node.attributes:
                assert value.startswith("data:text/csv;charset=utf-8,")
            elif name == "href":
                assert value[1:] in ids if value.startswith("#") else value.startswith("https://")
    assert {link.attributes["href"] for link in nodes if link.attributes.get("href", "").startswith("http")} == {
        "https://arxiv.org/abs/2103.16257"
    }
    style, script = root.one("style"), root.one("script")
    for node in (style, script):
        assert not any(bad in node.text for bad in ("http", "url(", "@import", "innerHTML", "eval"))
    policy = root.one("meta", **{"http-equiv": "Content-Security-Policy"}).attributes["content"]
    for node, directive in ((style, "style-src"), (script, "script-src")):
        digest = hashlib.sha256("".join(map(str, node.children)).encode()).digest()
        assert f"{directive} 'sha256-{base64.b64encode(digest).decode()}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    for table in root.all("table"):
        assert all(head.attributes.get("scope") for head in table.all("th"))
    for label in root.all("label"):
        assert len(label.all("input") + label.all("select")) == 1
    assert all("hidden" in bar.attributes for bar in nodes if "tools" in bar.attributes.get("class", "").split())
    assert not any("hidden" in view.attributes for view in root.all("div", **{"class": "view"}))


def test_figures_are_inside_pixel_by_pixel(results: Path) -> None:
    root = read(results, figures=True)
    images = {image.attributes["alt"]: image for image in root.all("img")}
    files = sorted((results / "demo" / "figures").glob("*.png"))
    assert len(files) == len(images) > 4
    for file in files:
        image = images[f"{file.stem.replace('_', ' ')} of board demo"]
        inside = Image.open(io.BytesIO(base64.b64decode(image.attributes["src"].partition(",")[2])))
        with Image.open(file) as drawn:
            assert ImageChops.difference(inside.convert("RGB"), drawn.convert("RGB")).getbbox() is None
            assert int(image.attributes["width"]) == pytest.approx(drawn.width * 96 / 160, abs=1)


def test_text_from_rows_and_docstrings_is_inert(made: SimpleNamespace) -> None:
    seen = {}
    for name, text in (("calm", "calm"), ("hostile", EVIL)):
        rows = [
            made.row(f"cora {text}", f"m {text}", 0, 0.5, suite=f"s {text}"[:60].replace("/", ""), backbone=text,
                     score_metric=text, submitter=text, synthetic=True, git_sha=text, method_version=text,
                     method_params=f'{{"mu": "{text[:8]}"}}', partition=text, started=text),
            made.row(f"cora {text}", "other", 0, error=text, suite=f"s {text}"[:60].replace("/", ""), partition=text,
                     backbone=text, started=text, synthetic=True),
            made.row(f"dead {text}", "other", 0, error=text, suite=f"s {text}"[:60].replace("/", ""), partition=text,
                     backbone=text, started=text, synthetic=True),
        ]  # fmt: skip
        doc = f"{text} `{text}`\n\n  {text}"
        cards = {f"m {text}": Card(doc, text, ("other",), [Parameter("mu", text, text, text)]), text: Card("", "")}
        ranking = [Ranking(made.board(rows, rows[0].suite))]  # no file could be called so
        picture = Picture(text, text, png())
        content = page(ranking, {"0123456789ab": {"cpu": text}}, {ranking[0].board.suite: [picture]}, cards)
        seen[name] = Reader(content).open[0], content
    calm, hostile = seen["calm"][0].every(), seen["hostile"][0].every()
    assert [node.tag for node in hostile] == [node.tag for node in calm]
    assert [list(node.attributes) for node in hostile] == [list(node.attributes) for node in calm]
    assert [node.attributes.get("class") for node in hostile] == [node.attributes.get("class") for node in calm]
    root, content = seen["hostile"]
    assert "\u202e" not in content
    assert content.count("<script") == 1
    assert f"m {KEPT}" in root.text
    assert f"failed (seed 0): {KEPT}"[:120] in root.text
    assert f"m {KEPT}" in {row.attributes.get("data-entrant") for row in root.all("tr")}


def png() -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), "white").save(buffer, "PNG")
    return buffer.getvalue()


def test_docstrings_break_where_their_author_meant_it() -> None:
    doc = (
        "A first line that was broken only because there was no more room on it, as one sees\n"
        "from its length. Then a line that ends early:\n"
        "x = y\n\n"
        "Formula:\n    a < b\n      c\n\n"
        "Not a link: http://example.org and <b>; `code <i>`; (arXiv 2105.03170v2)."
    )
    first, formula, last = documents.documentation(doc)
    assert [str(line) for line in first.lines] == [
        "A first line that was broken only because there was no more room on it, as one sees"
        " from its length. Then a line that ends early:",
        "x = y",
    ]
    assert (first.formula, formula.formula, last.formula) == (False, True, False)
    assert [str(line) for line in formula.lines] == ["Formula:", "    a &lt; b", "      c"]
    assert str(last.lines[0]) == (
        "Not a link: http://example.org and &lt;b&gt;; <code>code &lt;i&gt;</code>;"
        ' (<a href="https://arxiv.org/abs/2105.03170v2">arXiv 2105.03170v2</a>).'
    )


def test_the_command_writes_the_page_where_it_is_told(results: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(report)

    def run(*arguments: Any) -> Any:
        return CliRunner().invoke(app, ["--results", str(results), "--no-figures", *map(str, arguments)])

    assert "leaderboard.html" in run("--html").output
    assert (results / "leaderboard.html").stat().st_size > 10_000
    target = tmp_path / "new folder" / "page.html"
    assert run("--html", target).exit_code == 0
    assert target.read_bytes() == (results / "leaderboard.html").read_bytes()
    assert run("--check").exit_code == 0  # the page is not part of what is kept up to date
    for arguments, message in [
        ([target], "only written with --html"),
        (["--html", "--check"], "use one of them"),
        (["--html", tmp_path], "cannot write"),
    ]:
        error = run(*arguments).exception
        assert isinstance(error, UserError)
        assert message in str(error)
