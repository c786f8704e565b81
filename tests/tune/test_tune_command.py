"""`fglbench tune`: its files, and resuming after a stop."""

from __future__ import annotations

import csv
import io
import shutil
import sys
from types import SimpleNamespace

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend
from PIL import Image

from fglbench.benchmark.cli import main
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.tuned import read_tuned
from fglbench.benchmark.tune import account


def words(suite, odd, folder, *more):
    where = ["--results", str(folder), "--out", str(folder / "chosen.yaml"), "--plugin", odd]
    return ["tune", "-s", suite, "--trials", "4", "-j", "2", *where, *more]


@pytest.fixture
def tune(cli, suite, odd):
    """Tunes the tiny suite in a folder; returns the output."""
    return lambda folder, *more, code=0: cli(words(suite, odd, folder, *more), code)


pytestmark = pytest.mark.usefixtures("in_process")


@pytest.fixture(scope="module")
def done(suite, odd, in_process, tmp_path_factory):
    """Two methods tuned, one of which always fails."""
    folder = tmp_path_factory.mktemp("done")
    return folder, main(words(suite, odd, folder, "-m", "fedavg,t-broken"))


def test_every_trial_is_a_row_and_the_chosen_setting_a_file(done) -> None:
    folder, code = done
    assert code == 1  # t-broken has no setting
    rows = Store(folder / "tuning").rows("tiny")
    assert sorted(row.status for row in rows) == ["failed"] * 4 + ["ok"] * 6
    assert {row.tuning for row in rows} == {'{"trial":true}'}
    ok = [row for row in rows if row.status == "ok"]
    assert sorted(row.rounds for row in ok) == [3, 3, 3, 3, 9, 9]
    table = read_tuned(folder / "chosen.yaml")
    assert list(table) == ["fedavg"] and list(table["fedavg"]) == ["csbm"]
    chosen = table["fedavg"]["csbm"]
    assert chosen.val == max(row.val for row in ok if row.rounds == 9)
    assert (chosen.trials, chosen.seeds, chosen.rungs, chosen.rounds) == (4, [100], [3, 9], 30)


def test_optuna_can_read_the_study(done) -> None:
    folder, _ = done
    path = folder / "tuning" / ".studies" / "tiny" / "fedavg.csbm.log"
    storage = optuna.storages.JournalStorage(JournalFileBackend(str(path)))
    (name,) = optuna.get_all_study_names(storage)
    study = optuna.load_study(study_name=name, storage=storage)
    chosen = read_tuned(folder / "chosen.yaml")["fedavg"]["csbm"]
    assert (name, study.best_value) == (chosen.study, chosen.val)
    states = [trial.state.name for trial in study.trials if trial.state.name != "FAIL"]
    assert sorted(states) == ["COMPLETE", "COMPLETE", "PRUNED", "PRUNED"]


def test_an_interrupted_study_resumes_to_the_same_choice(tune, done, tmp_path) -> None:
    folder, _ = done
    shutil.copytree(folder / "tuning" / "tiny", tmp_path / "tuning" / "tiny")
    path = tmp_path / "tuning" / "tiny" / "fedavg.csv"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:4]) + lines[4][:100])  # stopped, and with a torn line, in the first rung
    tune(tmp_path, "-m", "fedavg")
    assert path.read_bytes().startswith(b"".join(lines[:4]))
    assert read_tuned(tmp_path / "chosen.yaml") == {"fedavg": read_tuned(folder / "chosen.yaml")["fedavg"]}
    again = path.read_bytes()
    tune(tmp_path, "-m", "fedavg")
    assert path.read_bytes() == again  # nothing is left to run


def test_the_report_has_the_numbers_of_the_rows(tune, done) -> None:
    folder, _ = done
    tune(folder, "--report")
    page = " ".join((folder / "tuning" / "tiny" / "README.md").read_text().split())
    rows = [row for row in Store(folder / "tuning").rows("tiny") if row.status == "ok"]
    first = sorted(row.val for row in rows if row.rounds == 3)
    least, median, most = (f"{100 * v:.1f}" for v in (first[0], (first[1] + first[2]) / 2, first[-1]))
    chosen = read_tuned(folder / "chosen.yaml")["fedavg"]["csbm"]
    assert f"| {least} / {median} / {most} |" in page
    assert f"{100 * chosen.default:.2f} |" in page and f"{100 * chosen.val:.2f} |" in page
    assert "| fedavg | 1 | 4 | 30 | 30 |" in page
    picture = (folder / "tuning" / "tiny" / "tuning.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) < 150_000
    tune(folder, "--report")
    assert (folder / "tuning" / "tiny" / "tuning.png").read_bytes() == picture


def test_the_figure_of_many_datasets_is_folded() -> None:
    """Fourteen datasets are five lines of three."""
    named = SimpleNamespace
    trial = named(values=[0.5, 0.6])
    studies = [
        named(cell=named(dataset=named(name=f"d{i}"), method=named(name="fedavg")), trials=[trial] * 2, rungs=[3, 9])
        for i in range(14)
    ]
    width, height = Image.open(io.BytesIO(account.picture(studies))).size
    assert height < 2000 and width > 2 * height


def test_errors_are_tuned_to_the_lowest(tune, tmp_path) -> None:
    wanted = ("-m", "fedavg", "-d", "t-numbers")
    output = tune(tmp_path, *wanted)
    rows = [row for row in Store(tmp_path / "tuning").rows("tiny") if row.rounds == 9]
    chosen = read_tuned(tmp_path / "chosen.yaml")["fedavg"]["t-numbers"]
    assert -chosen.val == min(row.val for row in rows) > 1
    assert f"validation {-chosen.val:.4f} " in output
    tune(tmp_path, *wanted, "--report")
    page = (tmp_path / "tuning" / "tiny" / "README.md").read_text()
    assert f"{-chosen.default:.3f} |" in page and f"{chosen.val - chosen.default:+.2f} |" in page


def test_there_is_no_report_without_a_finished_study(tune, tmp_path) -> None:
    assert "no finished study of suite" in tune(tmp_path, "--report", code=2)


def test_a_dry_run_gives_runs_and_rounds(tune, tmp_path) -> None:
    output = tune(tmp_path, "--dry-run")
    assert "2 studies: 12 runs, 60 rounds" in output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--trials", "0"], "greater than or equal to 1"),
        (["--rounds", "0"], "greater than or equal to 1"),
        (["--seeds", "100,x"], "--seeds"),
        (["--seeds", "0"], "suite 'tiny' scores it"),
        (["--seeds", "50"], "seeds below 100 are for scores"),
        (["-m", "fedavgg"], "did you mean 'fedavg'"),
        (["-d", "tu:ENZYMES", "-m", "fclg"], "fclg is defined for sets of graphs, not for graph classification"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tune, tmp_path, more, message) -> None:
    output = tune(tmp_path, *more, code=2).strip()
    assert message in output and "\n" not in output
    assert not list(tmp_path.iterdir())


def test_a_results_folder_of_trials_is_valid_except_for_its_commits(done) -> None:
    from fglbench.benchmark.submission.validate import validate

    folder, _ = done
    report = validate(folder / "tuning", "tuning")
    # About a changed checkout, a copy without history, and the plug-in.
    known = ("uncommitted changes", "is no git checkout", "is unknown, so")
    assert not [str(finding) for finding in report.findings.entries if not any(part in str(finding) for part in known)]
    assert report.rows == 10


def test_without_optuna_the_command_to_install_is_named(tune, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert tune(tmp_path, code=2).strip() == "fglbench: tune needs Optuna: pip install 'fglbench[tune]'"


def test_a_dry_run_gives_the_cost_from_earlier_trials(tune, done) -> None:
    folder, _ = done
    assert "about 0.1 core-minutes, judged by the rows here" in tune(folder, "--dry-run")


@pytest.mark.parametrize(
    ("gone", "more", "left"),
    [
        ([], ["-m", "fedavg"], "left: 0 studies, 0 runs"),
        ([], ["-m", "fedavg,t-broken"], "left: 0 studies, 0 runs"),  # a failure is a row
        ([], ["-m", "fedavg,t-broken", "--rerun", "failed"], "left: 1 study, 6 runs"),
        ([9, 9], ["-m", "fedavg"], "left: 1 study, 2 runs"),
        ([9], ["-m", "fedavg"], "left: 1 study, 1 runs"),
        ([3], ["-m", "fedavg"], "left: 1 study, 3 runs"),  # the rungs above it depend on it
        ([], ["-m", "fedavg,local"], "left: 1 study, 6 runs"),
    ],
)
def test_a_dry_run_counts_the_remaining_runs(tune, done, tmp_path, gone, more, left) -> None:
    shutil.copytree(done[0] / "tuning", tmp_path / "tuning")
    path = tmp_path / "tuning" / "tiny" / "fedavg.csv"
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    for rounds in gone:
        rows.remove(next(row for row in rows if row[head.index("rounds")] == str(rounds)))
    with path.open("w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])
    assert left in tune(tmp_path, "--dry-run", *more)
