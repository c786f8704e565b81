"""Columns of the tables by hand: new columns, training, trials, gains of clients, unseen clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from fglbench.benchmark.store.schema import TRIAL
from fglbench.report import build, leaderboard, tables
from fglbench.report.board import Board
from fglbench.report.cells import Cell, Column, Interval, Line, Span, Table, to_markdown
from fglbench.report.html.pages import cell_html, pixels
from fglbench.report.loading import load_boards
from fglbench.report.provenance import training_settings
from fglbench.report.ranking import Ranking, setting_loss
from fglbench.report.special_tables import client_gains, clients_table, method_tables
from fglbench.report.statistics import ranks
from fglbench.report.tables import ranking_table, task_table
from fglbench.report.text import ABSENT

from . import samples

HOSTILE = "a|b <b> *c* & 'd' `e` www.f @g"


def median_rank(entrant: tables.Entrant) -> Cell:
    if entrant.name not in entrant.board.ranked:
        return Cell("none")
    value = float(ranks(entrant.board.by_dataset)[entrant.name].median())
    return Cell(f"{value:.1f} of it", value)


def test_one_edit_adds_a_column(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = results.parent / "README.md"
    page.write_text(leaderboard.BEGIN + leaderboard.END)
    columns, more = tables.ranking_columns, Column("Median rank", median_rank, best=True)
    for module in (tables, leaderboard):
        monkeypatch.setattr(module, "ranking_columns", lambda ranking: [*columns(ranking), more])
    twice = Column("Twice", lambda entry: Cell(f"2x{entry['n']}"))
    monkeypatch.setattr(tables, "MEASURED", [*tables.MEASURED, twice])
    report = build.make(results, page, figures=False)
    build.write_site(report, results / "site")
    monkeypatch.setattr(leaderboard, "README", [*leaderboard.README, "Median rank"])
    chosen = build.make(results, page, figures=False).texts[page]
    text, content = (
        report.texts[results / "demo" / "LEADERBOARD.md"],
        (results / "site" / "board-demo.html").read_text(),
    )
    (head,) = [line for line in text.splitlines() if line.startswith("| Group")]
    assert head.endswith("|   Median rank |")
    (first,) = [line for line in text.splitlines() if " alpha " in line and line.endswith("|     1.0 of it |")]
    assert first.startswith("| \N{EN DASH} ")
    assert '<th scope="col" class="number">Median rank</th>' in content
    assert '<td class="number best" data-value="1">1.0 of it</td>' in content  # the lowest is the best
    assert "Median rank" not in report.texts[page] and "1.0 of it" in chosen
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


def test_references_are_italic_only_in_the_method_column() -> None:
    cells = [Cell((Span("global"), Span(" ✓1"))), Cell("50.00", 0.5)]
    columns = [Column("Method", lambda _: cells[0], "method"), Column("Score", lambda _: cells[1])]
    sheet = Table("id", "", columns, [Line(cells, "global", "global", "reference")])
    assert to_markdown(sheet).splitlines()[1:] == ["|:------------|--------:|", "| *global* ✓1 |   50.00 |"]


def test_an_interval_without_bounds_is_a_point() -> None:
    assert pixels(Interval(2.0, float("nan"), float("nan"), 3)) == {"mean": 48.0}
    assert pixels(Interval(1.0, 1.0, 3.0, 3)) == {"low": 4.0, "high": 92.0, "mean": 4.0}


BUDGET = {"optimiser_steps": 300, "model_steps": 300, "budget_steps": 300}


def line(board, name: str) -> dict[str, str]:
    sheet = training_settings(board)
    (row,) = [row for row in sheet.lines if row.entrant == name]
    return dict(zip(sheet.titles, ("".join(span.text for span in cell.spans) for cell in row.cells), strict=True))


def test_steps_rounds_and_networks_by_hand() -> None:
    rows = [samples.row("cora", name, s, 0.5, **BUDGET) for name in ("fedavg", "local") for s in (0, 1)]
    double = BUDGET | {"optimiser_steps": 600, "backbone_params": '{"hidden":64,"linear_head":true}'}
    rows += [samples.row("cora", "fml", 0, 0.5, best_round=99, **double), samples.row("cora", "fml", 1, 0.5, **double)]
    board = samples.board(rows)
    assert line(board, "fedavg") == {
        "Method": "FedAvg", "Family": "shared model", "Settings": "untuned", "Rounds": "100",
        "Optimiser steps": "300 (100%)", "Not converged": "0/2", "Network": "gcn",
    }  # fmt: skip
    assert line(board, "fml")["Optimiser steps"] == "600 (200%)"
    assert line(board, "fml")["Not converged"] == "1/2"
    assert line(board, "fml")["Network"] == "gcn"  # other rows lack the parameter
    assert board.over_budget == {}


def test_methods_over_the_step_budget_are_shown_but_not_ranked() -> None:
    rows = [samples.row("cora", name, s, 0.5, **BUDGET) for name in ("a", "b") for s in (0, 1)]
    rows += [samples.row("cora", "greedy", s, 0.9, **BUDGET | {"model_steps": 301}) for s in (0, 1)]
    board = samples.board(rows)
    assert set(board.over_budget) == {"greedy"}
    assert line(board, "greedy")["Settings"] == "untuned; over budget: 301 steps of a model, 300 given"
    assert board.ranked == ["a", "b"]
    assert board.status("greedy") == "over budget"
    ranking = Ranking(board)
    assert ranking.leaders["cora"][0] == {"a", "b"}
    text = to_markdown(tables.ranking_table(ranking)).replace(" ", "")
    assert "|*greedy*|overbudget|90.00|" in text


def test_scores_below_the_majority_are_marked() -> None:
    rows = [samples.row("cora", "majority", s, 0.4, reference=True) for s in (0, 1)]
    rows += [samples.row("cora", name, s, score) for name, score in (("good", 0.5), ("bad", 0.3)) for s in (0, 1)]
    ranking = samples.ranking(rows)
    text = {line.entrant: line.cells[1].spans[0].text for line in tables.per_dataset_table(ranking).lines}
    assert text == {"good": "50.00 ± 0.00", "bad": "30.00 ± 0.00 ▽", "majority": "40.00 ± 0.00"}
    assert "▽: below a reference that learns nothing" in tables.legend(ranking)
    assert "▽" not in tables.legend(samples.ranking(samples.demo()))


def test_settings_column_shows_tuning_trials() -> None:
    tuning = '{"rounds":100,"seeds":[100],"study":"x","trials":12}'
    rows = [samples.row("cora", name, s, 0.5, tuning=tuning) for name in "ab" for s in (0, 1)]
    board = samples.board([*rows, samples.row("wiki", "a", 0, 0.5)])
    assert line(board, "b")["Settings"] == "tuned, 12 trials"
    assert line(board, "a (tuned)")["Settings"] == "tuned, 12 trials"
    assert line(board, "a")["Settings"] == "untuned"


def test_a_median_setting_loses_the_best_less_the_median_of_the_first_stage() -> None:
    trials = {
        ("steady", "cora", 11): [0.8, 0.79, 0.7], ("steady", "wiki", 11): [0.5] * 3, ("steady", "other", 11): [0.1],
        ("steady", "cora", 33): [0.95],  # a later stage does not count
        ("touchy", "cora", 11): [0.9, None, None], ("touchy", "wiki", 11): [0.6], ("partly", "cora", 11): [0.6],
    }  # fmt: skip
    lines = [
        (method, dataset, val, "failed" if val is None else "ok", f'{{"rounds":{rounds}}}', f'{{"mu":{trial}}}', "{}")
        for (method, dataset, rounds), values in trials.items()
        for trial, val in enumerate(values)
    ]
    names = ["method", "dataset", "val", "status", "training", "method_params", "backbone_params"]
    frame = pd.DataFrame(lines, columns=names)
    losses = setting_loss(frame, ["cora", "wiki"])
    assert losses == {"steady": pytest.approx((0.01 + 0.0) / 2), "touchy": pytest.approx((0.9 + 0.0) / 2)}
    two_seeds = pd.concat([frame, frame.assign(val=frame["val"] - 0.2)])  # averaged: the order of trials stays
    assert setting_loss(two_seeds, ["cora", "wiki"])["steady"] == pytest.approx((0.01 + 0.0) / 2)
    assert setting_loss(pd.DataFrame(), ["cora"]) == {}


def test_only_tuned_boards_have_the_loss_column(tmp_path: Path) -> None:
    rows = [samples.row("cora", m, s, 0.5, suite=suite) for suite in ("node", "leaderboard")
            for m in ("fedavg", "feddc") for s in range(3)]  # fmt: skip
    folder = samples.write(tmp_path / "results", rows)
    trials = [samples.row("cora", "fedavg", 100, score, suite="node", tuning=TRIAL, method_params=f'{{"mu":{i}}}')
              for i, score in enumerate((0.8, 0.7, 0.5))]  # fmt: skip
    samples.write(folder / "tuning", trials, curves=False)
    tables = {board.suite: ranking_table(Ranking(board)) for board in load_boards(folder)}
    title = "Loss of a median setting, points"
    assert title not in tables["leaderboard"].titles
    cells = {line.entrant: line.cells[tables["node"].titles.index(title)].text for line in tables["node"].lines}
    assert cells == {"fedavg": "10.0", "feddc": "\N{EN DASH}"}


Scores = dict[tuple[str, int], list[float | None]]
SCORES: Scores = {  # of three clients, the second without a test node of both classes
    ("local", 0): [0.5, None, 0.6],
    ("local", 1): [0.4, None, 0.7],
    ("alpha", 0): [0.6, None, 0.5],  # +0.1, -0.1
    ("alpha", 1): [0.5, None, 0.9],  # +0.1, +0.2
    ("beta", 0): [0.5, None, 0.4],  # 0, -0.2
    ("beta", 1): [0.5, None, 0.6],  # +0.1, -0.1
}


def board(partition: str, scores: Scores = SCORES) -> Board:
    rows = [samples.row("twitch", *key, 0.5, partition=partition) for key in scores]
    return samples.board(rows, files=[{"per_client": {"score": values}} for values in scores.values()])


@pytest.mark.parametrize("partition", ["source", "own", "louvain"])
def test_gain_columns_need_clients_from_the_data(partition: str) -> None:
    table = clients_table(Ranking(board(partition)))
    titles = [column.title for column in table.columns]
    assert "Worst client, %" in titles and "Spread between clients, points" in titles
    without = replace(board(partition), rows=board(partition).rows.assign(macro_f1=float("nan")))
    names = [next(iter(method_tables(Ranking(each)))) for each in (board(partition), without)]
    assert names == ["Macro-F1 and clients", "Clients"]
    gains = ["Clients above local training, %", "Least gain of a client, points"]
    assert [title for title in titles if title in gains] == (gains if partition != "louvain" else [])
    if partition == "louvain":
        return
    shown = {line.cells[0].text: [line.cells[titles.index(title)].text for title in gains] for line in table.lines}
    assert shown["alpha"] == ["75.00", "0.0"]  # a half and all; -0.1 and +0.1
    assert shown["beta"] == ["25.00", "-15.0"]
    assert shown["Local training"] == [ABSENT, ABSENT]


def test_without_local_training_or_with_other_clients_there_is_no_gain() -> None:
    without = {key: values for key, values in SCORES.items() if key[0] != "local"}
    assert client_gains(board("source", without)).isna().all(axis=None)
    other = SCORES | {("alpha", 1): [0.5, 0.9]}
    gains = client_gains(board("source", other)).droplevel("task_label")
    assert gains.loc["alpha"].isna().all() and gains.loc["beta"].notna().all()


TRAINED = '{"local_epochs":3,"rounds":100,"unseen":0.3,"unseen_epochs":5}'
UNSEEN = {  # two of three clients; the mean over them, then over seeds
    ("alpha", 0): [0.5, None, 0.7],
    ("alpha", 1): [None, 0.8, 0.6],
    ("beta", 0): [0.2, None, 0.2],
    ("beta", 1): [None, 0.4, None],  # the third has no test node of its own
}


def unseen_ranking(training: str = TRAINED, metric: str = "accuracy") -> Ranking:
    words = f"{metric}, global model, local test, mean over clients"
    files = []
    for (method, _), values in UNSEEN.items():
        figures = {"score": [0.5, 0.5, 0.5], "unseen": values}
        if method == "alpha":
            figures["unseen_adapted"] = [None if value is None else value / 2 for value in values]
        files.append({"per_client": figures})
    rows = [samples.row("twitch", *key, 0.5, training=training, score_metric=words) for key in UNSEEN]
    return samples.ranking(rows, files=files)


def shown(table) -> dict[str, list[str]]:
    places = [k for k, column in enumerate(table.columns) if column.title.startswith("Unseen")]
    return {line.entrant: [line.cells[k].text for k in places] for line in table.lines}


def test_both_tables_have_the_means_of_unseen_clients() -> None:
    ranking = unseen_ranking()
    expected = {"alpha": ["65.00", "32.50"], "beta": ["30.00", ABSENT]}
    assert shown(ranking_table(ranking)) == shown(task_table(ranking, ranking.board.tasks[0])) == expected
    errors = unseen_ranking(metric="RMSE (lower is better)")
    assert shown(ranking_table(errors)) == {"alpha": ["0.650", "0.325"], "beta": ["0.300", ABSENT]}
    without = unseen_ranking(training='{"local_epochs":3,"rounds":100}')
    assert not [title for title in ranking_table(without).titles if "nseen" in title] and without.unseen.empty
