"""`fglbench new method` writes a file that passes `fglbench check`; `check` names the problems of others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from fglbench.benchmark.cli import main, new_and_check
from fglbench.benchmark.cli.new_and_check import verdicts_on
from fglbench.benchmark.contract import method_checks, part_checks, recording, trial
from fglbench.benchmark.contract.trial import Trial, trials
from fglbench.benchmark.suites.plugins import load_plugins
from fglbench.datasets.csbm import CSBM
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg, Global
from fglbench.registry import UserError

from ..sampled import sampled_trials


@pytest.mark.usefixtures("registries")
def test_the_torch_template_passes_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_plugins([str(new_and_check.create("method", "my-torch", tmp_path, torch=True))])
    method = METHODS.build("my-torch")
    drawn = sampled_trials(method)
    monkeypatch.setattr(recording, "trials", lambda: drawn)
    assert method_checks.check(method) == {}


@pytest.mark.usefixtures("registries")
def test_the_unchanged_template_passes_the_contract(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli) -> None:
    monkeypatch.chdir(tmp_path)
    step = next(line for line in cli("new method my-method").splitlines() if "fglbench check" in line)
    lines, count = cli([*step.split("fglbench ")[1].split(), "--no-real"]).splitlines(), len(method_checks.CHECKS)
    assert [line.split("  ")[0] for line in lines[:count]] == [name.replace("_", " ") for name in method_checks.CHECKS]
    assert all(line.endswith("  ok") for line in lines[:count])
    assert lines[count].startswith(f"my-method passes the contract ({count} checks, ")
    assert len(lines) == count + 1


def test_check_also_runs_on_a_real_dataset(monkeypatch: pytest.MonkeyPatch, cli) -> None:
    """If it is available; here it is a stand-in."""
    stand_in, fetches = trials()[2], []

    def real(*, near: bool) -> Trial:
        fetches.append(near)
        if near and len(fetches) > 1:
            raise UserError("no source has it")
        return stand_in

    monkeypatch.setattr(trial, "real_trial", real)
    monkeypatch.setattr(method_checks, "CHECKS", {})
    monkeypatch.setattr(method_checks, "results", lambda method: iter(()))
    lines = cli("check fedavg").splitlines()
    assert [line.split("  ")[0] for line in lines[: len(method_checks.ON_REAL)]] == [
        f"{name.replace('_', ' ')} on csbm" for name in method_checks.ON_REAL
    ]
    assert "skipped: it is not at hand: --real fetches it\nfedavg: no check applies" in cli("check fedavg")
    cli("check fedavg --real")
    cli("check fedavg --no-real")
    assert fetches == [True, True, False]


@pytest.mark.parametrize("torch", [False, True])
def test_the_template_is_formatted(tmp_path: Path, torch: bool) -> None:
    path = new_and_check.create("method", "fed-much-longer-name+", tmp_path, torch=torch)
    assert path.name == "fed_much_longer_name_plus.py"
    assert f"class FedMuchLongerNamePlus({'TorchMethod' if torch else 'FedAvg'})" in path.read_text()
    for command in (["check", "--select", "E,F,W,I,B,UP"], ["format", "--check"]):
        arguments = [sys.executable, "-m", "ruff", *command, "--line-length", "120", str(path)]
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stdout


def test_the_template_in_the_package_has_relative_imports_and_needs_no_other_edit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli
) -> None:
    monkeypatch.setattr(new_and_check, "METHODS_FOLDER", tmp_path)
    output = cli(f"new method my-method --into {tmp_path}")
    text = (tmp_path / "my_method.py").read_text()
    assert "from ..benchmark.engine import METHODS, ClientBatch, Params, Server\n" in text
    assert "fglbench." not in text.split("class ")[0].split('"""')[2]
    assert "__init__" not in output
    assert "\n  2. fglbench check my-method\n" in output


def test_every_file_in_the_folder_of_methods_is_registered(tmp_path: Path) -> None:
    """In a copy of the package: a file and a folder that no import names."""
    root = Path(__file__).resolve().parents[2]
    package = tmp_path / "fglbench"
    package.mkdir()
    for path in root.iterdir():
        if path.name != "methods" and (path.is_dir() or path.suffix == ".py") and not path.name.startswith("."):
            (package / path.name).symlink_to(path)
    shutil.copytree(root / "methods", package / "methods")
    new_and_check.create("method", "loose-file", package / "methods")
    folder = package / "methods" / "many"
    folder.mkdir()
    new_and_check.create("method", "in-a-folder", folder)
    (folder / "__init__.py").write_text("from .in_a_folder import InAFolder\n")
    code = (
        "from fglbench.benchmark.known import check_names, look_up; check_names({'method': ['loose-file']}); "
        "print(look_up('loose-file').name); from fglbench.methods import METHODS; print(*METHODS.names())"
    )
    run = partial(
        subprocess.run, capture_output=True, text=True, timeout=120, env={**os.environ, "PYTHONPATH": str(tmp_path)}
    )
    done = run([sys.executable, "-c", code], cwd=tmp_path)
    assert {"loose-file", "in-a-folder", "fedavg", "fedsage+"} <= set(done.stdout.split()), done.stderr


@pytest.mark.usefixtures("registries")
def test_switched_off_the_template_is_fedavg(tmp_path: Path) -> None:
    """As the text of the template claims."""
    import torch

    from fglbench.benchmark.contract.recording import record

    path = new_and_check.create("method", "switched-off", tmp_path)
    load_plugins([str(path)])
    trial = trials()[0]
    plain = record(FedAvg(), trial)
    off = record(METHODS.build("switched-off", {"smoothing": 0, "server_step": 1}), trial)
    for (_, _, ours), (_, _, theirs) in zip(off.models, plain.models, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)
    on = record(METHODS.build("switched-off"), trial)
    assert any(not torch.allclose(a[2], b[2], atol=1e-4) for a, b in zip(on.models, plain.models, strict=True))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["Mine"], "'Mine' is no name for a method: lower-case letters, digits and '-', as in my-method"),
        (["../evil"], "'../evil' is no name for a method"),
        (["a b"], "'a b' is no name"),
        (["-"], "'-' is no name"),
        (["fedprox"], "there is a method 'fedprox' already (fglbench show fedprox); choose another name"),
        (["class"], "'class' is a word of Python"),
        (["there"], "'there.py' exists already"),
        (["mine", "--into", "absent"], "no folder 'absent'"),
        ([], "Missing argument 'NAME'"),
    ],
)
def test_mistakes_with_new_are_one_line(
    arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.py").write_text("mine")
    error = cli(["new", "method", *arguments], 2)
    assert error.startswith(f"fglbench: {message}")
    assert error.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["there.py"]
    assert (tmp_path / "there.py").read_text() == "mine"


class Deaf(FedAvg):
    """Never trains."""

    def client(self, clients):
        clients.load(clients.received["model"])
        return {"model": clients.params}


class Wrecked(FedAvg):
    """A bug in its first line."""

    def client(self, clients):
        return {"model": 1 / 0}


class Nowhere(FedAvg):
    """Applies to nothing."""

    def skip(self, facts, backbones):
        return "needs a moon"


def test_results_are_ok_failed_or_skipped_with_a_reason() -> None:
    results = list(method_checks.results(Deaf(), ["counts_its_steps", "stays_local"]))
    assert results[0] == ("counts_its_steps", "ok", "")
    assert results[1][:2] == ("stays_local", "failed")
    assert results[1][2].endswith("client 0's data changes nothing, not even its uploads")
    ((_, verdict, reason),) = method_checks.results(Wrecked(), ["repeats_itself"])
    assert verdict == "failed"
    assert reason.startswith("ZeroDivisionError: division by zero (test_new_and_check.py:")
    pooled = ("stays_local", "skipped", "it pools the data of all clients, as a reference of the package may")
    assert list(method_checks.results(Global(), ["stays_local"])) == [pooled]
    assert {verdict for _, verdict, _ in method_checks.results(Nowhere())} == {"skipped"}
    assert set(method_checks.check(Deaf(), ["counts_its_steps", "stays_local"])) == {"stays_local"}


def test_check_exits_with_1_and_names_the_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cli) -> None:
    monkeypatch.setattr(method_checks, "results", partial(method_checks.results, names=["repeats_itself"]))
    monkeypatch.setitem(METHODS._classes, "wrecked", type("Bare", (Wrecked,), {"name": "wrecked"}))
    lines = cli("check wrecked --no-real", 1).splitlines()
    assert lines[0].split(maxsplit=4)[:4] == ["repeats", "itself", "failed:", "ZeroDivisionError:"]
    assert lines[1].startswith("wrecked: 1 of 1 checks failed")
    unknown = "unknown method, dataset, partition, split or backbone 'fedavgg'; did you mean 'fedavg'?"
    with pytest.raises(UserError, match=re.escape(unknown)):
        list(verdicts_on("fedavgg", {}, None))
    with pytest.raises(UserError, match="if a file of yours registers it, give --plugin FILE"):
        list(verdicts_on("my-method", {}, None))
    assert "mu" in cli("check fedprox --set mu=-1", 2)


def test_a_sound_dataset_passes_and_each_breach_is_found() -> None:
    import dgl
    import torch

    from fglbench.datasets import DATASETS

    small = {"nodes": 40, "classes": 2, "features": 4}
    recording = {name: verdict for name, verdict, _ in part_checks.results("dataset", DATASETS.build("csbm", small))}
    assert recording == {"loads": "ok"}

    def broken(check: str, **changes: object) -> str:
        """The reason of a failed check for a dataset with changed data."""

        class Broken(CSBM):
            """Docstring."""

            name = "csbm"

            def load(self):
                from dataclasses import replace

                return replace(super().load(), **changes)

        outcome = {name: (verdict, reason) for name, verdict, reason in part_checks.results("dataset", Broken(**small))}
        assert outcome[check][0] == "failed"
        return outcome[check][1]

    loop = dgl.graph(([0, 0, 1], [0, 1, 0]), num_nodes=40)
    assert "self-loop" in broken("loads", graph=loop)
    assert "twice" in broken("loads", graph=dgl.graph(([0, 0, 1, 1], [1, 1, 0, 0]), num_nodes=40))
    assert "other direction" in broken("loads", graph=dgl.graph(([0], [1]), num_nodes=40))
    assert "not finite" in broken("loads", feat=torch.full((40, 4), float("nan")))
    assert "give float32" in broken("loads", feat=torch.zeros(40, 4, dtype=torch.float64))
    assert "classes" in broken("loads", num_classes=9)
    assert "has 3 classes" in broken("loads", scored_by="roc_auc", num_classes=3, label=torch.arange(40) % 3)
    assert "named 'other'" in broken("loads", name="other")
    assert "no sha256" in broken("loads", fingerprint="x")


JUDGED = """
import os, sys
from pathlib import Path
import fglbench
from fglbench.methods.fedavg import FedAvg
with open("imported", "a") as file:
    print(os.getpid(), file=file)

@fglbench.register("leaves")
class Leaves(FedAvg):
    def phases(self, config):
        sys.exit(0)
"""


def test_a_plug_in_is_checked_in_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("judged.py").write_text(JUDGED)
    assert main(["check", "leaves", "--plugin", "judged.py", "--no-real"]) == 2
    output = capsys.readouterr()
    assert "the process that imports the plug-ins ended with exit code 0" in output.err and "passes" not in output.out
    assert str(os.getpid()) not in Path("imported").read_text().split()
    assert "leaves" not in METHODS.names()
