"""Output of the terminal: scores after a run, cost before it, groups of commands, short errors, exports."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import fglbench
from fglbench.benchmark.cli import main, run as run_command
from fglbench.benchmark.cli.app import COMMANDS, app
from fglbench.benchmark.engine.config import TrainConfig
from fglbench.benchmark.runner.job import HOUR, Costs, told, told_runs
from fglbench.benchmark.runner.process import Options
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.provenance import canonical
from fglbench.benchmark.store.row_file import reading
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.suites.cell import Cell, Choice
from fglbench.benchmark.suites.select import Request, select
from fglbench.registry import NEAREST, UserError, did_you_mean

ASKED = ["run", "--quick", "-m", "fedavg,local", "-d", "csbm", "--set", "training.rounds=2", "-j", "1"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, in_process: None) -> tuple[Path, str]:
    """A folder in which a run was started without --results, and its output."""
    folder, output = tmp_path_factory.mktemp("ran"), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(output):
        patch.chdir(folder)
        assert main(ASKED) == 0
    return folder, output.getvalue()


def test_rows_go_to_runs_and_the_table_is_of_them(ran: tuple[Path, str]) -> None:
    folder, output = ran
    rows = fglbench.load_results(folder / "runs")
    assert not (folder / "results").exists() and len(rows) == 4
    scores = rows.pivot(index="seed", columns="method", values="score")
    gap = 100 * (scores["local"] - scores["fedavg"])
    half = 12.706 * gap.std(ddof=1) / np.sqrt(2)  # Student's t of one degree of freedom
    (line,) = [each for each in output.splitlines() if each.startswith("local ")]
    assert f"{100 * scores['local'].mean():.1f} ± {100 * scores['local'].std(ddof=1):.1f}" in line
    assert f"{gap.mean():+.1f} ({gap.mean() - half:+.1f} to {gap.mean() + half:+.1f})" in line
    assert "baseline" in output and "4 runs" in output


def test_a_terminal_without_the_characters_gets_others(ran: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, output = ran
    monkeypatch.chdir(folder)
    terminal = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(["report", "--results", "runs", "--no-figures"]) == 0
    terminal.flush()
    (line,) = [each for each in output.splitlines() if each.startswith("local ")]
    assert line.split("±")[1].split()[0] in terminal.buffer.getvalue().decode().split(" +- ", 1)[1]


def test_several_settings_of_fedavg_are_no_baseline(capsys: pytest.CaptureFixture[str]) -> None:
    (_, cell), *_ = select(Request(quick=True, methods=("fedavg",), datasets=("cora",), seeds=(0,)))
    row = cell.row("quick", status="ok", score=0.5, started="2026", environment="e", upload_bytes=1, download_bytes=1)
    other = row.model_copy(
        update={"training": row.training.replace('"rounds":', '"dp_clip":1.0,"rounds":'), "key": "1" * 16}
    )
    local = row.model_copy(update={"method": "local", "key": "2" * 16})
    run_command.show_scores([row, local])
    assert "baseline" in capsys.readouterr().out
    run_command.show_scores([row, other, local])
    assert "local" in (out := capsys.readouterr().out) and "baseline" not in out and "vs fedavg" not in out


def test_readers_use_runs_if_it_has_rows(
    ran: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli
) -> None:
    monkeypatch.chdir(ran[0])
    assert reading() == reading("custom") == Path("runs") and reading("node") == Path("results")
    assert "baseline" in cli("report --no-figures")
    cli(["export", str(tmp_path / "rows.csv"), "-m", "fedavg"])
    cli(["export", str(tmp_path / "rows.parquet")])
    cli(["export", str(tmp_path / "table.tex")])
    table = pd.read_csv(tmp_path / "rows.csv")
    assert set(table["method"]) == {"fedavg"} and set(table["training.rounds"]) == {2}
    assert len(pd.read_parquet(tmp_path / "rows.parquet")) == 4
    assert "\\toprule" in (tmp_path / "table.tex").read_text()
    assert main(["export", str(tmp_path / "rows.xls")]) == 2
    for option, wrong, kind in (
        ("-m", "fedavg,fedavgg", "method"), ("-d", "coraa", "dataset"), ("-s", "custom,quikc", "suite"),
        ("-k", "11", "number of clients"),
    ):  # fmt: skip
        error = cli(["export", str(tmp_path / "none.csv"), option, wrong], 2)
        assert f"unknown {kind} of the rows '{wrong.split(',')[-1]}'" in error
    assert not (tmp_path / "none.csv").exists()
    monkeypatch.chdir(tmp_path)
    assert reading() == Path("results")


def test_settings_of_several_types_are_texts_in_parquet(tmp_path: Path, cli) -> None:
    store = Store(tmp_path / "rows")
    for name, dataset in (("quick", "cora"), ("custom", "csbm")):
        (_, cell), *_ = select(Request(methods=("fedavg",), datasets=(dataset,), seeds=(0,)))
        row = cell.row(name, status="ok", score=0.5, started="2026-01-01T00:00:00Z", environment="0" * 12)
        store.append_row(row)
    cli(f"export {tmp_path / 'rows.parquet'} --results {tmp_path / 'rows'}")
    assert sorted(pd.read_parquet(tmp_path / "rows.parquet")["dataset.features"]) == ['"raw"', "32"]


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "table.tex"])
def test_an_export_to_a_full_disk_keeps_the_old_file(
    ran: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli, name: str
) -> None:
    (tmp_path / name).write_text("old")

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("fglbench.files.os.fsync", full)
    error = cli(["export", str(tmp_path / name), "--results", str(ran[0] / "runs")], 2)
    assert error == f"fglbench: cannot write '{tmp_path / name}': No space left on device\n"
    assert (tmp_path / name).read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_the_readme_next_to_runs_is_unchanged(ran: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, cli) -> None:
    monkeypatch.chdir(ran[0])
    text = "<!-- leaderboard:start -->\nas it was\n<!-- leaderboard:end -->\n"
    Path("README.md").write_text(text)
    cli("report --no-figures")
    assert Path("README.md").read_text() == text


def test_cost_uses_published_timings_if_rows_are_missing() -> None:
    cells = [cell for _, cell in select(Request(suites=("quick",), methods=("fedavg",), datasets=("cora",)))]
    line, hours = told_runs(cells, [], Options(jobs=2))
    assert line.startswith(f"{len(cells)} runs, about") and "on 2 workers (by published timings)" in line
    twice, more = told_runs([*cells, *cells], [], Options(jobs=2))
    assert more == pytest.approx(2 * hours) and hours > 0 and twice != line
    unknown = [cell for _, cell in select(Request(methods=("fedavg",), datasets=("ogbn-arxiv",)))]
    assert "not known: no timing of dataset ogbn-arxiv" in told_runs(unknown, [], Options())[0]
    short = select(Request(methods=("fedavg",), datasets=("csbm",), seeds=(0,), settings=("training.rounds=1",)))
    line, _ = told_runs([cell for _, cell in short], [], Options())
    assert line == "1 run, about 1 s on 1 worker (by published timings)"


def test_more_than_an_hour_is_asked_about_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    questions: list[str] = []
    monkeypatch.setattr(run_command.typer, "confirm", lambda text, default: questions.append(text))
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    run_command.ask(5.0, yes=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    run_command.ask(0.5, yes=False)
    run_command.ask(5.0, yes=True)
    assert questions == []
    with pytest.raises(UserError, match="nothing was run"):
        run_command.ask(5.0, yes=False)
    assert len(questions) == 1


@pytest.mark.parametrize("group", ["new", "data"])
def test_a_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str], group: str) -> None:
    assert main([group]) == 0
    shown = capsys.readouterr()
    assert f"Usage: fglbench {group}" in shown.out.splitlines()[0] and not shown.err


def test_help_is_grouped_and_short(cli) -> None:
    import typer

    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert commands <= COMMANDS.keys() and max(len(words) for _, words, _ in COMMANDS.values()) <= 50
    output = cli("-h")
    assert all(f"{group}:" in output for group, _, _ in COMMANDS.values())
    output = cli("run -h")
    assert all(f"{panel}:" in output for panel in ("What", "How", "Where"))


def test_an_error_names_the_nearest_and_not_all() -> None:
    names = [f"method{k}" for k in range(60)]
    message = str(did_you_mean("metod1", names, "method"))
    assert "did you mean 'method1'" in message and "nearest of 60" in message and message.count("method") == NEAREST + 2


METHODS, DATASETS = {"local": 1.0, "fedavg": 2.0, "fgssl": 10.0}, {"cora": 0.01, "pubmed": 0.2}


def make_row(method: str, dataset: str, rounds: int = 50, cap: int = 100, **more: object) -> Row:
    """A row with seconds per round equal to the product of the method's and the dataset's factor."""
    fields = {
        "method": method,
        "dataset": dataset,
        "backbone": "gcn",
        "training": canonical({"rounds": cap, "patience": 10, "local_epochs": 3}),
        "status": "ok",
        "rounds": rounds,
        "cpu_seconds": METHODS[method] * DATASETS[dataset] * rounds,
    }
    return Row.model_construct(**fields | more)


def cell(method: str, dataset: str, cap: int = 100) -> Cell:
    training = TrainConfig(rounds=cap, patience=10, local_epochs=3)
    parts = {"partition": Choice(name="louvain"), "clients": 3, "split": Choice(name="ratio"), "seed": 0}
    names = {"dataset": Choice(name=dataset), "method": Choice(name=method), "backbones": (Choice(name="gcn"),)}
    return Cell(**parts, **names, training=training)


PAIRS = list(itertools.product(METHODS, DATASETS))


def test_a_pair_without_rows_is_estimated_from_the_others() -> None:
    costs = Costs(make_row(*pair) for pair in PAIRS if pair != ("fgssl", "pubmed"))
    assert costs.seconds(cell("fgssl", "pubmed")) == pytest.approx(10 * 0.2 * 50)


def test_rows_of_the_same_method_and_dataset_take_precedence() -> None:
    rows = [make_row(*pair) for pair in PAIRS if pair != ("fgssl", "cora")]
    assert Costs([*rows, make_row("fgssl", "cora", cpu_seconds=7.0)]).seconds(cell("fgssl", "cora")) == pytest.approx(
        7.0
    )


def test_the_rounds_are_the_medians_of_rows_with_the_same_end() -> None:
    rows = [make_row("local", "cora", rounds) for rounds in (20, 30, 90)] + [make_row("fedavg", "cora", 60)]
    costs = Costs(rows)
    assert costs.rounds(cell("local", "pubmed")) == 30
    assert costs.rounds(cell("fgssl", "cora")) == 45  # of all four
    assert costs.rounds(cell("local", "cora", cap=400)) == 400
    one = Costs([*rows, make_row("fgssl", "cora", 1), make_row("fgssl", "pubmed", 1)])
    assert one.rounds(cell("fgssl", "citeseer", cap=400)) == 1  # all its rows have one round


def test_older_rows_give_wall_seconds_and_failed_ones_nothing() -> None:
    rows = [make_row("local", "cora", cpu_seconds=None, train_seconds=5.0), make_row("fedavg", "cora", status="failed")]
    assert Costs(rows).seconds(cell("local", "cora")) == pytest.approx(5.0)
    assert Costs(rows).seconds(cell("fedavg", "cora")) == "method fedavg"


def test_a_sum_names_unknown_parts() -> None:
    costs = Costs([make_row("local", "cora", cpu_seconds=HOUR / 2)])
    estimate = costs.of([(cell("local", "cora"), 3), (cell("local", "pubmed"), 2), (cell("fgssl", "cora"), 1)])
    assert estimate.hours == pytest.approx(1.5)
    assert estimate.unknown == {"dataset pubmed": 2, "method fgssl": 1}
    assert told(estimate).endswith("3 runs cannot be judged: no row of dataset pubmed, method fgssl")
    assert Costs([]).of([(cell("local", "cora"), 1)]).unknown == {"method local": 1}
