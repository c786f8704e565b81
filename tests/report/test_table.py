"""One model of a table, two writers: a column is added in one place, and each writer escapes for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from fglbench.report import build, leaderboard, tables
from fglbench.report.html.pages import cell_html, pixels
from fglbench.report.statistics import ranks
from fglbench.report.table import Cell, Column, Interval, Line, Span, Table, to_markdown

HOSTILE = "a|b <b> *c* & 'd' `e` www.f @g"


def median_rank(entrant: tables.Entrant) -> Cell:
    if entrant.name not in entrant.board.ranked:
        return Cell("none")
    value = float(ranks(entrant.board.by_dataset)[entrant.name].median())
    return Cell(f"{value:.1f} of it", value)


def test_a_column_of_the_ranking_is_one_edit(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = results.parent / "README.md"
    page.write_text(leaderboard.BEGIN + leaderboard.END)
    monkeypatch.setattr(tables, "RANKING", [*tables.RANKING, Column("Median rank", median_rank, best=True)])
    report = build.make(results, page, figures=False)
    build.write_site(report, results / "site")
    monkeypatch.setattr(leaderboard, "README", [*leaderboard.README, "Median rank"])
    chosen = build.make(results, page, figures=False).texts[page]
    text, content = report.texts[results / "LEADERBOARD.md"], (results / "site" / "board-demo.html").read_text()
    (head,) = [line for line in text.splitlines() if line.startswith("| Group")]
    assert head.endswith("|   Median rank |")
    (first,) = [line for line in text.splitlines() if " alpha " in line and line.endswith("|     1.0 of it |")]
    assert first.startswith("| \N{EN DASH} ")
    assert '<th scope="col" class="number">Median rank</th>' in content
    assert '<td class="number best" data-value="1">1.0 of it</td>' in content  # the lowest is the best
    assert "Median rank" not in report.texts[page]
    assert "1.0 of it" in chosen


def test_a_column_of_the_tasks_is_one_edit(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = Column("Twice", lambda own: Cell(f"2x{own['n']}"))
    monkeypatch.setattr(tables, "MEASURED", [*tables.MEASURED, twice])
    report = build.make(results, None, figures=False)
    build.write_site(report, results / "site")
    assert "2x2.0 |" in report.texts[results / "demo" / "tables" / "cora.md"]
    assert '<td class="number">2x2.0</td>' in (results / "site" / "dataset-cora.html").read_text()


def test_each_writer_escapes_for_itself() -> None:
    cell = Cell((Span(HOSTILE, "strong"), Span(" ", ""), Span("x`*y", "code"), Span("", "break"), Span("<z>")))
    column = Column("head|ing", lambda _: cell, "text", note="n=2", link="a b.md")
    sheet = Table("id", "caption", [column], [Line([cell])])
    head, _, line = to_markdown(sheet).splitlines()
    assert head.strip("| ") == "[head\\|ing](a%20b.md), n=2"
    assert line.strip("| ") == ("**a\\|b &lt;b&gt; \\*c\\* &amp; 'd' \\`e\\` www&#46;f &#64;g** `x*y`<br>&lt;z&gt;")
    assert cell_html(cell) == (
        "<strong>a|b &lt;b&gt; *c* &amp; &#39;d&#39; `e` www.f @g</strong> <code>x`*y</code><br>&lt;z&gt;"
    )


def test_references_are_set_apart_in_markdown_only_where_they_are_named() -> None:
    cells = [Cell((Span("global"), Span(" ✓1"))), Cell("50.00", 0.5)]
    score = Column("Score", lambda _: cells[1], centred=True)
    columns = [Column("Method", lambda _: cells[0], "method"), score]
    sheet = Table("id", "", columns, [Line(cells, "global", "global", "reference")])
    assert to_markdown(sheet).splitlines()[1:] == ["|:------------|:-------:|", "| *global* ✓1 |  50.00  |"]
    assert [line.cells for line in sheet.only(["Score", "Method"]).lines] == [cells[::-1]]
    with pytest.raises(ValueError, match="not in list"):
        sheet.only(["Rank"])


def test_an_interval_without_bounds_is_a_point() -> None:
    assert pixels(Interval(2.0, float("nan"), float("nan"), 3)) == {"mean": 48.0}
    assert pixels(Interval(1.0, 1.0, 3.0, 3)) == {"low": 4.0, "high": 92.0, "mean": 4.0}
