"""Invalid arguments: each is named in one line, none is ignored, none starts a run."""

from __future__ import annotations

import dataclasses
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
import torch

import fglbench
from fglbench import UserError
from fglbench.benchmark.cli import main
from fglbench.benchmark.engine import TrainConfig
from fglbench.benchmark.engine.backbones import BACKBONES
from fglbench.benchmark.engine.train import train
from fglbench.benchmark.store import Store
from fglbench.benchmark.suites.plugins import load_plugins
from fglbench.benchmark.suites.select import Request, select
from fglbench.benchmark.suites.suite import load_suite
from fglbench.benchmark.suites.tuned import FOLDER
from fglbench.datasets import DATASETS
from fglbench.datasets.spec import DatasetSpec
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--data", "", "-m", "fedavg"], "an argument of --data is empty (a shell variable that is not set?)"),
        (["run", "-m", "fedavg", "-d", " "], "an argument of -d is empty"),
        (["run", "-m", "fedavg", "-d", ","], "no name in ','; give one, or leave the option out"),
        (["run", "--quick", "--results="], "an argument of --results is empty"),
        (["run", "--quick", "--seeds", ""], "an argument of --seeds is empty"),
        (["validate", ""], "an argument is empty"),
        (["compare", "", "fedavg"], "an argument is empty"),
    ],
)
def test_an_empty_argument_is_refused(cli, tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    assert message in cli([*arguments, "--dry-run"] if arguments[0] == "run" else arguments, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"methods": "fedavg"}, r"methods is a list of values, as in methods=\[...\]; got 'fedavg'"),
        ({"settings": {"training.rounds": 2}}, "settings is a list of values"),
        ({"methods": None}, "methods is a list of values"),
        ({"datasets": [""]}, "datasets are texts, got ''"),
        ({"methods": [fglbench.run]}, "methods are texts, got <function"),
        ({"clients": [2.5]}, "clients are whole numbers, got 2.5"),
        ({"clients": [10**20]}, "clients: input should be less than 2147483648, got 1" + 20 * "0"),
        ({"seeds": [-1]}, "a seed is a whole number from 0 to 2147483647, got -1"),
        ({"seeds": 3}, "seeds is a list of values"),
        ({"data": ""}, "data is empty"),
        ({"threads": 0}, "threads is a whole number of at least 1, got 0"),
        ({"threads": 10**6}, "threads is at most 1024, got 1000000"),
        ({"timeout": -1}, "timeout is a number of at least 0, got -1"),
        ({"timeout": float("nan")}, "timeout is a number of at least 0, got nan"),
        ({"jobs": "2"}, "jobs is a whole number of at least 1, got '2'"),
        ({"jobs": 1.5}, "jobs is a whole number of at least 1, got 1.5"),
        ({"memory_limit": float("nan")}, "memory_limit is a number of at least 0.1, got nan"),
        ({"submitter": None}, "the submitter None is no name"),
        ({"backend": "rayy"}, "unknown backend 'rayy'; did you mean 'ray'"),
        ({"device": None}, "takes auto, cpu, cuda"),
        ({"data": 3}, "data is a path, got 3"),
        ({"tuned": 3}, "tuned is a path, got 3"),
        ({"results": ""}, "results is empty"),
        ({"results": "~missing-user/x"}, "the home folder in '~missing-user/x' does not exist"),
        ({"results": "a\0b"}, "results is a path"),
        ({"methods": []}, "methods is empty; give at least one value, or leave it out"),
        ({"seeds": range(0)}, "seeds is empty"),
        ({"seeds": [True]}, "seeds are whole numbers, got True"),
        ({"settings": ["training.rounds=true"]}, "training: rounds: input should be a number, got True"),
        ({"settings": ["hidden=no"]}, "hidden: input should be a number, got False"),
        ({"datasets": ["CSBM"]}, "unknown dataset 'CSBM'; did you mean 'csbm'"),
        ({"observer": object()}, "observer is an fglbench.Observer; <object object"),
        ({"plugins": ["."]}, "plug-in '.' is neither a Python file"),
        ({"quick": "no"}, "quick is True or False, got 'no'"),
        ({"save_models": "x"}, "save_models is True or False, got 'x'"),
    ],
)
def test_the_python_interface_names_a_value_of_another_kind(suite, tmp_path, words, message):
    with pytest.raises(UserError, match=message):
        fglbench.run(**{"suites": [suite], "results": tmp_path / "results", **words})
    assert not list(tmp_path.rglob("*.csv"))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda suite: fglbench.federation("csbm", suite=suite, seed="1"), "seed is a whole number, got '1'"),
        (lambda suite: fglbench.federation("csbm", suite=suite, seed=1.5), "seed is a whole number, got 1.5"),
        (lambda suite: fglbench.federation("csbm", suite=suite, clients=0), "greater than or equal to 1, got 0"),
        (lambda suite: fglbench.federation("csbm", suite=suite, partition=""), "partition is a text that is not empty"),
        (lambda suite: fglbench.federation("csbm", suite=None), "suite is a text that is not empty, got None"),
        (lambda suite: fglbench.evaluate([0], None), "give the predictions, then what `federation` returned"),
        (lambda suite: fglbench.load_results(""), "results is empty"),
        (lambda suite: fglbench.load_results(3), "results is a path, got 3"),
        (lambda suite: fglbench.load_results("results", "quik"), "suite with results 'quik'; did you mean 'quick'?"),
        (lambda suite: fglbench.load_results("results", 3), "suite is a text that is not empty, got 3"),
        (lambda suite: fglbench.show(None), "name is a text that is not empty, got None"),
        (lambda suite: fglbench.list_methods(plugins="x.py"), "plugins is a list of values"),
        (lambda suite: fglbench.compare(None, "fedavg"), "first is a text that is not empty, got None"),
        (lambda suite: fglbench.write_report(3), "results is a path, got 3"),
        (lambda suite: fglbench.load_model("x"), "this is no row of `run` or `load_results`"),
        (lambda suite: fglbench.load_model({"key": "a"}), "with rows loaded without expand=True"),
        (lambda suite: fglbench.load_model(None), "this is no row of `run` or `load_results`"),
    ],
)
def test_other_functions_name_a_value_of_another_kind(suite, call, message):
    with pytest.raises(UserError, match=re.escape(message)):
        call(suite)


def test_a_tilde_in_results_is_the_home_folder(suite, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    rows = fglbench.run(suites=[suite], methods=["majority"], seeds=[0], results="~/r", in_process=True)
    assert len(fglbench.load_results("~/r")) == len(rows) > 0
    assert (tmp_path / "r").is_dir()


def test_whole_numbers_of_numpy_are_whole_numbers(suite, monkeypatch, tmp_path):
    jobs = []
    monkeypatch.setattr("fglbench.benchmark.runner.job.Job.load", lambda job, plan, tell: jobs.append(job) or plan)
    monkeypatch.setattr("fglbench.benchmark.runner.job.Job.run", lambda *_: None)
    fglbench.run(suites=[suite], clients=np.array([3]), seeds=np.arange(2), results=tmp_path)
    assert jobs[0].what.clients == (3,) and jobs[0].what.seeds == (0, 1)
    assert {type(value) for value in (*jobs[0].what.clients, *jobs[0].what.seeds)} == {int}


def test_predictions_of_any_kind_of_array_have_the_same_score(suite):
    clients = fglbench.federation("csbm", suite=suite)
    numbers = torch.rand(60, 2, generator=torch.Generator().manual_seed(0))
    expected = fglbench.evaluate(numbers, clients)
    for predictions in (pd.DataFrame(numbers.numpy()), numbers.to_sparse(), numbers.to_sparse_csr(), numbers.tolist()):
        assert fglbench.evaluate(predictions, clients).score == expected.score


@pytest.mark.parametrize("script", ["script.py", pytest.param("-", marks=pytest.mark.slow)])
def test_a_script_without_a_main_guard_is_named(tmp_path, suite, script):
    call = f"import fglbench\nprint(len(fglbench.run(suites=[{suite!r}], methods=['majority'], seeds=[0], jobs=1, "
    call += f"results={str(tmp_path / 'results')!r})))\n"
    (tmp_path / "script.py").write_text(call)
    pipes = {"capture_output": True, "text": True, "timeout": 120}
    done = subprocess.run([sys.executable, script], input=call, cwd=tmp_path, **pipes)
    if script == "-":  # a script on standard input is not imported again
        assert (done.returncode, done.stdout) == (0, "1\n")
        return
    last = done.stderr.splitlines()[-1]
    assert "each worker imports the script, which calls `run` again; put the calls under `if __name__ ==" in last
    assert done.stderr.count("Traceback") == 1


def test_a_worker_of_a_pool_is_refused(monkeypatch, suite):
    monkeypatch.setattr("fglbench.benchmark.api.current_process", lambda: type("", (), {"daemon": True}))
    with pytest.raises(UserError, match=r"a worker of multiprocessing.Pool may not"):
        fglbench.run(suites=[suite])


def test_tuned_settings_of_a_users_suite_are_next_to_it(suite, tmp_path):
    path = tmp_path / "my-suite.yaml"
    shutil.copy(suite, path)
    assert load_suite(str(path)).tuned_file == tmp_path / "my-suite.tuned.yaml"
    path.write_text(path.read_text() + "tuned: leaderboard\n")
    assert load_suite(str(path)).tuned_file == FOLDER / "leaderboard.yaml"
    assert load_suite("quick").tuned_file == FOLDER / "quick.yaml"


def test_a_file_as_a_folder_is_refused_before_any_run(suite, tmp_path, cli):
    (tmp_path / "file").write_text("")
    assert "no results folder at" in cli(["status", "--results", str(tmp_path / "file")], 2)
    command = ["tune", "-s", suite, "--trials", "1", "--results", str(tmp_path / "results")]
    for out, reason in ((tmp_path / "file" / "x.yaml", "Not a directory|File exists"), (tmp_path, "Is a directory")):
        assert re.search(rf"cannot write '.*': ({reason}); use --out FILE", cli([*command, "--out", str(out)], 2))
    assert not list(tmp_path.rglob("*.csv"))


def test_status_lists_the_suites_of_the_user(suite, tmp_path, cli):
    store = Store(tmp_path)
    for name, cell in select(Request(suites=(suite,))):
        store.append_row(cell.row(name, status="ok", score=0.5, started="2026-01-01T00:00:00Z", environment="0" * 12))
    output = cli(f"status --results {tmp_path}")
    assert [line.split() for line in output.splitlines() if line.startswith("tiny")] == [["tiny", *"000000", "4"]]
    assert "status -s FILE.yaml" in output


def test_status_says_which_methods_of_a_suite_cannot_run(tiny, tmp_path, cli):
    path = tmp_path / "half.yaml"
    path.write_text(tiny.replace("[fedavg, local]", "[{name: fedavg, params: tuned}, local, gcfl]"))
    output = cli(f"status -s {path} --results {tmp_path}")
    assert [line.split() for line in output.splitlines() if line.startswith("half")] == [["half", "2", *"000200"]]
    assert "suite 'half': no tuned settings of fedavg on csbm; `fglbench tune -s half" in output
    assert "suite 'half': gcfl is defined for graph classification" in output


@pytest.mark.parametrize("into", [["--into", "~/made"], ["--into=~/made"]])
def test_a_quoted_home_folder_is_one_in_every_argument(tmp_path, monkeypatch, into, cli):
    for name in ("here", "made"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    cli(["new", "method", "my-own", *into])
    assert len(list((tmp_path / "made").iterdir())) == 1
    assert not list((tmp_path / "here").iterdir())


def test_a_dataset_without_a_task_cannot_be_registered():
    with pytest.raises(ValueError, match="dataset 'no-task': its class has no task"):
        DATASETS.register("no-task")(type("NoTask", (DatasetSpec,), {"__module__": __name__}))


def test_an_error_of_several_fields_does_not_list_them(cli):
    cell = "run -d csbm -m fedavg -p uniform -k 3 --split links --set split.train=0.9 --dry-run"
    assert cli(cell, 2) == "fglbench: split 'links': train + val + test is 1.2; make it 1\n"


def test_phases_without_a_scored_round_are_named():
    class Blind(FedAvg):
        name: ClassVar[str] = "blind"

        def phases(self, config):
            return [dataclasses.replace(phase, scored=False) for phase in super().phases(config)]

    federation = fglbench.federation("csbm", partition="uniform", clients=2)
    with pytest.raises(UserError, match="blind: `phases` has no round that is scored; give one phase scored=True"):
        train(federation, Blind(), [BACKBONES.build("gcn")], TrainConfig(rounds=1), 0)


def _fails(method, given):
    return 1 / 0


@pytest.mark.parametrize(
    ("hook", "answer", "message"),
    [
        ("protocol", lambda method, config: {"rounds": 9}, "`protocol` returns a dict; return the configuration"),
        (
            "protocol",
            lambda method, config: config.model_copy(update={"lr": config.lr / 2}),
            "`protocol` changes its own result again; set values there, do not scale them",
        ),
        ("protocol", _fails, "`protocol` fails with ZeroDivisionError: division by zero"),
        ("architecture", lambda method, backbones: None, "`architecture` returns None, not as many backbones"),
        ("architecture", _fails, "`architecture` fails with ZeroDivisionError"),
    ],
)
def test_an_invalid_hook_of_planning_is_one_line(suite, tmp_path, monkeypatch, hook, answer, message):
    slip = type("Slip", (FedAvg,), {hook: answer, "__module__": __name__})
    monkeypatch.setitem(METHODS._classes, "slip", slip)
    with pytest.raises(UserError, match=re.escape(message)):
        fglbench.run(suites=[suite], methods=["slip"], results=tmp_path, in_process=True)


@pytest.mark.parametrize("value", [print, dict, 3])
def test_only_a_class_of_the_kind_can_be_registered(value):
    with pytest.raises(ValueError, match="method 'slip': register a class of a method, got"):
        METHODS.register("slip")(value)
    assert "slip" not in METHODS.names()


@pytest.mark.usefixtures("registries")
def test_two_files_of_one_name_are_refused(suite, tmp_path, monkeypatch):
    text = Path(suite).read_text()
    module = "import fglbench\nfrom fglbench.methods.fedavg import FedAvg\nfglbench.register('slip')(FedAvg)\n"
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "slips.yaml").write_text(text)
        (tmp_path / folder / "slips.py").write_text(module)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="2 suite files are named 'slips': their rows would be in one folder"):
        select(Request(suites=("a/slips.yaml", "b/slips.yaml")))
    assert select(Request(suites=("a/slips.yaml", "b/../a/slips.yaml")))
    try:
        with pytest.raises(UserError, match="two plug-ins are named slips"):
            load_plugins(["a/slips.py", "a/../a/slips.py", "b/slips.py"])
    finally:
        sys.modules.pop("fglbench_plugin_slips", None)


@pytest.mark.usefixtures("registries")
def test_an_error_in_a_plug_in_is_one_line_and_one_of_the_package_a_traceback(tmp_path, monkeypatch, capsys):
    head = "from fglbench.datasets import PARTITIONS, PartitionSpec\n@PARTITIONS.register('broken')\n"
    body = "class Broken(PartitionSpec):\n    def deal(self, data, clients, rng): 1 / 0\n"
    (tmp_path / "broken.py").write_text(head + body)
    command = ["data", "partition", "csbm", "--plugin", str(tmp_path / "broken.py"), "-p"]
    assert main([*command, "broken"]) == 1
    assert capsys.readouterr().err == "fglbench: ZeroDivisionError: division by zero (broken.py:4)\n"
    monkeypatch.setattr("fglbench.datasets.partitioning.Uniform.deal", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        main([*command, "uniform"])


def test_a_folder_that_was_removed_is_named(tmp_path, monkeypatch, cli):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert "the folder of this command has been removed: change to another" in cli("tune --data g --dry-run", 2)
