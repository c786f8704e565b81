"""Tuned settings that a submission brings for a method that the suite does not list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.runner.execute import FederationCache, execute
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.provenance import environment
from fglbench.benchmark.submission.validate import validate
from fglbench.benchmark.suites.select import Request, at_settings, parted
from fglbench.benchmark.suites.tuned import Tuned, read_tuned, write_tuned

VALUES = {"method": {"mu": 0.5}, "training": {"lr": 0.03, "optimiser": "adam"}, "backbone": {"dropout": 0.2}}


@pytest.fixture
def chosen() -> Tuned:
    facts = {"study": "tiny/fedprox/csbm/0123abcd", "trials": 8, "rounds": 40, "seeds": [100], "trial": 3}
    return Tuned.model_validate({**VALUES, **facts, "val": 0.9, "default": 0.8})


@pytest.fixture
def packed(here: Path, chosen: Tuned, tools: SimpleNamespace) -> Callable[..., tuple[int, Path]]:
    """Runs a method at tuned settings and submits its rows; the exit code and the folder."""

    def make(method: str) -> tuple[int, Path]:
        values = {**VALUES, "method": VALUES["method"] if method == "fedprox" else {}}
        table = {method: {"csbm": Tuned.model_validate({**chosen.model_dump(), **values})}}
        write_tuned(here / "own" / f"{method}.tuned.yaml", table)
        store, (digest, about) = Store(here / "own"), environment(1)
        store.write_environment(digest, about)
        stamp = {"environment": digest, "git_sha": "a" * 40, "git_dirty": False, "submitter": "someone"}
        cells, _ = parted(Request(suites=("tiny",), methods=(method,)))
        federations = FederationCache()
        for cell in at_settings([cell for _, cell in cells], read_tuned(here / "own" / f"{method}.tuned.yaml")):
            store.append(execute(cell, "tiny", store, federations, stamp))
        return main(["submit", method, "--results", "own", "--out", "out", *tools.options]), here / "out"

    (here / "own").mkdir()
    return make


def problems(folder: Path) -> list[str]:
    return [error.what for error in validate(folder, "out", submission=True).findings.errors]


def test_rows_at_its_own_tuned_settings_are_experiments_of_the_suite(packed: Any, results: Path, here: Path) -> None:
    code, out = packed("fedprox")
    assert code == 0 and problems(out) == []
    assert main(["validate", "out", "--into", "results"]) == 0
    kept = here / "results" / "submissions" / "fedprox" / "tuned.yaml"
    assert kept.read_bytes() == (out / "tuned.yaml").read_bytes()
    assert main(["validate", "results"]) == 0
    (out / "tuned.yaml").unlink()
    assert any("not an experiment of suite 'tiny'" in what for what in problems(out))


def test_it_is_adopted_once_the_suite_has_the_settings(
    packed: Any, results: Path, suites: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed("fedprox")
    assert main(["validate", "out", "--into", "results"]) == 0
    assert main(["adopt", "fedprox", "--results", "results", "--dry-run"]) == 2
    assert "{name: fedprox, params: tuned}" in capsys.readouterr().err
    text = (suites / "tiny.yaml").read_text().replace("[fedavg, local]", "[fedavg, local, fedprox]")
    (suites / "tiny.yaml").write_text(text)
    assert main(["adopt", "fedprox", "--results", "results", "--dry-run"]) == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"training": {"lr": 0.03, "rounds": 900}}, "sets rounds; tuning chooses"),
        ({"backbone": {"hidden": 512}}, "sets hidden; tuning chooses"),
        ({"seeds": [0, 100]}, "was tuned on seed 0, which may be scored"),
        ({"trials": 0}, "cannot read tuned settings"),
    ],
)
def test_settings_change_no_protocol_and_know_no_scored_seed(
    packed: Any, chosen: Tuned, change: dict[str, Any], said: str
) -> None:
    _, out = packed("fedprox")
    values = chosen.model_construct(**{**chosen.model_dump(), **change})
    write_tuned(out / "tuned.yaml", {"fedprox": {"csbm": values}})
    assert any(said in what for what in problems(out))


def test_a_method_of_the_suite_has_the_suites_settings(packed: Any) -> None:
    code, out = packed("fedavg")
    assert code == 1 and not out.exists()
