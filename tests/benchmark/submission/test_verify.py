"""Repeating rows: tolerances on the same machine and on others, and the recorded verdicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from fglbench.benchmark.cli import main
from fglbench.benchmark.runner import execute
from fglbench.benchmark.store import Store, verified
from fglbench.benchmark.store.schema import Row
from fglbench.benchmark.submission import verify
from fglbench.registry import UserError

from .conftest import edit


@pytest.fixture
def rows(results: Path) -> list[Row]:
    """Two seeds of fedavg and of local on two datasets, with scores 0.5 and 0.54 in turn."""
    stored = sorted(Store(results).rows("tiny"), key=lambda row: (row.method, row.dataset_params, row.seed))
    scores = ((row, 0.5 + 0.04 * row.seed) for row in stored)
    return [
        row.model_copy(update={"score": score, row.score_metric.split()[1] + "_on_local": score, "macro_f1": 0.5})
        for row, score in scores
    ]


def changed(row: Row, **values: object) -> Row:
    return row.model_copy(update=values)


class Rows:
    """A store with these rows."""

    def __init__(self, rows: list[Row]) -> None:
        self.stored = rows

    def rows(self, *, latest_only: bool) -> list[Row]:
        return self.stored


def draw(rows: list[Row], number: int, seed: int) -> list[Row]:
    return verify.draw(Rows(rows), {}, number, seed, "results")  # type: ignore[arg-type]


def test_a_sample_is_of_whole_cells_and_does_not_depend_on_the_order(rows: list[Row]) -> None:
    drawn = draw(rows, 2, 3)
    assert draw(rows[::-1], 2, 3) == drawn
    assert len({row.key for row in drawn}) == 4  # two cells of two seeds
    assert len({verify._place(row) for row in drawn}) == 2
    assert len({tuple(row.key for row in draw(rows, 2, seed)) for seed in range(20)}) > 1
    assert len(draw(rows, 99, 0)) == len(rows)
    with pytest.raises(UserError, match="no row has a score"):
        draw([changed(row, status="failed", score=None, error="x") for row in rows], 1, 0)
    with pytest.raises(UserError, match="its experiment has the key"):
        draw([changed(row, key="0" * 16) for row in rows], 1, 0)


def problems(theirs: Row, ours: Row | None, *seeds: Row) -> tuple[str, ...]:
    return verify.compare(theirs, ours, seeds or ([ours] if ours else [])).problems


def test_a_row_may_be_above_ours_by_a_part_of_the_deviation_over_our_seeds(rows: list[Row]) -> None:
    row = rows[0]
    assert problems(row, row) == ()
    assert problems(row, changed(row, score=row.score - 0.009)) == ()
    assert problems(row, changed(row, score=row.score - 0.011)) == ("score is more than 0.01 above ours",)
    assert problems(row, changed(row, score=row.score + 0.3)) == ()  # one side only
    ours = changed(row, score=row.score - 0.049)
    seeds = ours, changed(ours, score=ours.score + 0.02 * 2**0.5)  # deviation 0.02: the bar is 0.05
    assert problems(row, ours, *seeds) == ()
    lower = changed(row, score=row.score - 0.051)
    seeds = lower, changed(lower, score=lower.score + 0.02 * 2**0.5)
    assert problems(row, lower, *seeds) == ("score is more than 0.05 above ours",)
    seeds = lower, changed(lower, score=lower.score + 0.04 * 2**0.5)  # 2.5 deviations are 0.1: the bar is 0.05
    assert problems(row, lower, *seeds) == ("score is more than 0.05 above ours",)
    assert problems(row, changed(row, macro_f1=row.macro_f1 - 0.029)) == ()
    assert problems(row, changed(row, macro_f1=row.macro_f1 - 0.031)) == ("macro_f1 is more than 0.03 above ours",)


def test_data_partition_status_and_rounds_are_the_same(rows: list[Row]) -> None:
    row = rows[0]
    assert problems(row, changed(row, partition_hash="0" * 64)) == ("another partition hash",)
    assert problems(row, changed(row, dataset_fingerprint="0" * 64)) == ("another dataset fingerprint",)
    assert problems(row, changed(row, rounds=7)) == ("another rounds",)
    stops = changed(row, training=row.training.replace('"patience":null', '"patience":5'))
    assert stops.training != row.training
    assert problems(stops, changed(stops, rounds=7)) == ()
    failed = changed(row, status="failed", score=None, error="crashed")
    assert problems(row, failed) == ("ok in the row, but failed here: crashed",)
    assert problems(failed, row) == (f"failed in the row, but ok here: it has a score of {row.score:.4f}",)
    assert problems(failed, failed) == ()
    assert problems(row, None) == ("not run: its data is unavailable",)


PATCH = """
from fglbench.benchmark.submission import verify, validate
verify.compare = lambda theirs, ours, seeds: verify.Comparison(theirs, theirs, 1.0, ())
validate.problems = lambda row, settings=None: iter(())
open("imported", "a").write("x")

import fglbench
from fglbench.methods.fedavg import FedAvg
fglbench.register("patching")(type("Patching", (FedAvg,), {}))
"""


def test_a_plugin_that_patches_the_comparison_is_without_effect(workdir: Path, results: Path, cli) -> None:
    (workdir / "patch.py").write_text(PATCH)
    edit(results / "tiny/fedavg.csv", None, score="0.999", global_on_local="0.999")
    options = ["--sample", "1", "--seed", "0", "-m", "fedavg", "-j", "1", "--no-contract", "--plugin", "patch.py"]
    assert "0 of 2 rows passed" in cli(["verify", "results", *options], 1)
    assert (workdir / "imported").exists()  # by the process that ran the rows


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("honest", [True, False])
def test_rows_are_repeated_and_the_verdicts_recorded(
    honest: bool,
    workdir: Path,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    cli,
) -> None:
    monkeypatch.setattr("fglbench.benchmark.store.provenance.git_state", lambda: ("b" * 40, False))
    if not honest:
        edit(results / "tiny/fedavg.csv", None, score="0.999", global_on_local="0.999")
    options = ["--sample", "2", "--seed", "0", "-m", "fedavg", "-j", "1", "--no-contract"]
    arguments = ["verify", "results", *options, "--record", "results"]
    assert cli(arguments, 2).startswith("fglbench: --record needs --by NAME")
    output = cli([*arguments, "--by", "maintainer"], 0 if honest else 1)
    assert f"{4 if honest else 0} of 4 rows passed (drawn with --seed 0)" in output
    assert ("score is more than 0." in output) == (not honest)
    assert f"{4 if honest else 0} of 4 scores are equal to rounding" in output
    verdicts = verified.read(results)
    assert {each.verdict for each in verdicts} == {"passed" if honest else "failed"}
    standing = {row.key: row for row in Store(results).rows("tiny")}
    for each in verdicts:
        assert each.score == standing[each.key].score
        assert (each.ours == each.score) == honest
        assert (each.by, each.git_sha, each.method_version) == (
            "maintainer", "b" * 40, standing[each.key].method_version,
        )  # fmt: skip
    assert main([*arguments, "--by", "another"]) in (0, 1)
    assert [each.by for each in verified.read(results)] == ["maintainer"] * 4 + ["another"] * 4
    assert sorted(path.name for path in workdir.iterdir()) == ["results"]


def test_only_a_clean_checkout_may_record(workdir: Path, results: Path) -> None:
    for dirty in (True, None):
        with pytest.raises(UserError, match="needs a clean checkout"):
            verify.may_record(results, "me", dirty)
    with pytest.raises(UserError, match="no results folder"):
        verify.may_record(workdir / "absent", "me", False)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"suite,key\n", ":1: the columns are not suite, key"),
        (
            f"{','.join(verified.COLUMNS)}\n{','.join('x' for _ in verified.COLUMNS)}\n".encode(),
            ":2: Input should be a",
        ),
        (b"\xff\xfe,bad\n", ": cannot be read"),
        (b"a," + b"x" * 200_000 + b"\n", ": cannot be read"),
    ],
)
def test_a_damaged_file_of_verdicts_is_one_line(results: Path, content: bytes, message: str) -> None:
    (results / verified.FILE).write_bytes(content)
    with pytest.raises(UserError, match=f"verified.csv{message}"):
        verified.read(results)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("wrong", [{}, {"sees_no_hidden_label": "what is uploaded differs"}])
def test_methods_of_rows_are_checked_against_the_contract_on_real_data(
    wrong: dict[str, str],
    workdir: Path,
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checks, run = [], execute.in_child

    def in_child(function, plugins, *arguments):
        if function.__name__ != "verdicts_on":
            return run(function, plugins, *arguments)
        checks.append(arguments)
        return [(name, "failed", reason) for name, reason in wrong.items()]

    monkeypatch.setattr(execute, "in_child", in_child)
    arguments = ["verify", "results", "--sample", "1", "--seed", "0", "-m", "fedavg", "-j", "1"]
    assert main(arguments) == (1 if wrong else 0)
    assert checks == [("fedavg", {}, True)]
    output = capsys.readouterr().out
    assert f"fedavg {'does NOT hold' if wrong else 'holds'} to the contract" in output
    assert ("sees no hidden label: what is uploaded differs" in output) == bool(wrong)
