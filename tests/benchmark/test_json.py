"""`--json`: one JSON document on the output, of commands that print text otherwise."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.suites.select import Request, select
from fglbench.report.board import Board


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_check(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "check", "louvain")
    assert found["name"] == "louvain" and found["passed"] is True and len(found["checks"]) >= 2
    assert {each["verdict"] for each in found["checks"]} <= {"ok", "skipped"}


def test_data(capsys: pytest.CaptureFixture[str]) -> None:
    listed = {each["name"]: each for each in told(capsys, "data", "list")["datasets"]}
    assert listed["csbm"]["in_cache"] == "generated" and listed["cora"]["task"] == "node"
    assert told(capsys, "data", "info", "csbm", "--set", "dataset.nodes=60")["nodes"] == 60
    cut = told(capsys, "data", "partition", "csbm", "-k", "3", "--set", "dataset.nodes=60", "--partition", "uniform")
    assert len(cut["clients"]) == 3 and sum(sum(own["labels"]) for own in cut["clients"]) == 60


def test_reproduce(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "fedomd-table4" in {each["table"] for each in told(capsys, "reproduce")}
    asked = ("reproduce", "fedomd-table4", "--only", "cora", "--dry-run", "--results", str(tmp_path))
    assert told(capsys, *asked)["counts"]["todo"] > 10


def test_validate(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ["run", "--quick", "-m", "local", "-d", "csbm", "--seeds", "1", "-j", "1", "--set", "training.rounds=1"]
    assert main([*asked, "--results", str(tmp_path)]) == 0
    row = tmp_path / "custom" / "local.csv"
    row.write_text(row.read_text() + "x,y\n")
    capsys.readouterr()
    (found,) = told(capsys, "validate", str(tmp_path), code=1)
    assert not found["valid"] and found["rows"] == 1 and any("local.csv:3" in error for error in found["errors"])
    assert main(["validate", str(tmp_path)]) == 1
    lines = capsys.readouterr().out
    assert all(error in lines for error in found["errors"])  # the same problems as in words


@pytest.mark.parametrize(("suite", "warned"), [("node", True), ("leaderboard", False)])
def test_an_untuned_method_is_warned_about_on_a_board_of_tuned_ones(suite: str, warned: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        select(Request(suites=(suite,), methods=("fedper",), datasets=("cora",)))
    found = [str(each.message) for each in caught if "runs untuned" in str(each.message)]
    assert bool(found) == warned
    assert all("suite 'node': fedper runs untuned" in line and "compete FILE" in line for line in found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        select(Request(suites=("node",), methods=("fedavg", "local", "majority"), datasets=("cora",)))


def test_an_untuned_method_is_marked_in_the_table() -> None:
    import fglbench
    from fglbench.report.tables import mark

    rows = fglbench.load_results(Path(fglbench.__file__).parent / "results")
    rows = rows[(rows["suite"] == "node") & rows["method"].isin(["fedavg", "local", "majority", "moon"])]
    rows.loc[rows["method"] == "moon", "tuning"] = ""
    board = board_of(rows)
    assert board.untuned == {"moon"}
    assert mark(board, "moon").startswith(" (untuned)") and "untuned" not in mark(board, "fedavg") + mark(
        board, "majority"
    )
    rows["tuning"] = ""
    assert board_of(rows).untuned == set()  # a board where nothing is tuned


def board_of(rows: Any) -> Board:
    from fglbench.benchmark.store.schema import Row
    from fglbench.report.loading import frame

    given = [{name: value for name, value in own.items() if value == value} for own in rows.to_dict("records")]
    return Board.build("node", frame(Row.model_validate(own) for own in given))
