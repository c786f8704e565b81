"""Papers' tables next to ours: stored figures, layout and verdicts by hand, repeatable files."""

from __future__ import annotations

import csv
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fglbench.report import build
from fglbench.report.papers import papers, printed, tables
from fglbench.report.reproduction import views
from fglbench.report.reproduction.match import SuiteRows
from fglbench.report.reproduction.page import signed
from fglbench.report.reproduction.view import judge

from . import samples

COUNTS = {
    ("FGSSL", "1"): 57, ("FGSSL", "2"): 24, ("FGSSL", "3"): 24,
    ("FedGL", "2"): 20, ("FedGL", "3"): 60, ("FedGL", "4"): 32, ("FedGL", "5"): 32, ("FedGL", "6"): 60,
    ("FCLG", "II"): 72,
    ("FedOMD", "4"): 128, ("FedOMD", "5"): 16, ("FedOMD", "6"): 24, ("FedOMD", "7"): 48,
    ("FedGKC", "II"): 192, ("FedGKC", "III"): 192, ("FedGKC", "IV"): 45, ("FedGKC", "V"): 48,
}  # fmt: skip


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def lines(text: str, head: str) -> list[list[str]]:
    """The table lines of a page that begin with `head`."""
    return [cells(line) for line in text.splitlines() if line.startswith("|") and cells(line)[0] == head]


PLACE = {"suite": "fedgl-table2", "partition": "random-overlap", "clients": 6, "split": "fixed"}
BASE = '{"beta":1.0,"report_on":"own"}'  # of FedGL with its graph; other readings change it


def fedgl_rows() -> list[Any]:
    """FedGL's Table 2 on Cora: three seeds of Federated at 0.80, 0.81, 0.82; FedGL exactly ten points above;
    w/o GPG with one seed; w/o GPL failed."""

    def row(method: str, seed: int, score: float | None = None, **changes: Any) -> Any:
        params = {"method_params": BASE} if method in ("fedgl", "fedgl-no-gpl") else {}
        return samples.row("cora", method, seed, score, **PLACE, **params, **changes)

    return [
        *(row("fedavg", seed, 0.80 + 0.01 * seed) for seed in range(3)),
        *(row("fedgl", seed, 0.90 + 0.01 * seed) for seed in range(3)),
        row("fedgl-no-gpg", 1, 0.83),
        row("fedgl-no-gpl", 0, error="out of | range"),
    ]


def test_all_published_figures_are_stored() -> None:
    assert Counter((row.paper, row.table) for row in printed()) == COUNTS
    assert sum(COUNTS.values()) == len(printed()) == 1074
    assert {(paper.name, table.table) for paper, table in tables().values()} == set(COUNTS)
    assert len({(row.paper, row.table, *row.place.values()) for row in printed()}) == len(printed())
    assert sum(row.mean is None for row in printed()) == 1  # FedOMD, Table 4: FedGCN, Citeseer, M=9
    assert all(0 < row.mean < row.scale for row in printed() if row.mean is not None)


def test_a_known_figure_of_each_paper() -> None:
    known = {
        ("FGSSL", "1", "Pubmed", "10", "FGSSL", "", "accuracy_%"): (87.60, 0.53),
        ("FedGL", "2", "Wiki", "6", "Federated", "", "accuracy"): (0.678, None),
        ("FCLG", "II", "DHFR", "6", "FCLG-H", "", "f1_macro_%"): (64.93, 0.90),
        ("FedOMD", "4", "Computer", "5", "FedOMD", "", "accuracy_%"): (71.40, 2.59),
        ("FedGKC", "V", "Cora", "avg", "FedGKC", "SMKD=1;KAMA=1", "accuracy_%"): (79.17, None),
    }
    names = ("paper", "table", "dataset", "clients", "method", "variant", "metric")
    stored = {tuple(getattr(row, name) for name in names): (row.mean, row.std) for row in printed()}
    assert known.items() <= stored.items()


def test_claims_name_rows_of_their_table() -> None:
    for paper in papers():
        for table in paper.tables.values():
            rows = {row.place[table.rows[0]] for row in paper.figures(table)}
            for claim in table.claims:
                assert {claim.better, *claim.worse} <= rows, (paper.name, table.table, claim)
            listed = [value for block in table.blocks for value in block]
            if listed:
                assert sorted(listed) == sorted({row.place[table.columns[0]] for row in paper.figures(table)})


def test_cells_next_to_the_table(tmp_path: Path) -> None:
    def row(dataset: str, clients: int, seed: int, score: float) -> Any:
        place = {"suite": "fedomd-table4", "partition": "louvain", "split": "ratio", "clients": clients}
        given = {
            "dataset_params": '{"features":"raw"}',
            "partition_params": '{"resolution":1.0}',
            "method_params": '{"beta":0.001}',
            "training": '{"patience":200}',
        }
        return samples.row(dataset, "fedomd", seed, score, **given, **place)

    rows = [row("cora", 5, 0, 0.5), row("cora", 5, 1, 0.7), row("cora", 3, 0, 0.4), row("citeseer", 9, 0, 0.3)]
    _, texts = samples.pages(tmp_path, rows)
    beside = texts["fedomd-table4/REPRODUCTION.md"].split("## Beside the table")[1]
    places = ["citeseer, 9 clients", "cora, 3 clients", "cora, 5 clients"]
    assert lines(beside, "Ours, %") == [["Ours, %", "Reading", *places]]
    name = "FedOMD, beta 0.001, features as published"
    assert lines(beside, name) == [[name, "printed", "30.00 (n=1)", "40.00 (n=1)", "60.00 ± 14.14 (n=2)"]]


def test_layout_cell_by_cell(tmp_path: Path) -> None:
    text = samples.pages(tmp_path, fedgl_rows())[1]["fedgl-table2/REPRODUCTION.md"]
    assert "# FedGL, Table 2" in text
    (head,) = lines(text, "")[:1]
    assert head == ["", "Cora", "Citeseer", "ACM", "Wiki"]
    assert lines(text, "Centralized") == [
        ["Centralized", *(f"{figure}<br>*not run*" for figure in ("0.811", "0.705", "0.848", "0.619"))]
    ]
    (federated,) = lines(text, "Federated")
    assert federated[1] == "0.810<br>*0.810 ± 0.010* (n=3)<br>**0.000**"
    assert federated[2:] == [f"{figure}<br>*not run*" for figure in ("0.676", "0.855", "0.678")]
    (without_graph,) = lines(text, "FedGL w/o GPG")
    assert without_graph[1] == "0.828<br>*0.830* (n=1)<br>**+0.002**"
    (without_labels,) = lines(text, "FedGL w/o GPL")
    assert without_labels[1] == "0.812<br>*failed*"
    assert "- FedGL w/o GPL, Cora (ours): failed (seed 0): out of \\| range" in text
    assert "- not run (ours): 16 of 20 figures" in text
    (cell_texts,) = lines(text, "FedGL")
    assert cell_texts[1] == "0.830<br>*0.910 ± 0.010* (n=3)<br>**+0.080**"
    assert lines(text, "FedGL > Federated") == [
        ["FedGL > Federated", "**supported**<br>+0.100 (+0.100 to +0.100)<br>more than +0.020", *["*not run*"] * 3]
    ]
    (contrast,) = lines(text, "FedGL > FedGL w/o GPG")
    assert contrast[1:] == ["inconclusive<br>+0.080, n=1", "*not run*", "*not claimed*", "*not run*"]
    assert "Early stopping after 30 rounds" in text  # a choice of ours


def test_index_counts_figures_and_claims(tmp_path: Path) -> None:
    text = samples.pages(tmp_path, fedgl_rows())[1]["REPRODUCTION.md"]
    (line,) = (cells(line) for line in text.splitlines() if "fixed split" in line and "ours" in line)
    # Differences 0, +8 and +0.2 points have the median 0.2; FedGL > Federated is supported, two claims have one seed.
    assert line[3:] == ["3/20", "0\N{EN DASH}2", "+0.20", "1", "0", "2", "0"]
    assert "these are 3; 1 of them are judged from at least 3 seeds." in text
    assert sum("not run" in line for line in text.splitlines() if line.startswith("|")) == 16


@pytest.mark.parametrize(("gain", "inside"), [(-0.1, "0"), (0.02, "1"), (0.1, "0")])
def test_index_counts_published_gains_in_our_intervals(tmp_path: Path, gain: float, inside: str) -> None:
    """FedGL is above Federated by `gain` with a half-width of 0.025; published: 0.02."""
    scores = {seed: 0.5 + gain + 0.01 * seed for seed in range(3)}
    rows = [samples.row("cora", "fedgl", seed, score, method_params=BASE, **PLACE) for seed, score in scores.items()]
    rows += [samples.row("cora", "fedavg", seed, 0.51, **PLACE) for seed in range(3)]
    text = samples.pages(tmp_path, rows)[1]["REPRODUCTION.md"]
    (line,) = (cells(line) for line in text.splitlines() if "fixed split" in line and "ours" in line)
    assert line[-1] == inside


def test_index_counts_the_claims_that_a_reading_does_not_change(tmp_path: Path) -> None:
    """w/o GPG > Federated needs no graph: it is supported under every reading, and counted once in the sum."""
    graph = json.dumps(json.loads(BASE) | {"pseudo_graph": "openfgl"})
    scores = {"fedavg": 0.5, "fedgl-no-gpg": 0.6, "fedgl": 0.4}
    params = {"fedgl": {"method_params": graph}}
    rows = [
        samples.row("cora", name, seed, score + 0.01 * seed, **PLACE, **params.get(name, {}))
        for name, score in scores.items()
        for seed in range(3)
    ]
    text = samples.pages(tmp_path, rows)[1]["REPRODUCTION.md"]
    known = [cells(line) for line in text.splitlines() if "](fedgl-table2/" in line]
    assert {line[2]: line[6:9] for line in known} == {"ours": ["1", "0", "0"], "openfgl": ["1", "2", "0"]}
    assert "these are 3; 3 of them" in text


def test_index_does_not_count_the_claims_of_readings_that_it_does_not_show(tmp_path: Path) -> None:
    """LocGCN > FedGCN with features of ones: FedOMD's readings share these rows, but its own were not run."""
    place = {"suite": "fedomd-table4", "clients": 3, "partition_params": '{"resolution":20.0}'}
    rows = [
        samples.row("amazon-photo", method, seed, score + 0.01 * seed, dataset_params='{"features":"binary"}', **place)
        for method, score in (("locgcn", 0.9), ("fedgcn", 0.8))
        for seed in range(3)
    ]
    text = samples.pages(tmp_path, rows)[1]["REPRODUCTION.md"]
    shown = [cells(line) for line in text.splitlines() if "](fedomd-table4/" in line]
    assert [(line[2], line[6]) for line in shown] == [("printed", "0"), ("features-of-ones", "1")]
    assert "these are 1; 1 of them" in text


def test_index_sums_the_cost_of_rows(tmp_path: Path) -> None:
    """A row counts once, in the suite that ran it; rows without processor time count their training time."""

    runs = [
        ("fedgl-table2", 3600.0, 50.0, ""), ("fedgl-table2", None, 7200.0, ""),
        ("fedgl-table2", 9000.0, 0.0, "a note; run for suite overlap"),
        ("overlap", 9000.0, 0.0, "rerun for suite overlap"),
    ]  # fmt: skip
    rows = [
        samples.row("cora", "fedavg", seed, 0.5, suite=suite, cpu_seconds=cpu, train_seconds=training, notes=notes)
        for seed, (suite, cpu, training, notes) in enumerate(runs)
    ]
    below = samples.pages(tmp_path, rows)[1]["REPRODUCTION.md"].split("## What it cost")[1]
    assert [cells(line) for line in below.splitlines() if line.startswith("|")][2:] == [
        ["fedgl-table2", "2", "3.0"], ["overlap", "1", "2.5"], ["all", "3", "5.5"],
    ]  # fmt: skip


def test_percent_tables_and_other_columns_than_the_score() -> None:
    rows = [samples.row("enzymes", "fclg", s, 0.3, macro_f1=0.2, suite="fclg-table2", partition="fclg", clients=6,
                     split="none", dataset_params='{"features":"auto"}', method_params='{"scored_codes":"raw"}',
                     training='{"rounds":50}')
            for s in range(2)]  # fmt: skip
    view, *_ = views("fclg-table2", SuiteRows.of(rows))
    figures = {figure.metric: (ours.mean, ours.std, ours.n) for figure, ours in view.ours.items() if ours.n}
    assert figures == {"clustering_accuracy_%": (0.3, 0.0, 2), "f1_macro_%": (0.2, 0.0, 2)}
    accuracy, f1 = view.columns[2:4]
    assert view.heading(accuracy) == "ENZYMES, accuracy"
    assert view.heading(f1) == "ENZYMES, macro-F1"


def test_a_mean_over_columns_is_taken_seed_by_seed() -> None:
    scores = {
        ("coauthor-cs", 0): 0.8, ("coauthor-cs", 1): 0.9, ("coauthor-physics", 0): 0.9, ("amazon-photo", 0): 0.7,
        ("amazon-photo", 2): 0.1, ("amazon-computers", 0): 0.6,
    }  # fmt: skip
    rows = [samples.row(dataset, "moon", s, score, suite="fedgkc-table4") for (dataset, s), score in scores.items()]
    view, *_ = views("fedgkc-table4", SuiteRows.of(rows))
    (mean,) = (ours for figure, ours in view.ours.items() if (figure.method, figure.dataset) == ("MOON", "avg4"))
    assert mean.seeds == {0: pytest.approx((0.8 + 0.9 + 0.7 + 0.6) / 4)}
    assert all(one.figures[0].dataset != "avg4" for one in view.claims)  # claims count once


def test_each_reading_of_the_split_is_compared_with_its_own_rows() -> None:
    rows = [
        samples.row("cora", method, 0, score, suite="fgssl-table1", split=split, clients=5)
        for split, method, score in (
            ("fs-per-class", "fedavg", 0.8), ("ratio", "fedavg", 0.7), ("ratio", "global", 0.9),
        )
    ]  # fmt: skip
    view_of = {view.reading.id: view for view in views("fgssl-table1", SuiteRows.of(rows))}
    first, second = view_of["released-split"], view_of["stated-split"]
    place = ("Cora", "5")
    assert first.ours[first.figure("FedAvg", place)].seeds == {0: 0.8}
    assert second.ours[second.figure("FedAvg", place)].seeds == {0: 0.7}
    assert first.columns[0] == place and len(first.columns) == 9
    for clients in ("5", "7", "10"):  # the whole graph's figure holds for every number of clients
        assert second.ours[second.figure("Global", ("Cora", clients))].seeds == {0: 0.9}


def test_the_later_of_two_settings_counts_and_is_noted(tmp_path: Path) -> None:
    old = {"method_params": '{"alpha":0.9}', "started": "2020-01-01T00:00:00Z"}
    rows = [*fedgl_rows(), samples.row("cora", "fedavg", 0, 0.1, **PLACE, **old)]
    text = samples.pages(tmp_path, rows)[1]["fedgl-table2/REPRODUCTION.md"]
    assert lines(text, "Federated")[0][1] == "0.810<br>*0.810 ± 0.010* (n=3)<br>**0.000**"
    assert "- Federated, Cora (ours): rows of 2 different settings; for each seed the latest is shown" in text


def test_verdicts_by_hand() -> None:
    high, low = {0: 0.80, 1: 0.82, 2: 0.81}, {0: 0.70, 1: 0.71, 2: 0.72}
    # Differences 0.10, 0.11, 0.09: mean 0.10, deviation 0.01, t of 2 degrees of freedom at 97.5% is 4.30265.
    half = 4.30265 * 0.01 / 3**0.5
    verdict, difference, n = judge(high, low)
    assert (verdict, n) == ("supported", 3)
    assert (difference.low, difference.high) == pytest.approx((0.1 - half, 0.1 + half), rel=1e-5)
    assert judge(low, high)[0] == "contradicted"
    # Differences 0.10, -0.10, 0.02: the interval reaches to both sides of 0.
    assert judge({0: 0.9, 1: 0.7, 2: 0.82}, {0: 0.8, 1: 0.8, 2: 0.8})[0] == "inconclusive"
    # Two seeds, or seeds of only one side, give no verdict.
    assert judge({0: 0.9, 1: 0.9}, {0: 0.1, 1: 0.2})[0] == "inconclusive"
    assert judge(high, {0: 0.70, 1: 0.71, 5: 0.72})[::2] == ("inconclusive", 2)
    assert judge(high, {7: 0.5}) == ("not run", None, 0)
    assert judge(high, high)[0] == "inconclusive"  # equal is not below


def test_signs() -> None:
    assert [signed(value, 2) for value in (1.234, -1.236, -0.001)] == ["+1.23", "\N{MINUS SIGN}1.24", "0.00"]


def test_files_repeat_and_go_stale_with_the_rows(tmp_path: Path) -> None:
    rows = [*fedgl_rows(), *samples.demo()]
    _, texts = samples.pages(tmp_path / "one", rows)
    random.Random(3).shuffle(rows)
    folder, again = samples.pages(tmp_path / "two", rows)
    assert texts == again and build.stale(build.make(folder, None, figures=False)) == []
    assert "fedgl-table2" not in texts["LEADERBOARD.md"]  # a paper's table is no board
    samples.write(folder, [samples.row("cora", "fedgl", 3, 0.5, method_params=BASE, **PLACE)], curves=False)
    stale = {path.relative_to(folder).as_posix() for path in build.stale(build.make(folder, None, figures=False))}
    assert stale == {"REPRODUCTION.md", "fedgl-table2/REPRODUCTION.md", "fedgl-table2/tables/reproduction.csv"}


def test_a_folder_with_papers_tables_only(tmp_path: Path) -> None:
    folder = samples.write(tmp_path / "results", fedgl_rows(), curves=False)
    left = folder / "fedgl-table2" / "tables" / "cora.md"
    left.parent.mkdir()
    left.write_text("a table that is no longer made")
    report = build.make(folder, None, figures=False)
    assert not report.boards
    build.write(report)
    assert not left.exists()
    assert not (folder / "LEADERBOARD.md").exists()
    with (folder / "fedgl-table2" / "tables" / "reproduction.csv").open(newline="") as stream:
        line_of = {
            (line["method"], line["dataset"]): line for line in csv.DictReader(stream) if line["reading"] == "ours"
        }
    assert len(line_of) == 20
    assert line_of["FedGL", "Cora"] | {"reading": ""} == {
        "dataset": "Cora", "partition": "random sampling p=[.3,.4,.5,.5,.6,.7]", "clients": "6",
        "split": "fixed (Planetoid 20/class,500,1000)", "method": "FedGL", "variant": "", "metric": "accuracy",
        "reading": "", "paper_mean": "0.83", "paper_std": "", "mean": "0.91", "std": "0.01", "difference": "0.08",
        "n": "3", "seeds": "0-2", "chosen": "",
    }  # fmt: skip
