"""What the page says of a method beyond the boards' tables, by hand, and the files that it carries."""

from __future__ import annotations

import csv
import io
from types import SimpleNamespace
from urllib.parse import unquote

import pytest
from scipy import stats

from fglbench.report.html import Paperwork, Reproduced
from fglbench.report.html.methods import HEIGHT, WIDTH, comparison_table, method_versions, panels, readings_of
from fglbench.report.papers import papers
from fglbench.report.ranking import Ranking
from fglbench.report.table import Cell, Column, Line, Table, data_uri, to_csv
from fglbench.report.text import ABSENT


def rows(made: SimpleNamespace) -> list:
    """On cora fedtgp is 10, 11 and 12 points above FedAvg at a hundredth of its traffic; on wiki one seed met."""
    found = []
    for seed in range(3):
        found.append(made.row("cora", "fedavg", seed, 0.5, train_seconds=2.0))
        cost = {"upload_bytes_best": 40_000, "download_bytes_best": 40_000, "train_seconds": 5.0}
        found.append(made.row("cora", "fedtgp", seed, 0.6 + 0.01 * seed, **cost))
    found.append(made.row("wiki", "fedavg", 0, 0.4, upload_bytes_best=0, download_bytes_best=0))
    return [*found, made.row("wiki", "fedtgp", 0, 0.3, git_sha="b" * 40, method_version="later")]


def test_a_method_against_fedavg_by_hand(made: SimpleNamespace) -> None:
    board = made.board(rows(made))
    sheet = comparison_table(board, "fedtgp")
    cora, wiki = ([cell.text for cell in line.cells] for line in sheet.lines)
    half = 100 * stats.t.ppf(0.975, 2) * 0.01 / 3**0.5
    assert cora[:3] == ["cora", "61.00", "50.00"]
    (span,) = cora[3]
    assert span == (f"+11.0 (+{11 - half:.1f} to +{11 + half:.1f}) ↑", "strong", "")
    assert cora[4:] == ["0.01x", "2.5x"]
    assert wiki == ["wiki", "30.00", "40.00", "-10.0 (one seed)", ABSENT, "1.0x"]
    assert comparison_table(board, "fedavg") is None
    assert comparison_table(made.board([row for row in rows(made) if row.method != "fedavg"]), "fedtgp") is None


def test_versions_name_code_rows_and_commits(made: SimpleNamespace) -> None:
    sheet = method_versions([Ranking(made.board(rows(made)))], "fedtgp")
    told = {line.cells[1].text: [cell.text for cell in line.cells[2:4]] for line in sheet.lines}
    assert told["later"] == ["1", "b" * 12]
    assert [own for version, own in told.items() if version != "later"] == [["3", "a" * 12]]


def test_every_reading_that_names_a_method_is_told_once() -> None:
    named = [(paper.name, own.id) for paper in papers() for table in paper.tables.values()
             for own in paper.readings_of(table) if "fedomd" in own.methods]  # fmt: skip
    found = readings_of("fedomd")
    assert sorted((own.paper, own.id) for own in found) == sorted(set(named))
    assert all(own.meaning and own.suite for own in found)
    assert readings_of("majority") == []


def test_two_lines_in_a_field_by_hand() -> None:
    own = {"name": "own", "round": [1, 2, 3, 4], "mean": [0.1, 0.6, 0.7, 0.9]}
    control = {"name": "control", "round": [1, 2], "mean": [0.5, 0.5]}
    curves = {"panels": [{"task": "t", "lines": [own, control]}, {"task": "u", "lines": [own]}]}
    (panel,) = panels(curves, "own", "control")
    assert (panel.task, panel.rounds, panel.ends) == ("t", 4, (pytest.approx(90), pytest.approx(50)))
    assert (panel.low, panel.high) == (pytest.approx(10), pytest.approx(90))
    points = [tuple(map(float, point.split(","))) for point in panel.own.split()]
    assert points[0] == (WIDTH / 4, HEIGHT)
    assert points[-1] == (WIDTH, 0)
    assert [float(point.split(",")[1]) for point in panel.baseline.split()] == [HEIGHT / 2] * 2
    assert panels(None, "own", "control") == []


def test_a_sheet_as_csv_has_numbers_and_what_is_shown() -> None:
    columns = [Column(title, lambda line: Cell("")) for title in ("Method", "n", "Score, %")]
    cells = [Cell("=cmd", "=cmd"), Cell("3", 3), Cell("81.25 ± 0.50 ≈", 0.8125)]
    other = [Cell('b "quoted", with a comma', "b"), Cell("", None), Cell("failed", None, "absent")]
    sheet = Table("x:y", "caption", columns, [Line(cells), Line(other)])
    uri = data_uri(to_csv(sheet))
    assert not set('"<>& \n') & set(uri)
    found = list(csv.reader(io.StringIO(unquote(uri.partition(",")[2]))))
    assert found == [
        ["Method", "n", "Score, %", "Score, %, as shown"],
        ["'=cmd", "3", "0.8125", "81.25 ± 0.50 ≈"],
        ['b "quoted", with a comma', "", "", "failed"],
    ]


def test_documents_keep_to_the_page_and_cannot_act() -> None:
    text = (
        "<!-- Made by a command. -->\n# Title\n\n#### Deep\n\n[own](fgssl-table1/REPRODUCTION.md), "
        "[none](else/REPRODUCTION.md), [up](../REPRODUCTION.md), [paper](https://arxiv.org/abs/1), "
        "[evil](javascript:alert(1)), [plain](http://a.b), ![x](https://a.b/c.png)\n\n"
        "<script>alert(1)</script>\n\n| a | b |\n|:--|--:|\n| 1<br>2 <b onclick=x>3</b> | 4 |\n"
    )
    paperwork = Paperwork("", text, [Reproduced("fgssl-table1", "# Table 1\n", "a,b\n")])
    shown = str(paperwork.shown(text, 2))
    assert "Title" not in shown and "Made by" not in shown
    assert "<h3>Deep</h3>" in shown  # no level is skipped
    assert '<a href="#reproduction-fgssl-table1">own</a>' in shown
    assert '<a href="#reproduction">up</a>' in shown
    assert '<a href="https://arxiv.org/abs/1">paper</a>' in shown
    assert shown.count("<a ") == 3
    assert "<span>none</span>" in shown
    assert "1<br>2 &lt;b onclick=x&gt;3&lt;/b&gt;" in shown
    assert "<script" not in shown and "<img" not in shown
    assert '<td class="number">4</td>' in shown
    assert paperwork.tables[0].title == "Table 1"
    assert paperwork.anchor("fgssl-table1") == "reproduction-fgssl-table1" and paperwork.anchor("other") == ""
