"""`--json`: one JSON document on the output, of commands that print text otherwise."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer

from fglbench.benchmark.cli import main
from fglbench.benchmark.cli.app import app
from fglbench.benchmark.cli.common import answer, plain_console
from fglbench.benchmark.suites.select import Request, select
from fglbench.registry import UserError
from fglbench.report.board import Board


def test_check(json_of) -> None:
    document = json_of("check louvain")
    assert document["name"] == "louvain" and document["passed"] is True and len(document["checks"]) >= 2
    assert {each["verdict"] for each in document["checks"]} <= {"ok", "skipped"}


@pytest.mark.usefixtures("registries")
def test_prints_of_a_plug_in_are_no_output(json_of, tmp_path: Path) -> None:
    lines = ["print('hello')", "from fglbench.methods import METHODS", "from fglbench.methods.fedavg import FedAvg"]
    (tmp_path / "talks.py").write_text("\n".join([*lines, "METHODS.register('talks')(type('Talks', (FedAvg,), {}))"]))
    assert json_of(f"show talks --plugin {tmp_path / 'talks.py'}")["name"] == "talks"
    suites = json_of(f"status --plugin {tmp_path / 'talks.py'} --results {tmp_path / 'absent'}")
    assert {entry["cells"] for entry in suites if entry["suite"] == "quick"} == {36}


TALKS = '''
import os
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

def talk():
    print("hello")
    os.write(1, b"hello")

talk()

@METHODS.register("talks")
class Talks(FedAvg):
    """Talks."""

    def aggregate(self, server, models):
        talk()
        return super().aggregate(server, models)
'''


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("command", ["show talks", "check talks --no-real"])
def test_what_a_plug_in_prints_is_no_output(command: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "talks.py").write_text(TALKS)
    assert main([*command.split(), "--json", "--plugin", str(tmp_path / "talks.py")]) == 0
    assert json.loads(capfd.readouterr().out)["name"] == "talks"


def test_data(json_of) -> None:
    listed = {each["name"]: each for each in json_of("data list")["datasets"]}
    assert listed["csbm"]["in_cache"] == "generated" and listed["cora"]["task"] == "node"
    assert json_of("data info csbm --set dataset.nodes=60")["nodes"] == 60
    partition = json_of("data partition csbm -k 3 --set dataset.nodes=60 --partition uniform")
    assert len(partition["clients"]) == 3 and sum(sum(client["labels"]) for client in partition["clients"]) == 60
    assert len(json_of("data partition csbm --set dataset.nodes=60")["clients"]) == 10


def test_reproduce(json_of, tmp_path: Path) -> None:
    assert "fedomd-table4" in {each["table"] for each in json_of("reproduce")}
    arguments = ("reproduce", "fedomd-table4", "--only", "cora", "--dry-run", "--results", str(tmp_path))
    assert json_of(arguments)["counts"]["todo"] > 10


@pytest.mark.usefixtures("in_process")
def test_validate(json_of, tmp_path: Path, cli) -> None:
    arguments = ["run", "--quick", "-m", "local", "-d", "csbm", "--seeds", "1", "-j", "1", "--set", "training.rounds=1"]
    cli([*arguments, "--results", str(tmp_path)])
    file = tmp_path / "custom" / "local.csv"
    file.write_text(file.read_text() + "x,y\n")
    (report,) = json_of(f"validate {tmp_path}", 1)
    assert not report["valid"] and report["rows"] == 1 and any("local.csv:3" in error for error in report["errors"])
    lines = cli(f"validate {tmp_path}", 1)
    assert all(error in lines for error in report["errors"])  # the same problems as without --json


def test_every_command_has_the_option_json() -> None:
    top: Any = typer.main.get_command(app)
    commands = [
        each for command in top.commands.values() for each in getattr(command, "commands", {"": command}).values()
    ]
    assert len(commands) > 25
    assert [
        command.name for command in commands if "--json" not in {text for each in command.params for text in each.opts}
    ] == []


def test_other_text_is_on_the_error_output(capsys: pytest.CaptureFixture[str]) -> None:
    def ends_early() -> None:
        with answer(True) as document:
            typer.echo("one")
            plain_console().print("two")
            document |= {"mean": float("nan"), "where": Path("a"), "of": [1, 2]}
            raise typer.Exit(1)

    with pytest.raises(typer.Exit):
        ends_early()
    out, err = capsys.readouterr()
    assert json.loads(out, parse_constant=pytest.fail) == {"mean": None, "where": "a", "of": [1, 2]}
    assert err == "one\ntwo\n"
    with pytest.raises(UserError), answer(True):
        raise UserError("no such thing")
    assert capsys.readouterr().out == ""
    with answer(False):
        typer.echo("three")
    assert capsys.readouterr().out == "three\n"


@pytest.mark.parametrize("kind", ["method", "partition", "split", "backbone"])
def test_new(kind: str, json_of, tmp_path: Path) -> None:
    document = json_of(["new", kind, f"my-{kind}", "--into", str(tmp_path)])
    assert Path(document["file"]).read_text() and any(step.startswith("fglbench check") for step in document["next"])


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, in_process: None) -> Path:
    """Four rows of the suite `quick`: two methods, one dataset, two seeds."""
    folder = tmp_path_factory.mktemp("rows")
    assert main(f"run --quick -m local,fedavg -d csbm --seeds 2 -j 1 --results {folder}".split()) == 0
    return folder


@pytest.mark.usefixtures("in_process")
def test_rows_to_files(rows: Path, json_of, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    where = "--results", str(rows)
    written = json_of(["export", "rows.csv", *where])
    assert written["rows"] == 4 and Path(written["file"]).is_file()
    about = ["--paper", "unpublished", "--code", "https://example.org/x", "--licence", "MIT", "--hardware", "2 cores"]
    monkeypatch.setattr("fglbench.benchmark.cli.submit.default_base", lambda: None)
    submission = json_of(["submit", "fedavg", *where, *about, "--contact", "a@example.org"], 1)
    assert (
        submission["rows"] == 2 and not submission["valid"] and submission["errors"]
    )  # tests run from a dirty checkout
    (pack,) = json_of(["pack", *where])
    assert (pack["rows"], pack["left"]) == (4, 0)
    report = json_of(["report", *where, "--no-figures"])
    shown = {line["csbm"] for line in report["tables"][0]}
    assert shown == {"fedavg", "local"} and Path(report["page"]).is_file() and report["renewed"]
    assert json_of(["report", "--check", *where, "--no-figures"]) == {"stale": [], "total": report["total"]}
    verification = json_of(f"verify {rows} -m local --sample 1 --no-contract -j 1")
    assert [each["problems"] for each in verification["rows"]] == [[], []] and verification["rows"][0]["ours"] > 0.5


@pytest.mark.usefixtures("in_process")
def test_tune(json_of, tmp_path: Path) -> None:
    arguments = ["tune", "-s", "quick", "-m", "local", "-d", "csbm", "--trials", "2", "--rounds", "3", "-j", "1"]
    arguments += ["--results", str(tmp_path), "--out", str(tmp_path / "chosen.yaml")]
    (plan,) = json_of([*arguments, "--dry-run"])["studies"]
    assert (plan["runs"], plan["trials_per_rung"], plan["rounds_per_rung"]) == (4, [2, 2], [1, 3])
    document = json_of(arguments)
    assert len(document["chosen"]) == 1 and 0 < document["chosen"][0]["val"] <= 1
    assert Path(json_of([*arguments, "--report"])["page"]).is_file()


def test_data_describe_and_fetch(json_of, tmp_path: Path) -> None:
    suite = tmp_path / "small.yaml"
    suite.write_text(
        "description: one cell\ntraining: {rounds: 3}\ncross: {datasets: csbm, partitions: louvain, clients: 3, "
        "methods: local, splits: ratio, backbones: gcn, seeds: 1}\n"
    )
    (description,) = json_of(f"data describe -s {suite}")
    assert description["dataset"] == "csbm" and 0 <= description["homophily"] <= 1
    (dataset,) = json_of("data fetch csbm")
    assert dataset["nodes"] > 0 and dataset["checked"] == "generated, nothing to check"


def test_profile(json_of, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fglbench.benchmark.cli.machine._apart", lambda function, *arguments: function(*arguments))
    document = json_of("profile --case csbm:3 --rounds 2 --threads 1")
    (line,) = document["tables"]["A round"]
    assert document["rounds"] == 2 and line["clients"] == 3 and float(line["round, ms"].split()[0]) > 0


@pytest.mark.parametrize(("suite", "warned"), [("node", True), ("leaderboard", False)])
def test_an_untuned_method_is_warned_about_on_a_board_of_tuned_ones(suite: str, warned: bool) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        select(Request(suites=(suite,), methods=("fedper",), datasets=("cora",)))
    messages = [str(each.message) for each in caught if "runs untuned" in str(each.message)]
    assert bool(messages) == warned
    assert all("suite 'node': fedper runs untuned" in line and "compete FILE" in line for line in messages)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        select(Request(suites=("node",), methods=("fedavg", "local", "majority"), datasets=("cora",)))


def test_an_untuned_method_is_marked_in_the_table() -> None:
    import fglbench
    from fglbench.report.tables import mark

    rows = fglbench.load_results(Path(fglbench.__file__).parent / "results", "node")
    rows = rows[rows["method"].isin(["fedavg", "local", "majority", "moon"])]
    rows.loc[rows["method"] == "moon", "tuning"] = ""
    board = board_of(rows)
    assert [name for name in board.entrants if mark(board, name).startswith(" (untuned)")] == ["moon"]
    rows["tuning"] = ""
    board = board_of(rows)
    assert not any("untuned" in mark(board, name) for name in board.entrants)


def board_of(rows: Any) -> Board:
    from fglbench.benchmark.store.schema import Row
    from fglbench.report.loading import frame

    values = [{name: value for name, value in row.items() if value == value} for row in rows.to_dict("records")]
    return Board.build("node", frame(Row.model_validate(row) for row in values))
