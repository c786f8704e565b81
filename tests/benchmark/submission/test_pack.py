"""Packing: files of a submission, refusals, the code that rows name, and tuned settings of a submission."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.runner.execute import FederationCache, execute
from fglbench.benchmark.store import Store
from fglbench.benchmark.store.provenance import environment, origin
from fglbench.benchmark.store.schema import RULES
from fglbench.benchmark.submission import listing, submit
from fglbench.benchmark.submission.validate import validate
from fglbench.benchmark.suites.plugins import load_plugins
from fglbench.benchmark.suites.select import Request, at_settings, parted
from fglbench.benchmark.suites.tuned import Tuned, read_tuned, write_tuned
from fglbench.methods import METHODS
from fglbench.methods.fedavg import FedAvg

from ...conftest import git
from .conftest import META, OPTIONS, edit


def test_a_submission_has_the_rows_and_their_side_files(submission: Path, mine: Path) -> None:
    theirs = Store(mine).rows("tiny")
    assert Store(submission).rows("tiny") == theirs
    for row in theirs:
        assert Store(submission).history("tiny", row.key) == Store(mine).history("tiny", row.key)
    files = {path.relative_to(submission).as_posix() for path in submission.rglob("*") if path.is_file()}
    assert {f.split("/")[0] for f in files} == {"tiny", "environments", "submission.yaml"}
    assert len(files) == 1 + len(theirs) + 2
    assert submit.metadata(submit.read_fields(submission / "submission.yaml")).contact == "someone@example.org"


def test_only_the_last_row_of_a_cell_is_packed(workdir: Path, mine: Path, cli) -> None:
    path = mine / "tiny/fedprox.csv"
    last = path.read_bytes().splitlines(keepends=True)[-1]
    edit(path, 5, status="failed", score="", error="crashed")
    path.write_bytes(path.read_bytes() + last)
    cli(["submit", "fedprox", "--results", "mine", "--out", "packed", *OPTIONS])
    assert [row.status for row in Store(workdir / "packed").rows("tiny")] == ["ok"] * 4


def test_metadata_come_from_options_or_a_file_and_must_be_complete(workdir: Path, mine: Path, cli) -> None:
    command = ["submit", "fedprox", "--results", "mine"]
    assert cli([*command, "--paper", "unpublished", "--licence", "MIT"], 2) == (
        "fglbench: the metadata lack code, hardware, contact; "
        "give --code TEXT --hardware TEXT --contact TEXT, or --meta FILE with these keys\n"
    )
    (workdir / "meta.json").write_text(json.dumps({**META, "licence": "GPL-3.0-only"}))
    cli([*command, "--meta", "meta.json", "--licence", "MIT", "--out", "one"])
    about = submit.metadata(submit.read_fields(workdir / "one/submission.yaml"))
    assert (about.licence, about.code, about.method) == ("MIT", META["code"], "fedprox")
    (workdir / "meta.yaml").write_text("licens: MIT\n")
    for wrong, message in (
        (["--meta", "meta.yaml"], "unknown field of the metadata 'licens'; did you mean 'licence'?"),
        (["--meta", "absent.yaml"], "cannot read the metadata 'absent.yaml'"),
        (["--meta", "meta.json", "--code", "ftp://x"], "metadata: code: must be an https:// or http:// address"),
    ):
        assert cli([*command, *wrong, "--out", "two"], 2).startswith(f"fglbench: {message}")
    assert not (workdir / "two").exists()
    (workdir / "other.yaml").write_text("method: moon\n")
    error = cli([*command, "--meta", "other.yaml", "--out", "two", *OPTIONS], 2)
    assert error == "fglbench: 'other.yaml' is about method 'moon', not 'fedprox'\n"
    error = cli([*command, "--tuned", "absent.yaml", "--out", "two", *OPTIONS], 2)
    assert "absent.yaml" in error and not (workdir / "two").exists()


def test_an_invalid_submission_is_not_written(workdir: Path, mine: Path, cli) -> None:
    edit(mine / "tiny/fedprox.csv", 2, git_dirty="True")
    output = cli(["submit", "fedprox", "--results", "mine", "--out", "packed", *OPTIONS], 1)
    assert "packed/tiny/fedprox.csv:2: made from a checkout with uncommitted changes" in output
    assert output.endswith("nothing was written\n")
    assert sorted(path.name for path in workdir.iterdir()) == ["mine"]


def test_mistakes_are_one_line(submission: Path, workdir: Path, cli) -> None:
    for arguments, message in (
        (["fedporx", "--results", "mine"], "unknown method with rows under 'mine': 'fedporx'; did you mean 'fedprox'?"),
        (["fedprox", "--results", "absent"], "no results folder at 'absent'"),
        (
            ["fedprox", "--results", "mine", "-s", "tny"],
            "unknown suite with rows of 'fedprox': 'tny'; did you mean 'tiny'",
        ),
        (
            ["fedprox", "--results", "mine", "--out", "packed"],
            "'packed' exists already; remove it, or give another --out",
        ),
    ):
        assert cli(["submit", *arguments, *OPTIONS], 2).startswith(f"fglbench: {message}")


def test_a_zip_file_is_no_submission(submission: Path, workdir: Path, cli) -> None:
    error = cli(["submit", "fedprox", "--results", "mine", "--out", "packed.zip", *OPTIONS], 2)
    assert "a submission is a folder of a pull request, not a zip file" in error
    shutil.make_archive("theirs", "zip", submission)
    error = cli("validate theirs.zip", 2)
    assert error == "fglbench: no folder at 'theirs.zip'; give a results folder or a submission\n"
    assert "'mine' is a results folder without submission.yaml" in cli("validate mine --into results", 2)


def test_limits_are_large_enough_for_a_board() -> None:
    """Fifty datasets, ten seeds and rows of the largest size fit many times."""
    widest = sum(rule.longest for rule in RULES.values())
    assert 50 * 10 * widest < listing.TOTAL_BYTES
    assert listing.FILES > 50 * 10 * 2 + 10


ROWS = Path("tiny/fedprox.csv")


def test_a_row_names_the_code_that_made_it(submission: Path, cli) -> None:
    installed = {"git_sha": "", "git_dirty": ""}
    edit(submission / ROWS, None, **installed, code="0" * 12)
    assert main(["validate", "packed"]) == 0
    for values in ({**installed, "code": ""}, {"git_sha": "0" * 40, "git_dirty": "False", "code": ""}):
        edit(submission / ROWS, None, **values)
        assert "neither a commit nor the code of an installed package is named" in cli("validate packed", 1)


PLUGIN = """
from fglbench.benchmark.engine import METHODS
from fglbench.methods.fedavg import FedAvg

@METHODS.register("from-outside")
class FromOutside(FedAvg):
    '''FedAvg from outside.'''
"""


def test_a_method_from_outside_carries_its_own_identity(tmp_path: Path) -> None:
    assert origin(FedAvg) == ""
    path = tmp_path / "from_outside.py"
    path.write_text(PLUGIN)
    load_plugins([str(path)])
    cls = METHODS.cls("from-outside")
    del METHODS._classes["from-outside"]  # for good: other tests look at all that is registered
    loose = json.loads(origin(cls))
    assert set(loose) == {"source"}
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    origin.cache_clear()
    kept = json.loads(origin(cls))
    assert kept == {"commit": git(tmp_path, "rev-parse", "HEAD"), "dirty": False, "source": loose["source"]}
    path.write_text(PLUGIN + "# changed\n")
    origin.cache_clear()
    changed = json.loads(origin(cls))
    assert changed["dirty"] is True
    assert changed["source"] != kept["source"]


VALUES = {"method": {"mu": 0.5}, "training": {"lr": 0.03, "optimiser": "adam"}, "backbone": {"dropout": 0.2}}


@pytest.fixture
def chosen() -> Tuned:
    facts = {"study": "tiny/fedprox/csbm/0123abcd", "trials": 8, "rounds": 40, "seeds": [100], "trial": 3}
    return Tuned.model_validate({**VALUES, **facts, "val": 0.9, "default": 0.8})


@pytest.fixture
def packed(workdir: Path, chosen: Tuned) -> Callable[..., tuple[int, Path]]:
    """Runs a method at tuned settings and submits its rows; the exit code and the folder."""

    def make(method: str) -> tuple[int, Path]:
        values = {**VALUES, "method": VALUES["method"] if method == "fedprox" else {}}
        table = {method: {"csbm": Tuned.model_validate({**chosen.model_dump(), **values})}}
        write_tuned(workdir / "own" / f"{method}.tuned.yaml", table)
        store, (digest, about) = Store(workdir / "own"), environment(1)
        store.write_environment(digest, about)
        stamp = {"environment": digest, "git_sha": "a" * 40, "git_dirty": False, "submitter": "someone"}
        cells, _ = parted(Request(suites=("tiny",), methods=(method,)))
        federations = FederationCache()
        for cell in at_settings([cell for _, cell in cells], read_tuned(workdir / "own" / f"{method}.tuned.yaml")):
            store.append_row(execute(cell, "tiny", store, federations, stamp))
        return main(["submit", method, "--results", "own", "--out", "out", *OPTIONS]), workdir / "out"

    (workdir / "own").mkdir()
    return make


def problems(folder: Path) -> list[str]:
    return [error.what for error in validate(folder, "out", submission=True).findings.errors]


def test_rows_at_its_own_tuned_settings_are_experiments_of_the_suite(
    packed: Any, results: Path, workdir: Path, cli
) -> None:
    code, out = packed("fedprox")
    assert code == 0 and problems(out) == []
    cli("validate out --into results")
    kept = workdir / "results" / "submissions" / "fedprox" / "tuned.yaml"
    assert kept.read_bytes() == (out / "tuned.yaml").read_bytes()
    cli("validate results")
    (out / "tuned.yaml").unlink()
    assert any("not an experiment of suite 'tiny'" in what for what in problems(out))


def test_a_tuned_submission_is_adopted_once_the_suite_has_the_settings(
    packed: Any, results: Path, suites: Path, cli
) -> None:
    packed("fedprox")
    cli("validate out --into results")
    assert "{name: fedprox, params: tuned}" in cli("adopt fedprox --results results --dry-run", 2)
    text = (suites / "tiny.yaml").read_text().replace("[fedavg, local]", "[fedavg, local, fedprox]")
    (suites / "tiny.yaml").write_text(text)
    cli("adopt fedprox --results results --dry-run")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"training": {"lr": 0.03, "rounds": 900}}, "sets rounds; tuning chooses"),
        ({"backbone": {"hidden": 512}}, "sets hidden; tuning chooses"),
        ({"seeds": [0, 100]}, "was tuned on seed 0, which may be scored"),
        ({"trials": 0}, "cannot read tuned settings"),
    ],
)
def test_settings_change_no_protocol_and_know_no_scored_seed(
    packed: Any, chosen: Tuned, change: dict[str, Any], message: str
) -> None:
    _, out = packed("fedprox")
    values = chosen.model_construct(**{**chosen.model_dump(), **change})
    write_tuned(out / "tuned.yaml", {"fedprox": {"csbm": values}})
    assert any(message in what for what in problems(out))


def test_a_method_of_the_suite_has_the_suites_settings(packed: Any) -> None:
    code, out = packed("fedavg")
    assert code == 1 and not out.exists()
