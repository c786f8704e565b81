"""Settings of the entries; entries that are not ranked for them; entries below a reference that learns nothing."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

from fglbench.report import build, tables
from fglbench.report.provenance import training_settings
from fglbench.report.ranking import Ranking
from fglbench.report.table import to_markdown

BUDGET = {"optimiser_steps": 300, "model_steps": 300, "budget_steps": 300}


def line(board, name: str) -> dict[str, str]:
    sheet = training_settings(board)
    (found,) = [own for own in sheet.lines if own.entrant == name]
    texts = ["".join(span.text for span in cell.spans) for cell in found.cells]
    return dict(zip(sheet.titles, texts, strict=True))


def test_steps_rounds_and_networks_by_hand(made: SimpleNamespace) -> None:
    rows = [made.row("cora", name, s, 0.5, **BUDGET) for name in ("fedavg", "local") for s in (0, 1)]
    double = BUDGET | {"optimiser_steps": 600, "backbone_params": '{"hidden":64,"linear_head":true}'}
    rows += [made.row("cora", "fml", 0, 0.5, best_round=99, **double), made.row("cora", "fml", 1, 0.5, **double)]
    board = made.board(rows)
    assert line(board, "fedavg") == {
        "Method": "FedAvg", "Family": "shared model", "Settings": "untuned", "Rounds": "100",
        "Optimiser steps": "300 (1.0x)", "Still rising": "0/2", "Network": "gcn",
    }  # fmt: skip
    assert line(board, "fml")["Optimiser steps"] == "600 (2.0x)"
    assert line(board, "fml")["Still rising"] == "1/2"
    assert line(board, "fml")["Network"] == "gcn"  # which other rows do not have as a parameter at all
    assert board.over_budget == {}


def test_who_took_too_many_steps_is_shown_and_not_ranked(tmp_path: Path, made: SimpleNamespace) -> None:
    rows = [made.row("cora", name, s, 0.5, **BUDGET) for name in ("a", "b") for s in (0, 1)]
    rows += [made.row("cora", "greedy", s, 0.9, **BUDGET | {"model_steps": 301}) for s in (0, 1)]
    board = made.board(rows)
    assert set(board.over_budget) == {"greedy"}
    assert line(board, "greedy")["Settings"] == "untuned; over budget: 301 steps of a model, 300 given"
    assert board.ranked == ["a", "b"]
    assert board.status("greedy") == "over budget"
    ranking = Ranking(board)
    assert ranking.leaders["cora"][0] == {"a", "b"}
    text = to_markdown(tables.ranking_table(ranking)).replace(" ", "")
    assert "|*greedy*|overbudget|90.00|" in text
    build.write(build.make(made.write(tmp_path / "results", rows), None, figures=False))


def test_below_the_majority_is_said(made: SimpleNamespace) -> None:
    rows = [made.row("cora", "majority", s, 0.4, reference=True) for s in (0, 1)]
    rows += [made.row("cora", name, s, score) for name, score in (("good", 0.5), ("bad", 0.3)) for s in (0, 1)]
    ranking = Ranking(made.board(rows))
    text = {line.entrant: line.cells[1].spans[0].text for line in tables.per_dataset_table(ranking).lines}
    assert text == {"good": "50.00 ± 0.00", "bad": "30.00 ± 0.00 ▽", "majority": "40.00 ± 0.00"}
    assert "▽: below a reference that learns nothing" in tables.legend(ranking.board)
    assert "▽" not in tables.legend(made.board(made.demo()))


def test_a_tuned_method_is_one_entrant_whatever_its_settings(made: SimpleNamespace) -> None:
    rows = [made.row("cora", "fedprox", 0, 0.5, method_params='{"mu":1.0}', training='{"lr":0.1,"rounds":100}')]
    rows += [made.row("wiki", "fedprox", 0, 0.5, method_params='{"mu":0.1}', training='{"lr":0.5,"rounds":100}')]
    assert made.board(rows).entrants == ["fedprox"]


def test_tuning_is_said_with_its_trials(made: SimpleNamespace) -> None:
    told = '{"rounds":100,"seeds":[100],"study":"x","trials":12}'
    rows = [made.row("cora", name, s, 0.5, tuning=told) for name in "ab" for s in (0, 1)]
    board = made.board([*rows, made.row("wiki", "a", 0, 0.5)])
    assert line(board, "b")["Settings"] == "tuned, 12 trials"
    assert line(board, "a (tuned)")["Settings"] == "tuned, 12 trials"
    assert line(board, "a")["Settings"] == "untuned"
