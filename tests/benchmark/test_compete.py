"""`fglbench compete`: the place against a calculation by hand, and one run from a file to a place."""

from __future__ import annotations

import itertools
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from fglbench.benchmark import compete
from fglbench.benchmark.cli import compete as cli_compete
from fglbench.benchmark.cli.compete import _answer, _method_of
from fglbench.benchmark.cli.new_and_check import METHODS_FOLDER
from fglbench.benchmark.compete import ordinal, standing_of
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites import suite as suites
from fglbench.benchmark.suites.catalogue import BOARDS, PublishedTask, published_tasks
from fglbench.registry import UserError

METHOD = '''
import fglbench
from fglbench.methods.fedavg import FedAvg


@fglbench.register("{name}")
class Mine(FedAvg):
    """FedAvg under another name. Messages as FedAvg."""
'''


def test_the_place_follows_mean_ranks_over_datasets() -> None:
    table = pd.DataFrame(
        {"mine": [0.9, 0.8, 0.7], "a": [0.8, 0.9, 0.6], "b": [0.95, 0.7, 0.65], "c": [0.1, 0.2, 0.3]},
        index=["x", "y", "z"],
    )  # ranks of mine: 2, 2, 1; a: 3, 1, 3; b: 1, 3, 2; c: 4, 4, 4
    standing = standing_of(table, "mine")
    assert (standing.rank, standing.methods) == (1, 3) and standing.low <= 1 <= standing.high <= 3
    assert standing.against["c"].mean == pytest.approx(np.mean([0.8, 0.6, 0.4]))
    assert standing_of(table, "c").rank == standing_of(table, "c").low == standing_of(table, "c").high == 4
    assert standing_of(table, "b").rank == standing_of(table.iloc[:, ::-1], "b").rank
    alone = standing_of(table.iloc[:1], "mine")
    assert (alone.rank, alone.low, alone.high) == (2, 2, 2) and "interval" not in str(alone)
    assert "you would rank 1st (95% interval" in str(standing) and "of 4 on 3 datasets" in str(standing)


def test_the_interval_covers_all_resamples_of_two_datasets() -> None:
    table = pd.DataFrame({"mine": [0.9, 0.1], "a": [0.8, 0.8], "b": [0.7, 0.7]}, index=["x", "y"])
    standing = standing_of(
        table, "mine"
    )  # first on x, last on y, even on both (ranks 1 and 3 against 2 and 1, 3 and 2)
    assert (standing.low, standing.high) == (1, 3)


def test_the_interval_is_wide_for_few_datasets() -> None:
    """First on five of six: last in 0.9% of the resamples, between the tail of 2.5% and the expanded one."""
    table = pd.DataFrame({"mine": [0.9] * 5 + [0.1], "a": [0.5] * 6}, index=list("uvwxyz"))
    assert (standing_of(table, "mine").low, standing_of(table, "mine").high) == (1, 2)


def test_every_published_method_has_a_place_between_first_and_last() -> None:
    lines = [
        {**{n: s["score"] for n, s in t.methods.items()}, "dataset": t.dataset} for t in published_tasks(BOARDS[0])
    ]
    table = pd.DataFrame(lines).groupby("dataset").mean()
    means = table.rank(axis=1, ascending=False).mean().sort_values()
    assert standing_of(table, means.index[0]).rank == 1
    assert 1 < standing_of(table, means.index[len(means) // 2]).rank <= len(means)


def test_ordinals() -> None:
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 22)] == ["1st", "2nd", "3rd", "4th", "11th", "22nd"]


@pytest.mark.usefixtures("registries", "in_process")
def test_one_command_from_a_file_to_a_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(METHOD.format(name="my-compete"))
    scores = {"fedavg": 0.0, "local": 0.01, "fedprox": 1.0}
    known = PublishedTask(
        "node-3", "csbm", "louvain", 10, "accuracy", {}, {name: {"score": score} for name, score in scores.items()}
    )
    for module in (compete, cli_compete):
        monkeypatch.setattr(module, "published_tasks", lambda suite: [known])
    arguments = ["compete", "mine.py", "-d", "csbm", "--trials", "2", "--rounds", "3", "--seeds", "2", "-j", "1"]
    assert "unknown dataset of the board node-3 'pubmed' (known: csbm)" in cli("compete mine.py -d pubmed", 2)
    assert "1 study (" in cli([*arguments, "--dry-run"]) and not Path("runs").exists()
    output = cli(arguments)
    assert "passes the contract" in output and "my-compete: you would rank 2nd of 4 on 1 dataset" in output
    assert "preview" in output and "against fedavg: +" in output
    assert Path("runs/compete-my-compete/my-compete.tuned.yaml").is_file()
    monkeypatch.setattr("fglbench.benchmark.cli.new_and_check.check", lambda *_, **__: 0)  # already passed
    again = cli(arguments)
    assert "you would rank 2nd" in again and "[1/" not in again  # nothing ran again


@pytest.mark.usefixtures("registries")
def test_seeds_of_the_tuning_are_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("seeds.py").write_text(METHOD.format(name="my-seeds"))
    arguments = ["compete", "seeds.py", "-d", "cora", "--trials", "2", "--rounds", "3", "--seeds", "100-101"]
    assert "chosen on seed 100, so it cannot be scored" in cli([*arguments, "--dry-run"], 2)


@pytest.mark.usefixtures("registries")
def test_a_signal_during_the_check_ends_as_ctrl_c_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli) -> None:
    def killed(*_: object, **__: object) -> int:
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # it would end the tests
        os.kill(os.getpid(), signal.SIGTERM)
        return 0

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fglbench.benchmark.cli.new_and_check.check", killed)
    Path("stopped.py").write_text(METHOD.format(name="my-stopped"))
    arguments = ["compete", "stopped.py", "-d", "cora", "--trials", "2", "--rounds", "3", "--seeds", "2", "-y"]
    cli(arguments, 130)


def test_a_dataset_with_a_run_without_score_gives_no_rank(capsys: pytest.CaptureFixture[str]) -> None:
    tasks = [task for task in published_tasks(BOARDS[0]) if task.dataset in ("cora", "citeseer", "acm")]
    rows, cells = [], []
    for task, seed in itertools.product(tasks, (0, 1)):
        failed = task.dataset == "citeseer" and seed == 1
        scored = {"status": "failed", "error": "loss is nan"} if failed else {"status": "ok", "score": 0.5}
        place = {"dataset": task.dataset, "partition": task.partition, "clients": task.clients}
        cells.append(SimpleNamespace(dataset=SimpleNamespace(name=task.dataset), seed=seed))
        if task.dataset != "acm":  # its tuning failed
            rows.append(SimpleNamespace(method="mine", seed=seed, **place, **({"score": None, "error": ""} | scored)))
    said: dict[str, Any] = {}
    assert not _answer("mine", cells, rows, True, said)
    assert list(said["datasets"]) == ["cora"]
    assert said["missing"] == {
        "citeseer": "1 of 2 runs without a score (loss is nan)",
        "acm": "2 of 2 runs without a score (all trials of the tuning failed)",
    }
    assert "without a rank: acm: 2 of 2 runs" in capsys.readouterr().out
    cora = [cell for cell in cells if cell.dataset.name == "cora"]
    assert _answer("mine", cora, rows, True, said) and said["missing"] == {}
    with pytest.raises(UserError, match="no dataset of the board has a score of every run: acm"):
        _answer("mine", cells, [row for row in rows if row.dataset == "citeseer"], True, said)


@pytest.mark.usefixtures("registries", "in_process")
def test_one_command_packs_rows_of_the_board(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny: str, cli, json_of
) -> None:
    (tmp_path / "boards").mkdir()
    (tmp_path / "boards" / "tiny.yaml").write_text(f"{tiny}\nleaderboard: true\ntuned: none\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(suites, "FOLDER", tmp_path / "boards")
    monkeypatch.setattr("fglbench.benchmark.cli.compete.BOARD", "tiny")
    monkeypatch.setattr("fglbench.benchmark.cli.new_and_check.check", lambda *_, **__: 0)  # checked in the test above
    monkeypatch.setattr("fglbench.benchmark.store.provenance.git_state", lambda *_: ("a" * 40, False))
    known = PublishedTask(
        "tiny", "csbm", "uniform", 3, "accuracy", {}, {"fedavg": {"score": 0.4}, "local": {"score": 0.3}}
    )
    monkeypatch.setattr(compete, "published_tasks", lambda suite: [known])
    monkeypatch.setattr("fglbench.benchmark.cli.compete.published_tasks", lambda suite: [known])
    Path("mine.py").write_text(METHOD.format(name="my-packed"))
    about = {"paper": "unpublished", "code": "https://example.org/x", "licence": "MIT", "hardware": "2 cores"}
    Path("meta.json").write_text(json.dumps(about))
    arguments = ["compete", "mine.py", "-j", "1", "--yes", "--meta", "meta.json"]
    assert "the metadata lack contact" in cli(arguments, 2) and not Path("runs").exists()  # before anything runs
    Path("meta.json").write_text(json.dumps({**about, "contact": "me@example.org"}))
    assert "leave out --quick" in cli([*arguments, "--quick"], 2)
    document = json_of(arguments)
    assert (document["method"], document["methods"], document["datasets"]) == ("my-packed", 2, ["csbm"])
    assert document["submission"]["valid"] and document["submission"]["rows"] == 2
    place = Path("runs/compete-my-packed/my-packed-submission")
    assert sorted(path.name for path in place.iterdir()) == ["environments", "submission.yaml", "tiny", "tuned.yaml"]
    assert all('"study":"tiny/my-packed/csbm' in row.tuning for row in Store(place).rows("tiny"))
    cli(f"validate {place}")


def test_a_file_of_the_package_is_no_plugin() -> None:
    assert _method_of(METHODS_FOLDER / "fedprox.py", None) == ("fedprox", ())
    assert _method_of(METHODS_FOLDER / "fedsage" / "fedsageplus.py", "fedsage+") == ("fedsage+", ())
    with pytest.raises(UserError, match="registers no method"):
        _method_of(METHODS_FOLDER / "parts" / "dual.py", None)


@pytest.mark.usefixtures("registries")
def test_a_file_without_a_method_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli) -> None:
    monkeypatch.chdir(tmp_path)
    Path("none.py").write_text("x = 1\n")
    assert "registers nothing: write @fglbench.register" in cli("compete none.py", 2)
    assert "no file 'nowhere.py'" in cli("compete nowhere.py", 2)
